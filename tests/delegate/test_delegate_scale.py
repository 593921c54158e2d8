"""Ten thousand tasks: accepted at once, each with its receipt, told or read; and a thousand that really run."""

import sys
from statistics import median

from delegate_support import delegated, lines
from run_support import Home

MANY = 10_000
SOME = 150
SLACK = 3
"""For a machine that does other work meanwhile; alone it takes a quarter of a second."""


def test_ten_thousand_tasks_are_accepted_in_under_a_second(home: Home) -> None:
    """From the admission to the first launch, which waits for the commit of all rows, and each has its one receipt.

    The first task fails and ends the run: 9,999 entries come at one moment, more than wait for a slow viewer.
    """
    path = home.path.parent / "tasks.txt"
    path.write_text("".join(f"task {number}\n" for number in range(MANY)), encoding="utf-8")
    out = home.path.parent / "out.jsonl"
    worker = f"{sys.executable} -c 'raise SystemExit(3)'"
    done = delegated(home, str(path), "-j", "1", "--fail-fast", "-Q", "-o", str(out), worker=worker)
    assert done.returncode == 4
    ((queued, started),) = home.rows("SELECT queued_at, MIN(attempts.started_at) FROM session_admissions, attempts")
    assert started - queued < 1.0 * SLACK
    assert home.rows("SELECT COUNT(*), COUNT(DISTINCT receipt_id) FROM receipts") == [(MANY, MANY)]
    *entries, totals = lines(out)
    assert len({entry["id"] for entry in entries}) == len(entries) == MANY
    assert (totals["crashed"], totals["cancelled"]) == (1, MANY - 1)


def test_the_last_tasks_take_no_longer_than_the_first(home: Home) -> None:
    """Trivial tasks: the middle one of the last third takes about what that of the first third takes."""
    path = home.path.parent / "tasks.txt"
    path.write_text("".join(f"task {number}\n" for number in range(SOME)), encoding="utf-8")
    assert delegated(home, str(path), "-Q", worker="cat" if sys.platform != "win32" else "more").returncode == 0
    ended = [at for (at,) in home.rows("SELECT written_at FROM receipts ORDER BY written_at")]
    gaps = [after - before for before, after in zip(ended, ended[8:], strict=False)]
    third = len(gaps) // 3
    assert median(gaps[-third:]) < median(gaps[:third]) * 2, "other work on the machine is allowed for"
