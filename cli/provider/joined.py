"""The joined results of a fan-out, read back from the conversation and told truthfully.

Everything said here comes from the JSON that the agent was given: no count and no status is made up.
"""

import contextlib
import json
import textwrap
from typing import Any

from msgspec import Struct

from fanjoin.cli.provider.directives import split_directives
from fanjoin.cli.provider.figures import count
from fanjoin.cli.provider.plan import DELEGATE_TOOL
from fanjoin.cli.provider.wire import ChatRequest, JsonObject, Message

SHOWN_CHARACTERS = 2000
"""How much of one summary is repeated."""


class Joined(Struct, frozen=True):
    """One delegate's entry and the goal that it was given (empty when the conversation does not show it)."""

    goal: str
    entry: JsonObject

    @property
    def label(self) -> str:
        """The first line of the goal, without directives."""
        _, text = split_directives(self.goal)
        lines = text.strip().splitlines()
        return textwrap.shorten(lines[0], 80, placeholder="…") if lines else f"task {self.index + 1}"

    @property
    def index(self) -> int:
        """The task's position in its call, from 0."""
        index = self.entry.get("task_index")
        return index if isinstance(index, int) else 0

    @property
    def summary(self) -> str:
        """The delegate's final text, empty when there is none."""
        return str(self.entry.get("summary") or "")

    @property
    def fate(self) -> str:
        """The status, with its reason and signal or exit code where there is one: ``crashed (killed: SIGKILL)``."""
        status = str(self.entry.get("status", "unknown"))
        reason = str(_object(self.entry.get("error")).get("reason", ""))
        end = _object(self.entry.get("exit"))
        how = end.get("signal") or (f"exit code {end['code']}" if end.get("code") is not None else "")
        why = ": ".join(part for part in (reason, how) if part)
        return f"{status} ({why})" if why else status


class Answers(Struct):
    """What the tools of this turn answered: entries of delegates, and everything else as plain lines."""

    joined: list[Joined]
    others: list[str]


def answers_in(request: ChatRequest) -> Answers:
    """Collect what the tools answered since the last user message, or results that came as a user message."""
    goals = _goals_by_call(request.messages)
    found = Answers([], [])
    for message in request.since_user:
        if message.role == "tool":
            _take(found, message.text, goals.get(message.tool_call_id, []))
    if not request.since_user:
        joined = _results_within(request.user_text)
        found.joined += [Joined("", entry) for entry in joined]
    return found


def _take(found: Answers, text: str, goals: list[str]) -> None:
    """Sort one tool message in."""
    value = _loads(text)
    if not isinstance(value, dict):
        found.others.append(f"A tool answered: {textwrap.shorten(text, 300, placeholder='…')}")
    elif isinstance(value.get("results"), list):
        entries = [entry for entry in value["results"] if isinstance(entry, dict)]
        found.joined += [Joined(_goal_of(entry, goals), entry) for entry in entries]
    elif isinstance(value.get("error"), dict):
        error = value["error"]
        found.others.append(f"A call was refused ({error.get('reason')}): {error.get('message')}")
    elif value.get("status") == "dispatched":
        found.others.append(f"Delegates dispatched: {value.get('count')}; no result of them is here yet.")
    else:
        found.others.append(f"A tool answered: {textwrap.shorten(text, 300, placeholder='…')}")


def _goal_of(entry: JsonObject, goals: list[str]) -> str:
    index = entry.get("task_index")
    return goals[index] if isinstance(index, int) and 0 <= index < len(goals) else ""


def _goals_by_call(messages: list[Message]) -> dict[str, list[str]]:
    """Return the goals of every delegation in the conversation, by the identifier of its call."""
    found: dict[str, list[str]] = {}
    for message in messages:
        for call in message.tool_calls or []:
            function = _object(call.get("function"))
            if function.get("name") == DELEGATE_TOOL:
                found[str(call.get("id"))] = _goals(_loads(str(function.get("arguments", ""))))
    return found


def _goals(arguments: Any) -> list[str]:
    """Return the goals in the arguments of a call, whatever form they have."""
    if not isinstance(arguments, dict):
        return []
    tasks = arguments.get("tasks") or [arguments]
    tasks = _loads(tasks) if isinstance(tasks, str) else tasks
    return [str(_object(task).get("goal", "")) for task in tasks] if isinstance(tasks, list) else []


def _results_within(text: str) -> list[JsonObject]:
    """Return the entries of a JSON object with results that stands somewhere in a text."""
    decoder = json.JSONDecoder()
    at = text.find("{") if '"results"' in text else -1
    while at >= 0:
        with contextlib.suppress(ValueError, RecursionError):
            value, _ = decoder.raw_decode(text, at)
            if isinstance(value, dict) and isinstance(value.get("results"), list):
                return [entry for entry in value["results"] if isinstance(entry, dict)]
        at = text.find("{", at + 1)
    return []


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def headline(joined: list[Joined]) -> str:
    """Return how many delegates completed, and the fate of each that did not."""
    completed = sum(item.entry.get("status") == "completed" for item in joined)
    others = [f"{item.label}: {item.fate}" for item in joined if item.entry.get("status") != "completed"]
    total = f"{completed} of {count(len(joined), 'delegate')} completed"
    return f"{total}. Not completed: {'; '.join(others)}." if others else f"{total}."


def tell(joined: list[Joined]) -> str:
    """Return what became of every delegate, in task order, with what it said."""
    return "\n".join(_paragraph(number, item) for number, item in enumerate(joined, 1))


def _paragraph(number: int, item: Joined) -> str:
    said = item.summary
    if not said:
        error = _object(item.entry.get("error"))
        partial = str(item.entry.get("partial_text") or "")
        said = str(error.get("message", ""))
        said += f"\nIt had said so far: {partial}" if partial else ""
    body = textwrap.indent(_shown(said).strip(), "   ")
    return f"{number}. {item.label}: {item.fate}" + (f"\n{body}" if body.strip() else "")


def _shown(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}\n[{len(text) - SHOWN_CHARACTERS:,} more characters]"
