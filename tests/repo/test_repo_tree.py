"""The files of the repository: encoding, size, and that none of them knows the machine it was written on."""

import re
from pathlib import Path

import pytest
from repo_support import PACKAGES, ROOT, files, sources

MOST_LINES = 400
# Written in parts, so that this file does not find itself.
_HOSTS = "|".join(("pypi" + r"\.org", "python" + "hosted", "npm" + "js", "deb" + r"\.debian", "crates" + r"\.io"))
_FOLDERS = "|".join((r"/ro" + "ot/", r"/wo" + "rk/", r"/ho" + r"me/\w", r"/Us" + r"ers/\w", r"[A-Z]:\\Us" + "ers"))
FOREIGN = re.compile(f"{_HOSTS}|(?<![\\w.}}])(?:{_FOLDERS})")


@pytest.mark.parametrize("path", sources(*PACKAGES, "scripts", "tests"), ids=str)
def test_a_module_fits_in_the_head(path: Path) -> None:
    """A longer module holds two ideas."""
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_every_file_is_clean_text() -> None:
    """Files are UTF-8 with plain line ends, and end in one."""
    for path in files():
        data = path.read_bytes()
        data.decode("utf-8")
        assert b"\r" not in data or path.suffix == ".bin", path
        assert not data or data.endswith(b"\n"), path


def test_no_file_knows_a_machine_or_a_registry() -> None:
    """No line names a package registry's host or a folder of somebody's machine."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert found == []


def test_modules_of_the_tests_have_names_of_their_own() -> None:
    """Tests and their helpers share one namespace, so a name is used once."""
    names = [path.name for path in sources("tests") if path.name != "conftest.py"]
    assert sorted(set(names)) == sorted(names)
