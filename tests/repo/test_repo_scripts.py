"""The scripts on the machines of people: an old Python, one without venv, and a second run."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repo_support import ROOT, sources

SCRIPTS = ROOT / "scripts"


def run_environment(code: str, folder: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run code that uses the scripts' environment, with ``folder`` for it and no uv to be found."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"],
        cwd=SCRIPTS,
        env={**os.environ, "FANJOIN_VENV": str(folder), "PATH": str(folder.parent), "PYTHONPATH": "", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("path", sources("scripts"), ids=str)
def test_scripts_are_readable_for_an_old_python(path: Path) -> None:
    """Python 3.8 can parse each script, so that it gets to the message about its version."""
    ast.parse((ROOT / path).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_an_old_python_is_told(tmp_path: Path) -> None:
    """A Python that is too old is named, with the version that is needed, before anything is made."""
    done = run_environment("sys.version_info = (3, 8, 18)\nimport _env\n_env.development()", tmp_path / "venv")
    assert done.returncode == 1
    assert done.stderr.startswith("fanjoin needs Python 3.11 or newer, and this is ")
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path, module: str) -> None:
    """Where a part of Python is packaged apart, the message names the package."""
    done = run_environment(f"sys.modules[{module!r}] = None\nimport _env\n_env.development()", tmp_path / "venv")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 1
    assert f"apt install python{version}-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_environment_that_nothing_can_install_into_is_made_anew(tmp_path: Path) -> None:
    """An environment without pip serves only while uv is there."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=60)
    ask = "import _env\nsys.exit(_env._works())"
    assert run_environment(ask, tmp_path / "venv").returncode == 0
    uv = tmp_path / ("uv.exe" if sys.platform == "win32" else "uv")
    uv.touch(mode=0o755)
    assert run_environment(ask, tmp_path / "venv").returncode == 1


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the scripts' shared module with an environment folder of its own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _env  # found by the path above

    monkeypatch.setattr(_env, "_VENV", tmp_path)
    return _env


def test_a_second_run_installs_nothing(environment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is installed once, and again when what it is made from has changed or its record is damaged."""
    installed: list[str] = []

    def install() -> str:
        installed.append("")
        return "installed"

    results = [environment._install_once("part", install) for _ in range(3)]
    assert (results, len(installed)) == (["installed"] * 3, 1)
    monkeypatch.setattr(environment, "_inputs", lambda: "changed")
    environment._install_once("part", install)
    assert len(installed) == 2
    (environment._VENV / "fanjoin-part.json").write_text("{", encoding="utf-8")
    environment._install_once("part", install)
    assert len(installed) == 3


def test_a_failed_installation_is_tried_again(environment: Any) -> None:
    """Nothing is recorded of an installation that stopped."""

    def fail() -> str:
        sys.exit("no network")

    for _ in range(2):
        with pytest.raises(SystemExit, match="no network"):
            environment._install_once("part", fail)


def test_requirements_come_from_the_project_file(environment: Any) -> None:
    """The scripts keep no list of their own."""
    assert "pytest" in environment.requirements("dependency-groups", "dev")
    assert environment.requirements("optional-dependencies", "local")[0].startswith("xllamacpp")
