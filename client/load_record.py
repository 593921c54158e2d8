"""What is on record of the delegates of a load test, and the check that nothing is missing and nothing is left."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fanjoin.client.load_stats import Delegation, FanOut
from fanjoin.client.records import open_readonly
from fanjoin.ipc.messages import Usage
from fanjoin.ipc.platform import process_start

MARK = re.compile(r"load-(\d+)-(\d+)\.")
_SQL = """
    SELECT d.goal, d.receipt_id, d.transcript_path, a.intended_at, r.written_at,
        r.status, r.reason, r.steps, r.usage_total
    FROM delegations AS d
    LEFT JOIN attempts AS a ON a.receipt_id = d.receipt_id AND a.number = 1
    LEFT JOIN receipts AS r ON r.receipt_id = d.receipt_id
    ORDER BY d.rowid
"""
_TAIL_BYTES = 65_536


def read_delegations(home: Path, fan_outs: list[FanOut], committed: Mapping[str, float]) -> list[Delegation]:
    """Return every delegate of a home.

    Args:
        home: the home that the fan-outs ran under.
        fan_outs: whose marks the goals carry.
        committed: when each receipt was committed, as far as that was told; of others it is known when it was decided.
    """
    due = {fan_out.number: fan_out.due for fan_out in fan_outs}
    with open_readonly(home) as connection:
        rows = connection.execute(_SQL).fetchall() if connection is not None else []
    return [_delegation(row, due, committed) for row in rows]


def _delegation(row: tuple[object, ...], due: dict[int, float], committed: Mapping[str, float]) -> Delegation:
    goal, receipt_id, transcript, launched, written, status, reason, steps, used = row
    found = MARK.search(str(goal))
    join = int(found[1]) if found else -1
    usage = msgspec.json.decode(str(used), type=Usage) if used else Usage()
    return Delegation(
        mark=f"{found[1]}-{found[2]}" if found else "",
        join=join,
        due=due.get(join, 0.0),
        launched=_number(launched),
        result=_end_of(Path(str(transcript))),
        committed=committed.get(str(receipt_id), _number(written)),
        status=str(status or ""),
        reason=str(reason or ""),
        steps=int(_number(steps)),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _end_of(transcript: Path) -> float:
    """Return when an agent wrote that it had ended, 0.0 when it did not."""
    try:
        with transcript.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            last = json.loads(file.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return float(last["at"]) if last.get("kind") == "end" else 0.0


def processes(home: Path) -> set[int]:
    """Return the process numbers of all delegates."""
    with open_readonly(home) as connection:
        rows = connection.execute("SELECT pid FROM attempts WHERE pid IS NOT NULL") if connection else ()
        return {row[0] for row in rows}


def unfinished(home: Path) -> int:
    """Return how many attempts have no recorded end."""
    with open_readonly(home) as connection:
        if connection is None:
            return 0
        return int(connection.execute("SELECT COUNT(*) FROM attempts WHERE ended_at IS NULL").fetchone()[0])


def check(home: Path, expected: int) -> list[str]:
    """Return what is wrong after the end: each delegation has one receipt, and no process of it lives.

    Args:
        home: the home that the fan-outs ran under, its supervisor gone.
        expected: how many delegations were submitted.
    """
    with open_readonly(home) as connection:
        if connection is None:
            return ["nothing was recorded"]
        count = "SELECT COUNT(*) FROM "
        accepted, receipts = (connection.execute(count + name).fetchone()[0] for name in ("delegations", "receipts"))
        marks = connection.execute("SELECT pid, process_start FROM attempts WHERE pid IS NOT NULL").fetchall()
    wrong = [f"{accepted} of {expected} delegations were accepted"] * (accepted != expected)
    wrong += [f"{accepted} delegations have {receipts} receipts"] * (accepted != receipts)
    left = [pid for pid, mark in marks if mark and process_start(pid) == mark]
    wrong += [f"processes are left: {', '.join(map(str, left))}"] * bool(left)
    open_attempts = unfinished(home)
    return wrong + [f"{open_attempts} attempts have no recorded end"] * bool(open_attempts)
