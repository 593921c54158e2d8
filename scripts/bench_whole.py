"""Whole processes: ``fanjoin chat -Q`` with two and with eight children, beside ``python -c pass``."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench_support import environment, provider, query, row


def timed(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Run a command and return its wall and CPU seconds, those of all its descendants included."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status:
        sys.exit(f"the measured command failed: {command}")
    return wall, usage.ru_utime + usage.ru_stime


def goals(count: int) -> list[str]:
    """Return short goals."""
    return [f"count the words of this line number {number}" for number in range(count)]


def main() -> None:
    """Measure in turn and print ratios."""
    rounds = int(sys.argv[1])
    program = str(Path(sys.executable).with_name("fanjoin"))
    with tempfile.TemporaryDirectory() as home, provider() as url:
        env = environment(home)
        chat = [program, "chat", "-Q", "--base-url", url, "-m", "synthetic", "-q"]
        commands = {
            "pass": [sys.executable, "-c", "pass"],
            "two": [*chat, query(goals(2))],
            "eight": [*chat, query(goals(8))],
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, command in commands.items():
                measured = timed(command, env)
                if number:  # the first round warms the caches
                    times[name].append(measured)
    wall = {name: [one[0] for one in measured] for name, measured in times.items()}
    cpu = {name: median(one[1] for one in measured) for name, measured in times.items()}
    ratio = median(two / nothing for two, nothing in zip(wall["two"], wall["pass"], strict=True))
    more = median(eight / two for eight, two in zip(wall["eight"], wall["two"], strict=True))
    milliseconds = {name: round(median(values) * 1000) for name, values in wall.items()}
    row("`python -c pass`", f"{milliseconds['pass']} ms", "")
    row(
        "`chat -Q`, two children, against `python -c pass`",
        f"{ratio:.1f} times ({milliseconds['two']} ms)",
        "≤ 26, aim 20",
    )
    row("its CPU, all processes", f"{cpu['two']:.2f} s", "≤ 0.7 s")
    row("eight children against two", f"{more:.2f} times ({milliseconds['eight']} ms)", "≤ 1.3")


if __name__ == "__main__":
    main()
