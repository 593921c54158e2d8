"""An agent with a real client and a server that follows a script: what the loop makes of what servers do."""

import json
import threading
from pathlib import Path
from typing import Any, ClassVar

import messages_forms
import msgspec
import pytest
import responses_forms
from agent_support import DONE, Answer, ModelServer, asks, drops, event, plain, refuses, says, serving, streams, task
from wire_support import Form, client_of

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.calls import read_arguments
from fanjoin.agent_proc.context import SHORT_CHARACTERS, shorten_oldest
from fanjoin.agent_proc.loop import MAX_FAILED_ROUNDS, Agent
from fanjoin.agent_proc.repair import repair
from fanjoin.agent_proc.reporter import Reporter
from fanjoin.agent_proc.tools import Toolbox
from fanjoin.agent_proc.transcript import Transcript
from fanjoin.ipc.messages import JsonObject, Outcome, Progress


class Look:
    """A tool whose result is as long as the model wants."""

    name = "look"
    schema: ClassVar[JsonObject] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}

    def run(self, arguments: JsonObject) -> str:
        """Return so many letters."""
        return "x" * int(arguments.get("at", 1))


class Run:
    """One agent from its task to its outcome, and what it sent."""

    def __init__(self, server: ModelServer, mode: str = "chat_completions", **fields: Any) -> None:
        self.sent: list[Progress] = []
        self.account = Account()
        self.client = client_of(server, mode, **fields)
        given = task(**{name: value for name, value in fields.items() if name != "reasoning_effort"})
        transcript = Transcript(given.transcript_path, "")
        reporter = Reporter(self._send, self.account, transcript, keeps_messages=True)
        self.outcome: Outcome = Agent(given, self.client, lambda _: {}, reporter, Toolbox([Look()])).run()
        transcript.close()

    def _send(self, kind: type[msgspec.Struct], **fields: Any) -> None:
        assert kind is Progress
        self.sent.append(Progress(run_id="r", attempt_id="a", **fields))

    @property
    def kept(self) -> list[JsonObject]:
        """The entries that are kept with the session."""
        return [entry for progress in self.sent for entry in progress.messages]


def end(*script: Answer, **fields: Any) -> tuple[Outcome, ModelServer]:
    """Run an agent against a script and return how it ended, and the server with its requests."""
    with serving(*script) as server:
        run = Run(server, **fields)
    run.client.close()
    return run.outcome, server


# --- reasons ---

REASONS: dict[str, tuple[Answer, int]] = {
    "rate_limit": (refuses(429, retry_after="0"), 3),
    "auth": (refuses(401), 1),
    "billing": (refuses(402), 1),
    "bad_request": (refuses(400), 1),
    "model_not_found": (refuses(404), 1),
    "context_overflow": (refuses(400, {"code": "context_length_exceeded"}), 1),
    "server_error": (refuses(500), 3),
    "network": (drops, 3),
    "invalid_response": (streams(b"data: {oops\n\n"), 3),
    "empty_response": (says(""), 2),
    "content_filter": (says("no", finish="content_filter"), 1),
    "max_iterations": (asks(("a", "look", {})), 4),
    "tool_error": (asks(("a", "look", "{")), MAX_FAILED_ROUNDS),
}


def test_every_reason_comes_out_of_a_real_exchange() -> None:
    """Each reason word of a model's failure, with as many requests as its rule allows and never more."""
    ended: dict[str, tuple[str, str, int]] = {}
    clients = []

    def run(reason: str) -> None:
        with serving(REASONS[reason][0]) as server:
            made = Run(server, max_steps=4 if reason == "max_iterations" else 50)
        clients.append(made.client)  # all share one pool of connections: none may close it for the others
        ended[reason] = (made.outcome.status, made.outcome.reason, len(server.bodies))

    threads = [threading.Thread(target=run, args=(reason,)) for reason in REASONS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for client in clients:
        client.close()
    assert ended == {reason: ("failed", reason, requests) for reason, (_, requests) in REASONS.items()}


# --- answers that are none ---


def test_thoughts_are_no_answer(tmp_path: Path) -> None:
    """A reply that only thinks fails after one call; what was thought is in the transcript, and nowhere else."""
    path = tmp_path / "t.jsonl"
    outcome, server = end(plain({"content": None, "reasoning_content": "42"}), transcript_path=str(path))
    assert (outcome.status, outcome.reason, outcome.text, outcome.partial_text) == (
        "failed",
        "empty_response",
        None,
        "",
    )
    assert len(server.bodies) == 1
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    told = next(line for line in lines if line["kind"] == "reasoning")
    assert (told["characters"], told["text"]) == (2, "42")


def test_thoughts_cut_by_their_length_are_tried_once_more() -> None:
    """When the limit of output went into thinking, the identical request is made once more."""
    outcome, server = end(streams(event({"reasoning": "hm"}), event({}, "length"), DONE))
    assert (outcome.reason, len(server.bodies)) == ("empty_response", 2)
    assert server.bodies[0] == server.bodies[1]


def test_work_before_an_empty_answer_is_kept() -> None:
    """Two tool calls and then nothing: failed (empty_response), with the trace of both."""
    outcome, _ = end(asks(("a", "look", {"at": 1})), asks(("b", "look", {"at": 2})), says(""))
    assert (outcome.status, outcome.reason) == ("failed", "empty_response")
    assert [(one.tool, one.ok) for one in outcome.trace] == [("look", True)] * 2


def test_a_cut_stream_repeats_the_identical_messages() -> None:
    """Nothing is appended for the text that had come; it is kept aside until there is an answer."""
    outcome, server = end(streams(event({"content": "half"})), says("whole"))
    assert (outcome.text, outcome.steps, outcome.partial_text) == ("whole", 1, "")
    assert server.bodies[0] == server.bodies[1]


@pytest.mark.parametrize("mode", ["anthropic_messages", "responses"])
def test_only_length_continues_in_every_format(mode: str) -> None:
    """An answer that hit the limit of output is asked to go on, whatever the format calls that."""
    cut = {
        "anthropic_messages": messages_forms.HELLO + messages_forms.STOP.replace(b"end_turn", b"max_tokens"),
        "responses": responses_forms.FORMS["cut by its length"].body,
    }[mode]
    whole = {
        "anthropic_messages": messages_forms.FORMS["plain"].body,
        "responses": responses_forms.FORMS["plain"].body,
    }[mode]
    outcome, server = end(Form(body=cut).answer, Form(body=whole).answer, mode=mode)
    assert (outcome.text, outcome.steps) == ("hellohello", 2)
    said = json.dumps(server.bodies[1]["messages" if mode == "anthropic_messages" else "input"])
    assert "hello" in said
    assert "Go on exactly where it ended" in said


# --- thoughts that have to be given back ---


def test_thoughts_go_back_to_the_messages_api() -> None:
    """With its tool call, a thinking block goes back as it came, signature included, and is not kept."""
    called = messages_forms.START + messages_forms.THINKING + messages_forms.CALL
    called += messages_forms.STOP.replace(b"end_turn", b"tool_use")
    with serving(Form(body=called).answer, Form(body=messages_forms.FORMS["plain"].body).answer) as server:
        run = Run(server, "anthropic_messages", reasoning_effort="low")
    run.client.close()
    assert run.outcome.text == "hello"
    blocks = server.bodies[1]["messages"][1]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "hm so", "signature": "c2ln"}
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert "hm so" not in json.dumps(run.kept)


def test_thoughts_go_back_to_the_responses_api() -> None:
    """With its tool call, an encrypted reasoning item goes back before it, and is not kept."""
    called = responses_forms.CREATED + responses_forms._completed(responses_forms.REASONING, responses_forms.CALL)
    with serving(Form(body=called).answer, Form(body=responses_forms.FORMS["plain"].body).answer) as server:
        run = Run(server, "responses", reasoning_effort="low")
    run.client.close()
    assert run.outcome.text == "hello"
    items = server.bodies[1]["input"][1:]
    assert [item["type"] for item in items] == ["reasoning", "function_call", "function_call_output"]
    assert items[0]["encrypted_content"] == "Zm9v"
    assert "Zm9v" not in json.dumps(run.kept)


BACK: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any], dict[str, Any]]] = {
    "DeepSeek": (
        ({"reasoning_content": "hm "}, {"reasoning_content": "so"}),
        {"reasoning_content": "hm so"},
        {},
    ),
    "DeepSeek that did not think": (({"reasoning_content": ""},), {"reasoning_content": ""}, {}),
    "OpenRouter": (
        (
            {"reasoning": "hm ", "reasoning_details": [{"type": "reasoning.text", "text": "hm ", "index": 0}]},
            {"reasoning": "so", "reasoning_details": [{"type": "reasoning.text", "text": "so", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "c2ln", "text": None, "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "Zm9v", "index": 1}]},
        ),
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "hm so", "signature": "c2ln", "index": 0},
                {"type": "reasoning.encrypted", "data": "Zm9v", "index": 1},
            ]
        },
        {},
    ),
    "Gemini": ((), {}, {"extra_content": {"google": {"thought_signature": "c2ln"}}}),
    "a server that names it otherwise": (({"reasoning": "hm"},), {}, {}),
}


@pytest.mark.parametrize("case", BACK)
def test_thoughts_go_back_to_the_chat_completions_api(case: str) -> None:
    """A server gets back what it sent itself, at the place where it sent it, and nothing of it is kept."""
    deltas, fields, extra = BACK[case]
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    called = [*map(event, deltas), event({"tool_calls": [call | extra]}), event({}, "tool_calls"), DONE]
    with serving(streams(*called), says("hello")) as server:
        run = Run(server)
    run.client.close()
    assert run.outcome.text == "hello"
    del call["index"]
    back = {"role": "assistant", "content": None, **fields, "tool_calls": [call | extra]}
    assert server.bodies[1]["messages"][2] == back
    kept = json.dumps(run.kept)
    assert not any(mark in kept for mark in ("hm", "c2ln", "Zm9v", "thoughts"))


# --- a context that is too small ---


def _fits(limit: int, *script: Answer) -> Answer:
    """Follow the script, but refuse requests that are longer than the context."""
    steps = list(script)

    def answer(handler: Any) -> None:
        body = handler.server.bodies[-1]
        if len(json.dumps(body["messages"])) > limit:
            refuses(400, {"code": "context_length_exceeded", "message": "too long"})(handler)
        else:
            (steps.pop(0) if len(steps) > 1 else steps[0])(handler)

    return answer


def test_the_oldest_tool_results_give_way_first(tmp_path: Path) -> None:
    """When it gets too long, old results are shortened and the work goes on; the newest one stays whole."""
    calls = [asks((f"c{number}", "look", {"at": 8000})) for number in range(4)]
    path = tmp_path / "t.jsonl"
    with serving(_fits(26_000, *calls, says("done"))) as server:
        run = Run(server, transcript_path=str(path))
    run.client.close()
    assert (run.outcome.status, run.outcome.text) == ("completed", "done")
    results = [entry["content"] for entry in server.bodies[-1]["messages"] if entry["role"] == "tool"]
    assert [len(result) <= SHORT_CHARACTERS for result in results] == [True, True, False, False]
    assert "left out" in results[0]
    assert all(len(entry["content"]) == 8000 for entry in run.kept if entry["role"] == "tool")
    kinds = [json.loads(line)["kind"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert "shortened" in kinds


def test_what_cannot_be_shortened_ends_the_turn() -> None:
    """When nothing more can give way the turn ends ``context_overflow``, after few requests."""
    outcome, server = end(_fits(5000, *[asks(("c", "look", {"at": 3000}))] * 9), text="y" * 3000)
    assert (outcome.status, outcome.reason) == ("failed", "context_overflow")
    assert len(server.bodies) <= 6


def test_shortening_always_comes_to_an_end() -> None:
    """Whatever results hold, each round has fewer long ones; objects stay JSON; entries themselves are not changed."""
    contents = ["a" * 9000, json.dumps({"results": [{"summary": "s" * 9000}]}), "\0" * 9000, "[]", None]
    contents.append(json.dumps({"n": list(range(5000))}))
    entries = [{"role": "tool", "tool_call_id": str(at), "content": content} for at, content in enumerate(contents)]
    messages = [{"role": "user", "content": "u" * 9000}, *entries]
    rounds = 0
    while shorten_oldest(messages):
        rounds += 1
        assert rounds < 10
    assert rounds > 1
    assert [entry["content"] for entry in entries] == contents
    for before, after in zip(entries, messages[1:], strict=True):
        if before["content"] and before["content"].startswith("{"):
            json.loads(str(after["content"]))
    assert messages[0]["content"] == "u" * 9000


# --- tools ---


def test_a_server_without_tools_is_gone_on_with(tmp_path: Path) -> None:
    """The answer counts, says that it was made without tools, and the supervisor hears what was refused."""
    path = tmp_path / "t.jsonl"
    with serving(refuses(400, "m does not support tools"), says("ok")) as server:
        run = Run(server, transcript_path=str(path))
    run.client.close()
    assert (run.outcome.status, run.outcome.text, run.outcome.steps) == ("completed", "ok", 1)
    assert "without tools" in run.outcome.message
    assert [one.refused for one in run.sent if one.refused] == [("tools",)]


REPAIRED = {
    '{"at": 1,}': {"at": 1},
    '{"at": [1, 2, ], "b": {"c": 3,},\n}': {"at": [1, 2], "b": {"c": 3}},
    '```json\n{"at": 1}\n```': {"at": 1},
    'Here it is: {"at": 1}. Done.': {"at": 1},
    'So: {"t": "a,} b",}': {"t": "a,} b"},
}
NOT_REPAIRED = [
    '{"at": 1',
    '{"at": 1}{"at": 2}',
    '{"at": 1} or {"at": 2}',
    '[{"at": 1,}]',
    "{'at': 1}",
    '{"at": NaN,}',
    "{at: 1}",
    "nothing",
    "}{",
    '{"at": 1,,}',
]


@pytest.mark.parametrize("text", REPAIRED)
def test_what_is_unambiguous_is_repaired(text: str) -> None:
    """Trailing commas, prose and fences around one object: the tool runs, and history holds strict JSON."""
    assert read_arguments(text) == REPAIRED[text]
    outcome, server = end(asks(("a", "look", text)), says("ok"))
    assert outcome.trace[0].tool == "look"
    sent_back = server.bodies[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent_back) == REPAIRED[text]


@pytest.mark.parametrize("text", NOT_REPAIRED)
def test_what_is_ambiguous_is_an_error_for_the_model(text: str) -> None:
    """Nothing is guessed or completed: the model reads a JSON error and the work goes on."""
    assert repair(text) is None
    outcome, server = end(asks(("a", "look", text)), says("ok"))
    assert (outcome.status, outcome.trace[0].ok) == ("completed", False)
    assert json.loads(server.bodies[1]["messages"][-1]["content"])["error"]["reason"] == "invalid_arguments"
