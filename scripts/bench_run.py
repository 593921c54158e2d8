"""Measures the finite run: whole processes, launches, joins, memory. Prints a table; ``--write`` keeps it.

Compared are ratios within one run, interleaved, because a machine's speed drifts. Nothing else should run meanwhile.

    python3 scripts/bench_run.py [--rounds 15] [--write]
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from _env import CONSTRAINTS, ROOT, development

PARTS = ("whole", "launch", "latency")


def main() -> None:
    """Install the project as a wheel, run each part with it, and print what they say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds")
    parser.add_argument("--only", choices=PARTS, help="run one part")
    parser.add_argument("--write", action="store_true", help="write the table to docs/performance.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = install_wheel(Path(folder))
        rows: list[str] = []
        for part in [options.only] if options.only else PARTS:
            rows += run_part(python, part, options.rounds)
    table = ["| what | measured | target |", "|---|---|---|", *rows]
    print("\n".join(table))
    if options.write:
        write(table)


def install_wheel(folder: Path) -> str:
    """Install the project, not editable, into a fresh environment, and return its Python."""
    subprocess.run([development(), "-m", "venv", folder / "venv"], check=True)
    python = str(folder / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    quiet = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(CONSTRAINTS)]
    subprocess.run([*quiet, str(ROOT), "psutil"], check=True, stderr=subprocess.DEVNULL)
    return python


def run_part(python: str, part: str, rounds: int) -> list[str]:
    """Run one part in the wheel's environment; its last lines are rows of the table."""
    script = Path(__file__).with_name(f"bench_{part}.py")
    done = subprocess.run(
        [python, script, str(rounds)], check=True, stdout=subprocess.PIPE, encoding="utf-8", env=clean()
    )
    return [line for line in done.stdout.splitlines() if line.startswith("|")]


def clean() -> dict[str, str]:
    """Return an environment without settings of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FANJOIN", "OPENAI", "PYTHON"))}


def write(table: list[str]) -> None:
    """Keep the table, with what it was measured on."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    text = [
        "# Performance",
        "",
        f"Measured by `python3 scripts/bench_run.py --write` on {machine}. Ratios are taken pair by pair within one",
        "run, interleaved; figures are medians unless they say otherwise.",
        "",
        *table,
        "",
    ]
    (ROOT / "docs" / "performance.md").write_text("\n".join(text), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
