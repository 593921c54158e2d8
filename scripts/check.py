"""Check style, format and types of the whole project; the types as each operating system sees them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import _env

_PACKAGES = ("agent_proc", "cli", "client", "ipc", "supervisor")
_PLATFORMS = ("linux", "win32", "darwin")
_CACHE = _env.ROOT / ".mypy_cache"


def main() -> None:
    """Run every check, also after one that failed, and exit 1 if any did."""
    python = _env.development()
    failed = [name for name, command in _style(python).items() if not _passes(name, command)]
    os.environ["MYPYPATH"] = os.pathsep.join([str(_linked()), str(_env.ROOT / "scripts")])
    failed += [name for name, command in _types(python).items() if not _passes(name, command)]
    if failed:
        sys.exit("Failed: " + ", ".join(failed))
    _env.say("All checks passed.")


def _style(python: str) -> dict[str, list[str]]:
    ruff = [python, "-m", "ruff"]
    return {"style": [*ruff, "check", "."], "format": [*ruff, "format", "--check", "."]}


def _types(python: str) -> dict[str, list[str]]:
    """Return one run of the type checker for each system, with a cache of its own, and one for the scripts."""
    mypy = [python, "-m", "mypy", "--config-file", str(_env.PYPROJECT)]
    packages = [word for name in _PACKAGES for word in ("-p", f"fanjoin.{name}")]
    runs = {
        f"types on {platform}": [*mypy, "--platform", platform, "--cache-dir", str(_CACHE / platform), *packages]
        for platform in _PLATFORMS
    }
    scripts = sorted(str(path) for path in (_env.ROOT / "scripts").glob("*.py"))
    return {**runs, "types of scripts": [*mypy, "--cache-dir", str(_CACHE / "scripts"), *scripts]}


def _passes(name: str, command: list[str]) -> bool:
    _env.say(f"-- {name}")
    return _env.run(command) == 0


def _linked() -> Path:
    """Return a folder in which ``fanjoin`` is the repository, as in an installation; a copy where links are refused.

    It is always the same one, because the type checker's cache remembers the paths of its messages.
    """
    folder = _CACHE / "path"
    name = folder / "fanjoin"
    folder.mkdir(parents=True, exist_ok=True)
    if name.is_symlink():
        return folder
    shutil.rmtree(name, ignore_errors=True)
    try:
        name.symlink_to(_env.ROOT, target_is_directory=True)
    except OSError:
        for package in _PACKAGES:
            shutil.copytree(_env.ROOT / package, name / package)
    return folder


if __name__ == "__main__":
    main()
