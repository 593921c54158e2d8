"""Measures the finite run: whole processes, launches, joins, memory. Prints a table; ``--write`` keeps it.

python3 scripts/bench_run.py [--rounds 15] [--write]
"""

from bench_front import measure

if __name__ == "__main__":
    measure("The finite run", ("whole", "launch", "latency"), rounds=15)
