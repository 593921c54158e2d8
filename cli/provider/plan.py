"""Scripted plans: which reply a provider gives to which request. Pure: the same request has the same reply.

A plan is a list of replies; the n-th answers the n-th model call after the user message that carries it, and past its
end the provider answers as it does without a plan. One reply is an object with any of these members::

    delegate       tasks of one delegate_task call: goals, or objects with a goal and more
    calls          tool calls: [{"name": ..., "arguments": an object, or a text that is sent as it stands}]
    text           the text of the reply
    do             directives, as in directives.py
    finish_reason  instead of "stop" or "tool_calls"

A user message carries its plan as its last lines, fenced by ``` and named ``plan`` (``with_plan`` writes that). A plan
file holds rules: ``[{"when": {"user": ..., "system": ..., "offers": TOOL, "model": ...}, "replies": [...]}]``; the
first rule that holds in all its conditions answers. A plan in the message comes before the file.
"""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fanjoin.cli.provider.directives import Directive, split_directives
from fanjoin.cli.provider.wire import BadRequestError, ChatRequest, JsonObject, ToolCall

DELEGATE_TOOL = "delegate_task"
_FENCE = "```plan\n"
_ITEM = re.compile(r"^\s*(?:[-*]|\d+[.)])\s+(.+?)\s*$", re.MULTILINE)
_ASKS = re.compile(r"\b(?:delegates?|fan(?:s|ned)?[ -]?out)\b", re.IGNORECASE)


class ReplySpec(Struct, kw_only=True, forbid_unknown_fields=True):
    """One reply of a plan, as it is written."""

    delegate: list[str | JsonObject] = []
    calls: list[JsonObject] = []
    text: str | None = None
    do: str = ""
    finish_reason: str = ""


class Condition(Struct, kw_only=True, forbid_unknown_fields=True):
    """When a rule holds: texts that have to occur, a tool that has to be on offer, a model's name."""

    user: str = ""
    system: str = ""
    offers: str = ""
    model: str = ""

    def holds(self, request: ChatRequest) -> bool:
        """Return whether the request fulfils every condition that is set."""
        systems = "\n".join(message.text for message in request.messages if message.role == "system")
        return (
            self.user in request.user_text
            and self.system in systems
            and (not self.offers or self.offers in request.tool_names)
            and self.model in ("", request.model)
        )


class Rule(Struct, kw_only=True, forbid_unknown_fields=True):
    """The plan for every request that its condition holds for."""

    replies: list[ReplySpec]
    when: Condition = msgspec.field(default_factory=Condition)


Script = tuple[Rule, ...]


class Reply(Struct, frozen=True, kw_only=True):
    """What to answer. Without text and calls, whoever writes the text decides from the request."""

    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    directives: tuple[Directive, ...] = ()
    finish_reason: str = ""


def decide(request: ChatRequest, script: Script = ()) -> Reply:
    """Return the reply to a request.

    Raises:
        BadRequestError: a plan in a user message cannot be read.
    """
    if reply := _planned(request) or _scripted(request, script):
        return reply
    directives, _ = split_directives(request.user_text)
    if goals := goals_asked(request):
        return Reply(calls=(delegation(goals),), directives=directives)
    return Reply(directives=directives)


def _planned(request: ChatRequest) -> Reply | None:
    """Return the next reply of the newest plan in the conversation, None once it is used up.

    The newest user message need not be the one with the plan: an agent may ask for the rest of a cut reply.
    """
    replies_since = 0
    for message in reversed(request.messages):
        replies_since += message.role == "assistant"
        if message.role == "user":
            directives, text = split_directives(message.text)
            if specs := plan_in(text):
                return _nth(specs, replies_since, directives)
    return None


def _scripted(request: ChatRequest, script: Script) -> Reply | None:
    """Return the next reply of the first rule that holds."""
    directives, _ = split_directives(request.user_text)
    specs = next((rule.replies for rule in script if rule.when.holds(request)), [])
    return _nth(specs, request.step, directives)


def _nth(specs: list[ReplySpec], step: int, directives: tuple[Directive, ...]) -> Reply | None:
    return _reply(specs[step], directives) if step < len(specs) else None


def _reply(spec: ReplySpec, directives: tuple[Directive, ...]) -> Reply:
    """Turn one reply of a plan into what is sent; its own directives come after those of the message."""
    calls = [_call(call) for call in spec.calls]
    if spec.delegate:
        calls.insert(0, delegation(spec.delegate))
    more, _ = split_directives(spec.do)
    return Reply(text=spec.text, calls=tuple(calls), directives=(*directives, *more), finish_reason=spec.finish_reason)


def _call(call: JsonObject) -> ToolCall:
    arguments = call.get("arguments", {})
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(str(call.get("name", DELEGATE_TOOL)), written)


def delegation(tasks: list[str | JsonObject] | list[str]) -> ToolCall:
    """Return the call that hands out tasks; a text is a task's goal."""
    written = [{"goal": task} if isinstance(task, str) else task for task in tasks]
    return ToolCall(DELEGATE_TOOL, json.dumps({"tasks": written}))


def asks_for_delegates(request: ChatRequest) -> bool:
    """Return whether the user speaks of delegates, there is a tool for that, and nothing has been answered yet."""
    return not request.step and DELEGATE_TOOL in request.tool_names and bool(_ASKS.search(request.user_text))


def goals_asked(request: ChatRequest) -> list[str]:
    """Return the goals of a user who asks for delegates and lists what they shall do."""
    return _ITEM.findall(request.user_text) if asks_for_delegates(request) else []


def with_plan(text: str, replies: list[JsonObject]) -> str:
    """Return a user message that carries its plan."""
    return f"{text}\n\n{_FENCE}{json.dumps(replies)}\n```\n"


def plan_in(text: str) -> list[ReplySpec]:
    """Return the plan that a user message ends with.

    Raises:
        BadRequestError: there is one and it cannot be read.
    """
    at = text.rfind(_FENCE)
    if at < 0 or (at and text[at - 1] != "\n") or not text.rstrip().endswith("\n```"):
        return []
    written = text[at + len(_FENCE) :].rstrip().removesuffix("```")
    try:
        return msgspec.convert(json.loads(written), list[ReplySpec])
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The plan in the user's message cannot be read: {error}") from error


def read_script(path: Path) -> Script:
    """Read a plan file, JSON or YAML by its name.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a list of rules; the message says where.
    """
    written = path.read_text(encoding="utf-8")
    return tuple(msgspec.convert(_load(path, written), list[Rule]))


def _load(path: Path, written: str) -> Any:
    if path.suffix not in (".yaml", ".yml"):
        return json.loads(written)
    import yaml

    try:
        return yaml.safe_load(written)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
