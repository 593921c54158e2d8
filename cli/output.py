"""What a run shows: the answer alone on standard output, or JSON; everything else on standard error."""

from collections.abc import Callable
from itertools import pairwise

import msgspec

from fanjoin.cli import streams
from fanjoin.cli.exit_codes import USAGE, delegates_line
from fanjoin.ipc.messages import Accepted, Event, JsonObject, TurnDone

Told = Accepted | Event
_MACHINE_FORMATS = ("json", "stream-json")


def result_object(done: TurnDone, exit_code: int) -> JsonObject:
    """Return the object that machine formats end with."""
    return {
        "ok": exit_code == 0,
        "exit_code": exit_code,
        "retryable": done.retryable,
        "answer": done.answer,
        "session_id": done.session_id,
        "admission_id": done.admission_id,
        "status": done.status,
        "error": _error(done),
        "usage": msgspec.to_builtins(done.usage_total),
        "results": done.results,
    }


def _error(done: TurnDone) -> JsonObject | None:
    if done.status != "completed":
        return {"reason": done.reason, "message": done.message}
    if not done.recorded:
        return {"reason": "storage_unavailable", "message": done.storage_error}
    if not done.answer:
        return {"reason": "empty_response", "message": "The answer is empty."}
    return None


def end_early(arguments: list[str], message: str, exit_code: int) -> None:
    """Say why a run ended before its flags were understood; a machine format among them gets its object."""
    streams.complain(message)
    form = _asked_format(arguments)
    if form in _MACHINE_FORMATS:
        reason = "usage" if exit_code == USAGE else "failed"
        done = TurnDone(session_id="", admission_id="", status="failed", reason=reason, message=message)
        JsonOutput(stream=form == "stream-json").failed(result_object(done, exit_code))


def _asked_format(arguments: list[str]) -> str:
    """Return the last ``--format`` among arguments that could not be parsed."""
    words = [word for argument in arguments for word in _words(argument)]
    return next((value for name, value in reversed(list(pairwise(words))) if name == "--format"), "text")


def _words(argument: str) -> list[str]:
    return argument.split("=", 1) if argument.startswith("--format=") else [argument]


def _tell_session(accepted: Accepted) -> None:
    streams.complain(f"session: {accepted.session_id}")


def _tell_verdict(result: JsonObject) -> None:
    """Say on standard error how delegates ended, and why there is no answer."""
    if result["results"]:
        streams.complain(delegates_line(result["results"]))
    error = result["error"]
    if error is not None:
        streams.complain(f"{result['status']} ({error['reason']}): {error['message']}")


class TextOutput:
    """The answer on standard output; progress on standard error unless quiet."""

    def __init__(self, *, quiet: bool, given_up: Callable[[], bool]) -> None:
        self.broken = False
        self._quiet = quiet
        self._given_up = given_up
        self._goals: dict[str, str] = {}

    def told(self, message: Told) -> None:
        """Show where the session is kept, and how delegates go."""
        if isinstance(message, Accepted):
            _tell_session(message)
        elif not self._quiet:
            self._progress(message)

    def _progress(self, event: Event) -> None:
        match event.name:
            case "delegation.accepted":
                delegates = event.data["delegates"]
                self._goals |= {one["receipt_id"]: " ".join(one["goal"].split())[:60] for one in delegates}
                streams.complain(f"{event.data['delegation_id']}: {len(delegates)} delegates")
            case "delegation.started":
                receipt_id = event.data["receipt_id"]
                streams.complain(f"  {receipt_id} started: {self._goals.get(receipt_id, '')}")
            case "delegation.completed":
                entry = event.data["entry"]
                reason = f" ({entry['error']['reason']})" if "error" in entry else ""
                streams.complain(f"  {entry['receipt_id']} {entry['status']}{reason} {entry['duration_seconds']:.1f} s")

    def done(self, result: JsonObject) -> None:
        """Print the answer, or why there is none."""
        _tell_verdict(result)
        error = result["error"]
        if result["answer"] and (error is None or error["reason"] == "storage_unavailable"):
            self.broken = not streams.write_line(result["answer"], self._given_up)

    def failed(self, result: JsonObject) -> None:
        """Show nothing more: the message has gone to standard error."""


class JsonOutput:
    """One object at the end; with ``stream`` each event before it, one JSON object per line."""

    def __init__(self, *, stream: bool, given_up: Callable[[], bool] = lambda: False) -> None:
        self._stream = stream
        self._given_up = given_up
        self.broken = False

    def told(self, message: Told) -> None:
        """Write an event."""
        if isinstance(message, Accepted):
            _tell_session(message)
        if self._stream:
            self._write(_event_object(message))

    def done(self, result: JsonObject) -> None:
        """Write the result; people get the verdict on standard error in every format."""
        _tell_verdict(result)
        self.failed(result)

    def failed(self, result: JsonObject) -> None:
        """Write the result of a run whose end has been told already."""
        self._write({"type": "result", **result} if self._stream else result)

    def _write(self, value: JsonObject) -> None:
        if not self.broken:
            self.broken = not streams.write_line(msgspec.json.encode(value).decode(), self._given_up)


def _event_object(message: Told) -> JsonObject:
    if isinstance(message, Accepted):
        return {
            "type": "turn.accepted",
            "session_id": message.session_id,
            "admission_id": message.admission_id,
        }
    return {
        "type": message.name,
        "session_id": message.session_id,
        "admission_id": message.admission_id,
        "sequence": message.sequence,
        **message.data,
    }
