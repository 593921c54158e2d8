"""Exit codes of a run (pure): how a turn ended, as a number that a script can act upon."""

from fanjoin.ipc.messages import JsonObject, TurnDone

COMPLETED = 0
FAILED = 1
USAGE = 2
NO_DELEGATE_COMPLETED = 4


def exit_code(done: TurnDone, *, fail_on_child_error: bool) -> int:
    """Return the exit code of a turn that nobody interrupted."""
    if done.status != "completed" or not done.answer or not done.recorded:
        return FAILED
    fates = [entry["status"] == "completed" for entry in done.results]
    if fates and (not any(fates) or (fail_on_child_error and not all(fates))):
        return NO_DELEGATE_COMPLETED
    return COMPLETED


def delegates_line(results: list[JsonObject]) -> str:
    """Return one line on how the delegates of a turn ended, such as ``5 of 6 delegates completed; ...``."""
    completed = sum(entry["status"] == "completed" for entry in results)
    others = [_fate(entry) for entry in results if entry["status"] != "completed"]
    return "; ".join([f"{completed} of {len(results)} delegates completed", *others])


def _fate(entry: JsonObject) -> str:
    end = entry.get("exit") or {}
    reason = entry["error"]["reason"]
    cause = end.get("signal") or (f"exit code {end['code']}" if end.get("code") is not None else "")
    return f"{entry['receipt_id']} {entry['status']} ({': '.join(filter(None, (reason, cause)))})"
