"""The agent: asks the model, runs what it asks for, and again, until there is an answer or a limit is reached."""

import functools
import time
from collections.abc import Callable, Iterable

from fanjoin.agent_proc import delegation
from fanjoin.agent_proc.calls import (
    PREVIEW_CHARACTERS,
    ToolError,
    assistant_message,
    ids_in,
    is_error,
    tool_message,
    with_unique_ids,
)
from fanjoin.agent_proc.context import shorten_oldest
from fanjoin.agent_proc.prompt import opening
from fanjoin.agent_proc.provider.client import ModelClient, patiently
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.refusals import TOOLS
from fanjoin.agent_proc.provider.reply import Reply, ToolCall
from fanjoin.agent_proc.reporter import Reporter
from fanjoin.agent_proc.structured import correction, judge
from fanjoin.agent_proc.tools import Toolbox
from fanjoin.ipc.messages import AgentTask, CallRequest, JsonObject, Outcome, ToolTrace
from fanjoin.ipc.text import clip

MAX_CONTINUATIONS = 4
"""How often a reply that hit the model's output limit is asked to go on."""
MAX_FAILED_ROUNDS = 5
"""After so many messages in a row whose every tool call failed, the agent ends: it repeats itself."""
_GO_ON: JsonObject = {"role": "user", "content": "Your message was cut by its length. Go on exactly where it ended."}

Join = Callable[[list[CallRequest]], dict[str, str]]
"""Hands calls to the supervisor and returns the answer to each, by its id, once all have ended."""


class Ended(Exception):  # noqa: N818 - an end, not always an error
    """The work ends without an answer, by a rule of ours."""

    def __init__(self, status: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Agent:
    """One agent with its task. Everything it talks to is handed in."""

    def __init__(self, task: AgentTask, client: ModelClient, join: Join, reporter: Reporter, tools: Toolbox) -> None:
        self._task = task
        self._client = client
        self._join = join
        self._reporter = reporter
        self._account = reporter.account
        self._tools = tools
        self._delegates = delegation.is_offered(task)
        self._schemas = [*tools.schemas, *([delegation.schema(task)] if self._delegates else [])]
        self._messages = opening(task)
        self._used_ids = ids_in(self._messages)
        self._failed_rounds = 0
        self._corrected = False
        self._output: JsonObject | None = None
        self._joins_late = task.joins_detached

    def run(self) -> Outcome:
        """Work until the end and return how it ended."""
        self._reporter.begin(self._messages)
        try:
            reply = self._converse()
        except ProviderError as error:
            return self._account.ended("failed", error.reason, str(error))
        except Ended as end:
            return self._account.ended(end.status, end.reason, str(end))
        return self._account.completed(reply.text, self._remarks(reply), self._output)

    def _remarks(self, reply: Reply) -> str:
        """Return what has to be known about an answer."""
        remarks = []
        if reply.finish_reason == "length":
            remarks.append("The answer is cut: the model's output limit.")
        if self._schemas and TOOLS in reply.refused:
            remarks.append("The answer was made without tools: the provider refuses them.")
        return " ".join(remarks)

    def _converse(self) -> Reply:
        while True:
            self._hear(self._tools.news())
            reply = self._reply()
            if reply.tool_calls:
                self._answer_calls(reply)
                continue
            self._add([{"role": "assistant", "content": reply.text}])
            if late := self._join_late():
                self._messages += late
                continue
            more = self._late_news() or self._objection(reply.text)
            if not more:
                return reply
            self._hear(more)

    def _join_late(self) -> list[JsonObject]:
        """Wait, once, for what earlier turns dispatched, and return their results; the supervisor has kept these."""
        wanted, self._joins_late = self._joins_late, False
        answers = self._join([]) if wanted else {}
        messages: list[JsonObject] = [{"role": "user", "content": text} for text in answers.values()]
        self._reporter.begin(messages)
        return messages

    def _late_news(self) -> list[str]:
        """Return what an agent that has its answer is still to be told, as long as it may take another step."""
        return self._tools.last_news() if self._account.steps < self._task.max_steps else []

    def _objection(self, answer: str) -> list[str]:
        """Return what is wrong with an answer that has to be an object of a schema; it may be corrected once."""
        if self._task.output_schema is None:
            return []
        judged = judge(answer, self._task.output_schema)
        self._output = judged.output
        if not judged.problem:
            return []
        if self._corrected:
            raise Ended("failed", "schema_invalid", f"The answer does not fit the output_schema. {judged.problem}")
        self._corrected = True
        return [correction(judged.problem)]

    def _hear(self, texts: list[str]) -> None:
        """Tell the model something that it has not asked for."""
        if texts:
            self._add([{"role": "user", "content": text} for text in texts])

    def _add(self, entries: list[JsonObject]) -> None:
        self._messages += entries
        self._reporter.keep(entries)

    def _reply(self) -> Reply:
        """Return a reply that says something; an empty one is asked for once more.

        A model that finished and said what it thought, but no answer, would do the same again. What it thought is no
        answer.
        """
        for _ in range(2):
            reply = self._whole_reply()
            if not reply.is_empty:
                return reply
            if reply.reasoning and reply.finish_reason == "stop":
                raise Ended("failed", "empty_response", "The model thought aloud and then gave no answer.")
        raise Ended("failed", "empty_response", "The model answered twice with nothing.")

    def _whole_reply(self) -> Reply:
        """Return a reply, put together when it takes several because of the model's output limit."""
        reply = self._call()
        text = reply.text
        for _ in range(MAX_CONTINUATIONS):
            if reply.finish_reason != "length" or reply.tool_calls or reply.is_empty:
                break
            reply = self._call([{"role": "assistant", "content": text}, _GO_ON], text)
            text += reply.text
        reply.text = text
        return reply

    def _call(self, more: list[JsonObject] | None = None, before: str = "") -> Reply:
        """Make one step: one model call, with its retries. ``more`` follows the conversation in this call only."""
        self._check_limits()
        self._account.wait_if_stopped()
        self._reporter.begin_step()
        self._account.steps += 1
        reply = self._fitting(more or [], before)
        self._account.usage += reply.usage
        self._reporter.end_reply(reply)
        return reply

    def _fitting(self, more: list[JsonObject], before: str) -> Reply:
        """Make a model call; while the conversation is too long for the model, shorten it and try again."""
        while True:
            messages = [*self._messages, *more]
            try:
                return patiently(functools.partial(self._try, messages, before), self._reporter.retrying)
            except ProviderError as error:
                count = shorten_oldest(self._messages) if error.reason == "context_overflow" else 0
                if not count:
                    raise
                self._reporter.shortened(count)

    def _try(self, messages: list[JsonObject], before: str) -> Reply:
        self._reporter.begin_reply(before)
        # A correction needs no tools, and without them a server can keep an answer to its schema.
        tools = [] if self._corrected and not self._used_ids else self._schemas
        return self._client.complete(messages, tools, self._reporter.text)

    def _check_limits(self) -> None:
        steps, usage, limit = self._account.steps, self._account.usage, self._task.max_tokens_total
        if self._account.budget:
            raise Ended("cancelled", "budget", self._account.budget)
        if steps >= self._task.max_steps:
            raise Ended("failed", "max_iterations", f"There was no answer after {steps} steps, the limit.")
        if limit and usage.input_tokens + usage.output_tokens >= limit:
            raise Ended("cancelled", "budget", f"The budget of {limit} tokens is used up (--max-tokens-total).")

    def _answer_calls(self, reply: Reply) -> None:
        """Run the tool calls of a reply; afterwards the conversation holds them, each with its one answer."""
        calls = with_unique_ids(reply.tool_calls, self._used_ids)
        message = assistant_message(reply.text, calls)
        self._account.open_calls(message)
        self._reporter.tools_started([call.name for call in calls])
        answers = self._run_calls(calls)
        entries = [tool_message(call.id, answers[call.id]) for call in calls]
        # Thoughts belong to this turn and this model alone: they are given back now and not kept with the session.
        thoughts = {"thoughts": reply.thoughts} if reply.thoughts else {}
        self._messages += [{**message, **thoughts}, *entries]
        self._account.close_calls()
        self._reporter.keep([message, *entries])
        self._bound_failures(answers.values())

    def _run_calls(self, calls: list[ToolCall]) -> dict[str, str]:
        """Return the answer to each call. Delegation comes last, all of it at once: delegates run side by side."""
        delegated = [call for call in calls if self._delegates and call.name == delegation.NAME]
        answers = {call.id: self._run_tool(call) for call in calls if call not in delegated}
        return answers | self._delegate(delegated)

    def _run_tool(self, call: ToolCall) -> str:
        self._account.wait_if_stopped()
        began = time.monotonic()
        content = self._tools.run(call)
        self._account.wait_if_stopped()
        self._account.answer_call(call.id, content)
        self._trace(call, content, began)
        return content

    def _delegate(self, calls: list[ToolCall]) -> dict[str, str]:
        began = time.monotonic()
        answers: dict[str, str] = {}
        requests = []
        for call in calls:
            try:
                requests.append(delegation.read_call(call))
            except ToolError as error:
                answers[call.id] = error.content()
        if requests:
            answers |= self._join(requests)
        for call in calls:
            self._trace(call, answers[call.id], began)
        return answers

    def _trace(self, call: ToolCall, content: str, began: float) -> None:
        preview = clip(call.arguments, PREVIEW_CHARACTERS)
        seconds = round(time.monotonic() - began, 3)
        trace = ToolTrace(tool=call.name, preview=preview, ok=not is_error(content), duration_seconds=seconds)
        self._reporter.tool_ended(trace)

    def _bound_failures(self, answers: Iterable[str]) -> None:
        self._failed_rounds = self._failed_rounds + 1 if all(map(is_error, answers)) else 0
        if self._failed_rounds >= MAX_FAILED_ROUNDS:
            text = f"Every tool call of {MAX_FAILED_ROUNDS} messages in a row failed."
            raise Ended("failed", "tool_error", text)
