"""What a program's end and its output mean, without a program: exits, texts, JSON, schemas, limits."""

import json
import os
from typing import Any

import pytest

from fanjoin.agent_proc.capture import Capture
from fanjoin.agent_proc.worker_result import ended_badly, result
from fanjoin.ipc.messages import AgentTask, Outcome
from fanjoin.ipc.settings import Worker


def captured(data: bytes, limit: int = 1 << 16) -> Capture:
    """Return what is kept of an output."""
    readable, writable = os.pipe()
    with open(writable, "wb") as file:
        capture = Capture(open(readable, "rb", buffering=0), limit)  # noqa: SIM115 - it closes the stream at its end
        file.write(data)
    capture.settle()
    return capture


def outcome(data: bytes, *, limit: int = 1 << 16, schema: dict[str, Any] | None = None, **worker: str) -> Outcome:
    """Return the outcome of a program that ended well and printed this."""
    task = AgentTask(owner_id="d", session_id="s", text="goal", output_schema=schema)
    return result(captured(data, limit), Worker(command=("p",), **worker), task)  # type: ignore[arg-type]


def test_text_is_taken_without_the_space_around_it() -> None:
    """The rest is left as it is; bytes that are no UTF-8 are replaced."""
    assert outcome(b"\n two\n lines \n").text == "two\n lines"
    assert outcome(b"caf\xe9").text == "caf\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("data", [b"", b" \n\t\n"])
def test_nothing_printed_is_no_result(data: bytes) -> None:
    """Whatever the exit code says."""
    end = outcome(data)
    assert (end.status, end.reason, end.exit_code) == ("crashed", "no_result", 0)


def test_an_object_is_read_by_its_key() -> None:
    """The member may be a text or any value; the last line may hold it; a line separator in a text ends no line."""
    assert outcome(b'{"result": "yes", "cost": 1}', output="json").text == "yes"
    assert outcome(b'{"answer": {"n": 1}}', output="json", result_key="answer").text == '{"n":1}'
    events = json.dumps({"type": "start"}) + "\n" + json.dumps({"result": "a\u2028b"}, ensure_ascii=False) + "\n"
    assert outcome(events.encode(), output="last-line-json").text == "a\u2028b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no json", "is not JSON"),
        ("[1]", "not an object"),
        ('{"other": 1}', "no member 'result'"),
        ('{"result": null}', "no member 'result'"),
        ('{"result": "x", "is_error": true}', "reports an error"),
        ('{"result": "x", "error": {"message": "quota"}}', "quota"),
    ],
)
def test_an_output_that_is_not_what_it_should_be_is_a_failure(text: str, said: str) -> None:
    """Never completed; what was printed is kept."""
    end = outcome(text.encode(), output="json")
    assert (end.status, end.reason, end.partial_text) == ("failed", "invalid_response", text)
    assert said in end.message


def test_an_empty_member_is_no_result() -> None:
    """The program ended well and has nothing to say."""
    assert outcome(b'{"result": "  "}', output="json").reason == "no_result"


def test_an_object_that_was_cut_is_not_guessed() -> None:
    """More than is kept of one object is a failure; a last line is still whole."""
    data = json.dumps({"result": "x" * 200_000}).encode()
    assert outcome(data, limit=1000, output="json").reason == "invalid_response"
    assert outcome(b"x" * 200_000 + b'\n{"result": "end"}', limit=1000, output="last-line-json").text == "end"


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_a_task_with_a_schema_gets_an_object_of_it() -> None:
    """From a text, a fenced piece of one, or the member."""
    assert outcome(b'{"n": 1}', schema=SCHEMA).output == {"n": 1}
    assert outcome(b'Here:\n```json\n{"n": 1}\n```', schema=SCHEMA).output == {"n": 1}
    assert outcome(b'{"result": "{\\"n\\": 1}"}', schema=SCHEMA, output="json").output == {"n": 1}
    assert outcome(b'{"result": {"n": 1}}', schema=SCHEMA, output="json").output == {"n": 1}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("no object", "text"),
        ("[1]", "text"),
        ("{}", "text"),
        ('{"n": "one"}', "text"),
        ('{"result": {"n": "one"}}', "json"),
        ('{"result": "no object"}', "json"),
    ],
)
def test_what_is_not_of_the_schema_is_a_failure(text: str, form: str) -> None:
    """The program did print something, so that is kept; it has not completed."""
    end = outcome(text.encode(), schema=SCHEMA, output=form)
    assert (end.status, end.reason, end.partial_text, end.output) == ("failed", "schema_invalid", text, None)


def test_a_capture_keeps_beginning_and_end() -> None:
    """And says how much is missing between."""
    capture = captured(b"a" * 600 + b"b" * 100_000 + b"c" * 600, 1000)
    text = capture.text()
    assert text.startswith("a" * 500)
    assert text.endswith("c" * 500)
    assert capture.size == 101_200
    assert f"[... {capture.left_out} bytes left out ...]" in text
    assert len(text) < 70_000
    assert captured(b"whole", 1000).text() == "whole"


@pytest.mark.skipif(os.name == "nt", reason="there are no signals on Windows")
@pytest.mark.parametrize(
    ("code", "starved", "reason", "signal"),
    [
        (3, False, "exit_code", None),
        (-11, False, "signal", "SIGSEGV"),
        (-9, False, "killed", "SIGKILL"),
        (-9, True, "out_of_memory", "SIGKILL"),
    ],
)
def test_an_exit_is_explained(code: int, starved: bool, reason: str, signal: str | None) -> None:
    """With the program's last words, and what it had printed."""
    end = ended_badly(code, "so far", "the reason\n", starved=starved)
    assert (end.status, end.reason, end.exit_signal) == ("crashed", reason, signal)
    assert end.exit_code == (code if code > 0 else None)
    assert end.message.endswith("It last said: the reason")
    assert end.partial_text == "so far"
