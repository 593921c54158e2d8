"""Measures the daemon: runs beside it, submissions, sessions at once, recovery. Prints a table; ``--write`` keeps it.

python3 scripts/bench_daemon.py [--rounds 15] [--write]
"""

from bench_front import measure

if __name__ == "__main__":
    measure("The daemon", ("sessions",), rounds=15)
