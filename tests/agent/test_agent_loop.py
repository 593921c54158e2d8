"""The agent's rules, with a model that follows a script and no process, socket or clock."""

import json
from typing import Any, ClassVar

import msgspec
import pytest
from agent_support import task

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.loop import MAX_FAILED_ROUNDS, Agent
from fanjoin.agent_proc.provider.client import OnDelta
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.reply import Reply, ToolCall
from fanjoin.agent_proc.reporter import Reporter
from fanjoin.agent_proc.tools import Toolbox
from fanjoin.agent_proc.transcript import Transcript
from fanjoin.ipc.messages import AgentTask, CallRequest, JsonObject, Outcome, Progress, Usage
from fanjoin.ipc.settings import DelegationLimits


class Model:
    """Answers by its script; the last answer repeats."""

    def __init__(self, *script: Reply | ProviderError) -> None:
        self.script = list(script)
        self.asked: list[list[JsonObject]] = []
        self.tools: list[JsonObject] = []

    def complete(self, messages: list[JsonObject], tools: list[JsonObject], on_delta: OnDelta) -> Reply:
        """Record what is asked and answer."""
        self.asked.append(json.loads(json.dumps(messages)))
        self.tools = tools
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, ProviderError):
            on_delta("partly")
            raise answer
        on_delta(answer.text)
        return msgspec.json.decode(msgspec.json.encode(answer), type=Reply)

    def close(self) -> None:
        """Have nothing to close."""


class Echo:
    """A tool that returns its argument, or fails as told."""

    name = "echo"
    schema: ClassVar[JsonObject] = {"type": "function", "function": {"name": "echo"}}

    def run(self, arguments: JsonObject) -> str:
        """Return the text."""
        if arguments.get("fail") == "crash":
            raise RuntimeError("broken \ud800 tool")
        if "fail" in arguments:
            raise ToolError("not_today", "no")
        return str(arguments["text"])


class Run:
    """One run of an agent, and what it sent."""

    def __init__(self, given: AgentTask, model: Model) -> None:
        self.sent: list[Any] = []
        self.joins: list[list[CallRequest]] = []
        self.model = model
        account = Account()
        reporter = Reporter(self.send, account, Transcript("", ""), keeps_messages=given.depth == 0)
        self.agent = Agent(given, model, self.join, reporter, Toolbox([Echo()]))

    def send(self, kind: type[msgspec.Struct], **fields: object) -> None:
        """Record a message."""
        self.sent.append(kind(run_id="r", attempt_id="a", **fields))

    def join(self, calls: list[CallRequest]) -> dict[str, str]:
        """Answer each call at once."""
        self.joins.append(calls)
        return {call.tool_call_id: json.dumps({"results": [], "error": None}) for call in calls}

    @property
    def kept(self) -> list[JsonObject]:
        """The entries that are kept with the session."""
        return [entry for message in self.sent if isinstance(message, Progress) for entry in message.messages]


def run(*script: Reply | ProviderError, **fields: Any) -> tuple[Outcome, Run]:
    """Run an agent to its end."""
    agent = Run(task(**fields), Model(*script))
    return agent.agent.run(), agent


def calls(*given: tuple[str, str, object], text: str = "") -> Reply:
    """Return a reply that calls tools: id, name, arguments."""
    made = [
        ToolCall(id=call_id, name=name, arguments=value if isinstance(value, str) else json.dumps(value))
        for call_id, name, value in given
    ]
    return Reply(text=text, tool_calls=made, finish_reason="tool_calls", usage=Usage(input_tokens=10, output_tokens=1))


def says(text: str, finish: str = "stop") -> Reply:
    """Return a reply with a text."""
    return Reply(text=text, finish_reason=finish, usage=Usage(input_tokens=10, output_tokens=5))


def test_tools_run_until_there_is_an_answer() -> None:
    """A tool's answer goes back to the model, which then answers; all of it is kept and counted."""
    outcome, made = run(calls(("a", "echo", {"text": "hi"}), text="let me see"), says("done"))
    assert (outcome.status, outcome.text, outcome.steps) == ("completed", "done", 2)
    assert outcome.usage == Usage(input_tokens=20, output_tokens=6)
    assert [(entry.tool, entry.ok, entry.preview) for entry in outcome.trace] == [("echo", True, '{"text": "hi"}')]
    assistant, answer, final = made.kept
    assert assistant["content"] == "let me see"
    assert answer == {"role": "tool", "tool_call_id": "a", "content": "hi"}
    assert final == {"role": "assistant", "content": "done"}
    assert made.model.asked[1][-2:] == [assistant, answer]


def test_other_tools_run_before_delegation() -> None:
    """Other tools of a message run first; all its delegation is one join; answers keep the order of the calls."""
    reply = calls(
        ("a", "delegate_task", {"goal": "x"}), ("b", "echo", {"text": "t"}), ("c", "delegate_task", {"goal": "y"})
    )
    outcome, made = run(reply, says("done"), toolsets=("delegation",))
    assert [[call.tool_call_id for call in join] for join in made.joins] == [["a", "c"]]
    assert [entry.tool for entry in outcome.trace] == ["echo", "delegate_task", "delegate_task"]
    assert [entry.get("tool_call_id") for entry in made.kept] == [None, "a", "b", "c", None]


def test_only_bad_calls_are_no_join() -> None:
    """When every call is malformed the supervisor hears of none."""
    _, made = run(calls(("a", "delegate_task", "null")), says("done"), toolsets=("delegation",))
    assert made.joins == []
    assert json.loads(made.kept[1]["content"])["error"]["reason"] == "invalid_arguments"


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("nothing", "{}", "unknown_tool"),
        ("", "{}", "unknown_tool"),
        ("delegate_task", '{"goal": "x"}', "unknown_tool"),
        ("echo", "{", "invalid_arguments"),
        ("echo", '{"fail": 1}', "not_today"),
        ("echo", '{"fail": "crash"}', "tool_error"),
        ("echo", "{}", "tool_error"),
    ],
)
def test_a_bad_call_is_answered_with_an_error(name: str, arguments: str, reason: str) -> None:
    """Whatever is wrong with a call, the model reads a JSON error and the work goes on."""
    outcome, made = run(calls(("a", name, arguments)), says("done"))
    assert outcome.status == "completed"
    assert json.loads(made.model.asked[1][-1]["content"])["error"]["reason"] == reason
    assert not outcome.trace[0].ok


@pytest.mark.parametrize(("arguments", "hinted"), [('{"text": "a lo', True), ('{"text": a}', False)])
def test_a_call_that_was_cut_is_told_as_one(arguments: str, hinted: bool) -> None:
    """Some servers call a reply whole that their limit has cut: a call without an end says what to do about it."""
    _, made = run(calls(("a", "echo", arguments)), says("done"))
    message = json.loads(made.model.asked[1][-1]["content"])["error"]["message"]
    assert ("say less in one call" in message) == hinted


def test_ids_are_unique_over_the_whole_history() -> None:
    """An id that is missing, repeated or known from the history is replaced; each call has exactly one answer."""
    history = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]},
        {"role": "tool", "tool_call_id": "a", "content": "{}"},
    ]
    twice = calls(("a", "echo", {"text": "1"}), ("a", "echo", {"text": "2"}), ("", "echo", {"text": "3"}))
    _, made = run(twice, calls(("a", "echo", {"text": "4"})), says("done"), history=history)
    sent = made.model.asked[2]
    ids = [call["id"] for entry in sent for call in entry.get("tool_calls", [])]
    answers = [entry["tool_call_id"] for entry in sent if entry["role"] == "tool"]
    assert ids == answers
    assert len(set(ids)) == len(ids) == 5


def test_malformed_arguments_do_not_go_back_to_the_server() -> None:
    """The history holds an empty object for arguments that are no JSON: servers parse them again."""
    _, made = run(calls(("a", "echo", '{"text": ')), says("done"))
    assert made.model.asked[1][-2]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_an_empty_answer_is_asked_for_once_more() -> None:
    """A second try may succeed; it is the identical request."""
    outcome, made = run(says(" \n"), says("now"))
    assert (outcome.text, outcome.steps) == ("now", 2)
    assert made.model.asked[0] == made.model.asked[1]


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_two_empty_answers_fail(finish: str) -> None:
    """Nothing twice is a failure, which keeps the trace of what was done before."""
    outcome, made = run(calls(("a", "echo", {"text": "x"})), says("", finish))
    assert (outcome.status, outcome.reason, outcome.text) == ("failed", "empty_response", None)
    assert [entry.tool for entry in outcome.trace] == ["echo"]
    assert len(made.model.asked) == 3


def test_a_cut_answer_is_continued() -> None:
    """An answer cut by its length goes on where it ended, and is one answer."""
    outcome, made = run(says("one ", "length"), says("two ", "length"), says("three"))
    assert (outcome.text, outcome.steps, outcome.message) == ("one two three", 3, "")
    assert made.model.asked[2][-2] == {"role": "assistant", "content": "one two "}
    assert made.kept == [{"role": "assistant", "content": "one two three"}]


def test_continuing_is_bounded() -> None:
    """After four continuations the answer is what there is, and says that it is cut."""
    outcome, made = run(says("x", "length"))
    assert (outcome.status, outcome.text, len(made.model.asked)) == ("completed", "xxxxx", 5)
    assert "cut" in outcome.message


def test_the_limit_of_steps() -> None:
    """A model that only calls tools ends at its limit, with every call answered."""
    outcome, made = run(calls(("a", "echo", {"text": "x"})), max_steps=3)
    assert (outcome.status, outcome.reason, outcome.steps) == ("failed", "max_iterations", 3)
    assert [entry["role"] for entry in made.kept] == ["assistant", "tool"] * 3


def test_the_budget_of_tokens() -> None:
    """When the tokens are used up no further model call is made."""
    outcome, made = run(calls(("a", "echo", {"text": "x"})), max_tokens_total=20)
    assert (outcome.status, outcome.reason) == ("cancelled", "budget")
    assert len(made.model.asked) == 2


def test_an_agent_that_repeats_its_failures_ends() -> None:
    """Five messages in a row whose every call failed end the agent; a success in between starts anew."""
    bad, good = calls(("a", "echo", {"fail": 1})), calls(("a", "echo", {"fail": 1}), ("b", "echo", {"text": "x"}))
    outcome, made = run(*[bad] * (MAX_FAILED_ROUNDS - 1), good, bad)
    assert (outcome.status, outcome.reason) == ("failed", "tool_error")
    assert len(made.model.asked) == 2 * MAX_FAILED_ROUNDS


def test_a_provider_failure_is_never_an_answer() -> None:
    """A failure of the provider ends the agent with its reason and what was said so far."""
    outcome, _ = run(calls(("a", "echo", {"text": "x"})), ProviderError("auth", "bad key"))
    assert (outcome.status, outcome.reason, outcome.message) == ("failed", "auth", "bad key")
    assert (outcome.text, outcome.partial_text) == (None, "partly")


def test_a_delegate_sees_its_goal_and_nothing_else() -> None:
    """A delegate's user message is its goal; the shared context comes before its own, byte-identical."""
    _, first = run(says("x"), text="goal", depth=1, shared_context="SHARED", context="mine")
    _, second = run(says("x"), text="other", depth=1, shared_context="SHARED", context="yours")
    system, user = first.model.asked[0]
    assert user == {"role": "user", "content": "goal"}
    prefix, own = system["content"].split("mine")
    assert own == ""
    assert prefix.index("SHARED") > 0
    assert second.model.asked[0][0]["content"] == prefix + "yours"
    assert first.kept == []


def test_the_root_sees_history_text_and_images() -> None:
    """The root's conversation is its prompt, the session so far, and the new message with its images."""
    history = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "then"}]
    images = [{"media_type": "image/png", "data": "QUJD", "sha256": "x"}]
    _, made = run(says("x"), text="look", history=history, images=images)
    system, *earlier, user = made.model.asked[0]
    assert system["role"] == "system"
    assert earlier == history
    assert user["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ]
    _, made = run(says("x"), text="", images=images)
    assert [part["type"] for part in made.model.asked[0][-1]["content"]] == ["image_url"]


def test_delegation_is_offered_with_the_other_tools() -> None:
    """The request's tools are those of the toolbox and, where allowed, delegate_task."""
    _, made = run(says("x"), toolsets=("delegation",), limits=DelegationLimits(max_spawn_depth=1))
    assert [entry["function"]["name"] for entry in made.model.tools] == ["echo", "delegate_task"]
    _, made = run(says("x"), toolsets=("delegation",), depth=1)
    assert [entry["function"]["name"] for entry in made.model.tools] == ["echo"]
