"""What the benchmarks' commands share: the project installed as a wheel, parts that run with it, their table kept.

Compared are ratios within one run, interleaved, because a machine's speed drifts. Nothing else should run meanwhile.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from _env import CONSTRAINTS, ROOT, development

PAGE = ROOT / "docs" / "performance.md"


def measure(title: str, parts: Sequence[str], rounds: int) -> None:
    """Install the project, run each part (``bench_PART.py``) with it, print what they say, and keep it when asked to.

    Args:
        title: of the section of docs/performance.md that ``--write`` writes.
        parts: their names.
        rounds: interleaved rounds, unless the command line says otherwise.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds")
    parser.add_argument("--only", choices=parts, help="run one part")
    parser.add_argument("--write", action="store_true", help="write the table to docs/performance.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = _install_wheel(Path(folder))
        rows = [row for part in parts if options.only in (None, part) for row in _run(python, part, options.rounds)]
    table = ["| what | measured | target |", "|---|---|---|", *rows]
    print("\n".join(table))
    if options.write:
        _write(title, table)


def _install_wheel(folder: Path) -> str:
    """Install the project, not editable, into a fresh environment, and return its Python."""
    subprocess.run([development(), "-m", "venv", folder / "venv"], check=True)
    python = str(folder / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    quiet = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(CONSTRAINTS)]
    subprocess.run([*quiet, str(ROOT), "psutil"], check=True, stderr=subprocess.DEVNULL)
    return python


def _run(python: str, part: str, rounds: int) -> list[str]:
    """Run one part in the wheel's environment; its last lines are rows of the table."""
    script = Path(__file__).with_name(f"bench_{part}.py")
    done = subprocess.run(
        [python, script, str(rounds)], check=True, stdout=subprocess.PIPE, encoding="utf-8", env=_environ()
    )
    return [line for line in done.stdout.splitlines() if line.startswith("|")]


def _environ() -> dict[str, str]:
    """Return an environment without settings of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FANJOIN", "OPENAI", "PYTHON"))}


def _write(title: str, table: list[str]) -> None:
    """Put the table into its section, with what it was measured by and on."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    source = f"Measured by `python3 scripts/{Path(sys.argv[0]).name} --write` on {machine}."
    section = "\n".join([f"## {title}", "", source, "", *table, ""])
    page = PAGE.read_text(encoding="utf-8")
    old = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    found = old.search(page)
    if found is None:
        page += f"\n{section}"
    else:
        rest = page[found.end() :]
        page = page[: found.start()] + section + (f"\n{rest}" if rest else "")
    PAGE.write_text(page, encoding="utf-8", newline="\n")
