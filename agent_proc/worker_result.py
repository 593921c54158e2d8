"""What the end of a program means: its exit decides first, then what it printed. Nothing here does anything."""

from fanjoin.agent_proc import jsontext
from fanjoin.agent_proc.capture import Capture
from fanjoin.agent_proc.structured import judge, judge_value
from fanjoin.ipc import platform
from fanjoin.ipc.messages import AgentTask, JsonObject, Outcome
from fanjoin.ipc.settings import Worker
from fanjoin.ipc.text import clean, clip

_LAST_WORDS = 500
_PARTIAL = 24_000


class _UnreadableError(ValueError):
    """The output is not what it was said to be."""


def ended_badly(code: int, output: str, errors: str, *, starved: bool) -> Outcome:
    """Return the outcome of a program that ended by itself with an exit code or by a signal.

    Args:
        code: its exit code, negative for a signal.
        output: what it had printed.
        errors: what it had said on standard error.
        starved: whether the system ended processes for memory meanwhile.
    """
    name = platform.signal_name(-code) if code < 0 else None
    reason = "exit_code"
    message = f"The program ended with exit code {code}."
    if name == "SIGKILL":
        reason = "out_of_memory" if starved else "killed"
        message = "The system ended the program: no memory was left." if starved else "The program was killed: SIGKILL."
    elif name:
        reason, message = "signal", f"The program died of {name}."
    said = errors.strip()
    return Outcome(
        status="crashed",
        reason=reason,
        message=f"{message} It last said: {said[-_LAST_WORDS:]}" if said else message,
        partial_text=output[-_PARTIAL:],
        exit_code=None if name else code,
        exit_signal=name,
    )


def result(output: Capture, worker: Worker, task: AgentTask) -> Outcome:
    """Return the outcome of a program that ended well, by what it printed."""
    text = output.text().strip()
    if not text:
        message = "The program ended with exit code 0 and printed nothing."
        return Outcome(status="crashed", reason="no_result", message=message, exit_code=0)
    try:
        value = text if worker.output == "text" else _member(_document(output, worker.output), worker.result_key)
    except _UnreadableError as error:
        return _failed("invalid_response", str(error), text)
    summary = value if isinstance(value, str) else jsontext.write(value)
    if not summary.strip():
        return Outcome(status="crashed", reason="no_result", message="The program's result is empty.", exit_code=0)
    if task.output_schema is None:
        return Outcome(status="completed", text=clean(summary))
    judged = judge(value, task.output_schema) if isinstance(value, str) else judge_value(value, task.output_schema)
    if judged.problem:
        return _failed("schema_invalid", f"The program's result does not fit the output_schema. {judged.problem}", text)
    return Outcome(status="completed", text=clean(summary), output=judged.output)


def _failed(reason: str, message: str, printed: str) -> Outcome:
    return Outcome(status="failed", reason=reason, message=message, partial_text=printed[-_PARTIAL:])


def _document(output: Capture, form: str) -> JsonObject:
    """Return the JSON object that was printed: alone, or as the last line."""
    text = output.text().strip()
    if form == "last-line-json":
        text = text.rpartition("\n")[2]
    elif output.left_out:
        raise _UnreadableError(
            f"The program printed {output.size} bytes, which is more than is read of one JSON object."
        )
    try:
        value = jsontext.read(text)
    except ValueError as error:
        raise _UnreadableError(f"The program's output is not JSON ({error}): {clip(text, 200)}") from error
    if not isinstance(value, dict):
        raise _UnreadableError(f"The program's output is JSON, but not an object: {clip(text, 200)}")
    return value


def _member(document: JsonObject, key: str) -> object:
    """Return the result in a document; one that says itself that it is an error is none."""
    if document.get("is_error") is True or document.get("error"):
        told = document.get("error") or document.get(key) or "no reason is given"
        raise _UnreadableError(f"The program reports an error: {clip(jsontext.write(told), 500)}")
    if document.get(key) is None:
        raise _UnreadableError(f"The program's JSON has no member {key!r} (--result-key).")
    return document[key]
