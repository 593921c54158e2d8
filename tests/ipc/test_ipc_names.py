"""Identifiers, places, endpoints, and the environment that processes get."""

import stat
import sys
import tempfile
from pathlib import Path

import pytest

from fanjoin.ipc import ids
from fanjoin.ipc.endpoints import ipc_endpoints, transport_for
from fanjoin.ipc.environment import allowed_environment
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.paths import home_from, instance_folder, prepare_home, socket_folder

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no mode bits and no ipc transport")


def test_identifiers_name_their_kind_and_do_not_repeat() -> None:
    """A prefix and twelve letters that nobody confuses: no l, o, 0 or 1."""
    made = {ids.new_id(ids.DELEGATE) for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(one) == 14 and one.startswith("d_") and not set(one[2:]) & set("lo01") for one in made)


def test_secrets_are_128_bits() -> None:
    """Nonces and tags cannot be guessed."""
    assert len({ids.new_secret() for _ in range(100)}) == 100
    assert len(bytes.fromhex(ids.new_secret())) == 16


def test_an_attempt_is_named_after_its_owner() -> None:
    """The number counts from one."""
    assert ids.attempt_id("d_x", 1) == "d_x.1"


def test_the_home_is_where_the_environment_says(tmp_path: Path) -> None:
    """FANJOIN_HOME counts, made absolute; empty counts as unset."""
    assert home_from({"FANJOIN_HOME": str(tmp_path / "a" / ".." / "b")}) == tmp_path / "b"
    assert home_from({"FANJOIN_HOME": "~/x"}).is_absolute()
    assert home_from({"FANJOIN_HOME": ""}).name == "fanjoin"


@posix
def test_a_home_is_private_and_complete(tmp_path: Path) -> None:
    """It is made with its folders; looser bits of our own home are tightened."""
    home = tmp_path / "a home, größe"
    home.mkdir()
    home.chmod(0o755)
    assert prepare_home(home) == home
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {one.name for one in home.iterdir()} == {"logs", "transcripts", "run"}


def test_a_home_that_cannot_be_made_is_the_callers_error(tmp_path: Path) -> None:
    """A file in its place: the message says that nothing was started and what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"(?s)cannot be used.*FANJOIN_HOME"):
        prepare_home(tmp_path / "file" / "home")


def test_a_long_path_gets_its_sockets_elsewhere(tmp_path: Path) -> None:
    """Below the limit the folder is the instance's own, above it a short one that two homes never share."""
    short = Path("/h") / "run" / "i"
    assert socket_folder(short) == short
    long = [instance_folder(tmp_path / ("ü" * 60) / name, "i_one") for name in "ab"]
    folders = {socket_folder(one) for one in long}
    assert len(folders) == 2
    assert all(one.parent == Path(tempfile.gettempdir()) for one in folders)
    assert socket_folder(long[0]) in folders


def test_the_transport_follows_the_system_unless_it_is_chosen() -> None:
    """``auto`` is ipc where there is one."""
    assert transport_for("auto") == ("tcp" if sys.platform == "win32" else "ipc")
    assert transport_for("tcp") == "tcp"
    endpoints = ipc_endpoints(Path("/r"))
    assert endpoints.back != endpoints.front
    assert not endpoints.client_secret


def test_only_what_is_allowed_reaches_our_processes() -> None:
    """Keys, tokens and PYTHON* variables stay out; names, globs and any case of a proxy's name pass."""
    environ = {
        "PATH": "p",
        "LC_ALL": "C",
        "XDG_RUNTIME_DIR": "x",
        "http_proxy": "h",
        "OPENAI_API_KEY": "k",
        "DATABASE_URL": "d",
        "PYTHONPATH": "y",
        "FANJOIN_RUN": "other",
        "MY_TOKEN": "t",
        "MYSTERY": "m",
    }
    assert set(allowed_environment(environ)) == {"PATH", "LC_ALL", "XDG_RUNTIME_DIR", "http_proxy"}
    assert set(allowed_environment(environ, ["MY_*"])) - set(allowed_environment(environ)) == {"MY_TOKEN"}


@posix
def test_a_folder_that_is_no_home_is_left_as_it_is(tmp_path: Path) -> None:
    """A project's folder, named by mistake, keeps its mode and gets nothing of ours; the message says why."""
    (tmp_path / "project").mkdir(mode=0o755)
    (tmp_path / "project" / "main.c").touch()
    with pytest.raises(UserError, match="holds files that are not fanjoin's"):
        prepare_home(tmp_path / "project")
    assert stat.S_IMODE((tmp_path / "project").stat().st_mode) == 0o755
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["main.c"]


def test_a_home_may_begin_with_its_configuration(tmp_path: Path) -> None:
    """Whoever writes config.yaml first gets a home around it."""
    (tmp_path / "config.yaml").touch()
    assert prepare_home(tmp_path) == tmp_path
    assert (tmp_path / "transcripts").is_dir()
