"""What is told of a delegate: its entry in the joined result, and the receipt that keeps it."""

from pathlib import Path

import msgspec

from fanjoin.ipc.messages import DirectTask, JsonObject, Outcome, TurnDone, Usage
from fanjoin.ipc.paths import transcript_file
from fanjoin.supervisor.core.budget import fitted
from fanjoin.supervisor.core.cost import costs
from fanjoin.supervisor.core.model import Call, Delegate, Join, Turn
from fanjoin.supervisor.questions import StoredTurn
from fanjoin.supervisor.records import ReceiptWritten

RETRYABLE = frozenset({"rate_limit", "server_error", "network", "owner_lost", "spawn_failed"})
"""Reasons after which the same submission may well succeed later."""


def entry(delegate: Delegate, outcome: Outcome, now: float) -> JsonObject:
    """Return a delegate's entry: one JSON object, the same for the parent, the viewer and the receipt."""
    completed = outcome.status == "completed"
    started = delegate.running_since
    told: JsonObject = {
        "task_index": delegate.index,
        "status": outcome.status,
        "ok": completed,
        "summary": outcome.text if completed else None,
        "exit": _exit(delegate),
        "receipt_id": delegate.work_id,
        "attempts": delegate.attempts,
        "model": delegate.endpoint.model,
        "steps": outcome.steps,
        "duration_seconds": round(now - started, 3) if started is not None else 0.0,
        "queued_seconds": round((started if started is not None else now) - delegate.queued_at, 3),
        "usage": builtins(delegate.usage),
        "usage_total": builtins(delegate.usage_total()),
        "tool_trace": msgspec.to_builtins(outcome.trace),
        "transcript": delegate.transcript,
    }
    if completed and outcome.message:
        told["note"] = outcome.message
    if not completed:
        told["error"] = {"reason": outcome.reason, "message": outcome.message}
        told["partial_text"] = outcome.partial_text
    if delegate.spec.output_schema is not None and completed:
        told["output"] = outcome.output
    if prices := delegate.turn.submit.settings.prices:
        told |= costs(delegate, prices)
    if outcome.summary_truncated:
        told |= {"summary_truncated": True, "summary_path": outcome.summary_path}
    return {"id": delegate.spec.task_id, **told} if isinstance(delegate.spec, DirectTask) else told


def _exit(delegate: Delegate) -> JsonObject | None:
    return {"code": delegate.end.code, "signal": delegate.end.signal} if delegate.end else None


def receipt(delegate: Delegate, outcome: Outcome, wall: float) -> ReceiptWritten:
    """Return the record of a delegate's end."""
    turn = delegate.turn
    return ReceiptWritten(
        receipt_id=delegate.work_id,
        delegation_id=delegate.call.delegation_id,
        session_id=turn.session_id,
        admission_id=turn.admission_id,
        status=outcome.status,
        reason=outcome.reason,
        message=outcome.message,
        summary=outcome.text if outcome.status == "completed" else None,
        partial_text=outcome.partial_text,
        usage=delegate.usage,
        usage_total=delegate.usage_total(),
        steps=outcome.steps,
        attempts=delegate.attempts,
        trace=outcome.trace,
        entry=delegate.entry,
        at=wall,
    )


def call_answer(call: Call, now: float) -> str:
    """Return the text of a call's tool message: its joined result, or its refusal."""
    if call.refusal:
        return call.refusal
    return dispatched(call) if call.detached else joined(call, now)


def dispatched(call: Call) -> str:
    """Return the answer to a call whose delegates run in the background."""
    return msgspec.json.encode(
        {
            "status": "dispatched",
            "delegation_id": call.delegation_id,
            "count": len(call.delegates),
            "goals": [delegate.spec.goal for delegate in call.delegates],
            "transcripts": [delegate.transcript for delegate in call.delegates],
        }
    ).decode()


def joined(call: Call, now: float) -> str:
    """Return the joined result of a call, whose delegates have all ended."""
    return msgspec.json.encode(
        {
            "results": fitted(call.delegates, call.result_chars),
            "total_duration_seconds": round(now - call.started_at, 3),
            "delegation_id": call.delegation_id,
        }
    ).decode()


def join_answers(join: Join, now: float) -> list[tuple[str, str]]:
    """Return (tool_call_id, content) of every call of a join, in the order of the message."""
    if join.late:
        return [(call.delegation_id, told_later(call)) for call in join.calls]
    return [(call.tool_call_id, call_answer(call, now)) for call in join.calls]


def told_later(call: Call) -> str:
    """Return the user message that tells the result of a dispatched call."""
    return (
        f"The delegates of call {call.delegation_id}, which was dispatched earlier in this conversation, have ended. "
        f"This is their joined result:\n\n{call.result}"
    )


def turn_results(turn: Turn) -> list[JsonObject]:
    """Return the entries of every call of a turn, call by call in task order; those of detached ones come later."""
    if turn.detaches:
        return []
    return [delegate.entry for call in turn.calls for delegate in call.delegates if delegate.entry]


def stored_turn_done(turn: StoredTurn, outcome: JsonObject) -> TurnDone:
    """Return what a viewer is told of a turn that ended earlier."""
    completed = outcome.get("status") == "completed"
    reason = str(outcome.get("reason", ""))
    return TurnDone(
        session_id=turn.session_id,
        admission_id=turn.admission_id,
        status=str(outcome.get("status", "")),
        reason=reason,
        message=str(outcome.get("message", "")),
        answer=str(outcome.get("answer" if completed else "partial_text") or ""),
        retryable=reason in RETRYABLE,
        usage=msgspec.convert(outcome.get("usage", {}), Usage),
        usage_total=msgspec.convert(outcome.get("usage_total", {}), Usage),
        results=turn.results,
    )


def transcript_path(home: Path, work_id: str) -> str:
    """Return where an agent writes its transcript, as text."""
    return str(transcript_file(home, work_id))


def builtins(usage: Usage) -> JsonObject:
    """Return token counts as JSON."""
    counts: JsonObject = msgspec.to_builtins(usage)
    return counts


def turn_done(turn: Turn, outcome: Outcome) -> TurnDone:
    """Return what a viewer is told when its turn is over."""
    return TurnDone(
        session_id=turn.session_id,
        admission_id=turn.admission_id,
        status=outcome.status,
        reason=outcome.reason,
        message="\n".join(filter(None, (outcome.message, turn.unrecorded))),
        answer=(outcome.text if outcome.status == "completed" else outcome.partial_text) or "",
        retryable=outcome.reason in RETRYABLE,
        usage=turn.usage,
        usage_total=turn.usage_total(),
        results=turn_results(turn),
        cost=costs(turn, prices) if (prices := turn.submit.settings.prices) else None,
        recorded=not turn.unrecorded,
        storage_error=turn.unrecorded,
    )
