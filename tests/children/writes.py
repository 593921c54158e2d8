"""A worker that changes the file in its folder, or commits a change of it, or only reads, as its goal says."""

import subprocess
import sys
from pathlib import Path

goal = sys.stdin.read()
path = next(Path().rglob("file.txt"))
if not goal.startswith("read"):
    with path.open("a", encoding="utf-8") as file:
        file.write(goal)
if goal.startswith("commit"):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, "commit", "--quiet", "-am", "changed"], check=True)  # noqa: S607
print(path.read_text(encoding="utf-8"))  # noqa: T201
