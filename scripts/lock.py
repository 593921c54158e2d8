"""Write constraints.txt anew: the newest versions of all that is installed, for every system and Python at once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import _env

_HEAD = """\
# Exact versions of everything that is installed to develop, test and demonstrate.
# Written by scripts/lock.py; the markers say where a package is needed.
"""


def main() -> None:
    """Resolve and write the constraints."""
    with tempfile.TemporaryDirectory() as folder:
        uv = shutil.which("uv") or _install_uv(Path(folder))
        build = Path(folder) / "build.in"
        build.write_text(_env.BUILD + "\n", encoding="utf-8")
        weights = Path(folder) / "weights.in"
        weights.write_text(_env.WEIGHTS + "\n", encoding="utf-8")
        lines = _resolved(uv, "--extra", "local", "--extra", "http2", "--group", "dev", str(_env.PYPROJECT), str(build))
        lines += _resolved(uv, "--no-deps", str(weights))
    text = _HEAD + "".join(f"{line}\n" for line in sorted(set(lines)))
    _env.CONSTRAINTS.write_bytes(text.encode())
    _env.say(f"Wrote {len(lines)} versions to {_env.CONSTRAINTS.name}.")


def _install_uv(folder: Path) -> str:
    """Install the resolver for this one use: it alone resolves for all systems at once."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "uv")], check=True)
    python = next(path for path in (folder / "uv").glob("*/python*") if path.stem == "python")
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv"], check=True)
    return str(python.with_name("uv"))


def _resolved(uv: str, *arguments: str) -> list[str]:
    """Return the versions that the resolver chooses, one requirement a line."""
    options = ("--quiet", "--universal", "--no-header", "--no-annotate", "--python-version", "3.11")
    command = [uv, "pip", "compile", *options, *arguments]
    done = subprocess.run(command, cwd=_env.ROOT, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


if __name__ == "__main__":
    main()
