"""A model's reply, put together from the pieces of a stream."""

from typing import Any

from msgspec import Struct, field

from fanjoin.agent_proc import jsontext
from fanjoin.ipc.messages import JsonObject, Usage

_LARGEST_COUNT = 1 << 53


class ToolCall(Struct, kw_only=True):
    """A tool that the model wants to be run. ``arguments`` is its text, JSON or not."""

    id: str
    name: str
    arguments: str


class Reply(Struct, kw_only=True):
    """One finished reply.

    ``finish_reason`` is one of the chat-completions API, or empty when the server gave none. ``reasoning`` is what the
    model thought aloud, never a part of its answer; ``reasoning_tokens`` are a part of the output tokens. ``thoughts``
    are entries that the server wants to be given back with the tool calls of this reply, in its own form. ``refused``
    names the parts of requests that the server is known to refuse.
    """

    text: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str = ""
    usage: Usage = Usage()
    reasoning: str = ""
    reasoning_tokens: int = 0
    thoughts: list[JsonObject] = field(default_factory=list)
    refused: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing and asks for nothing."""
        return not self.tool_calls and (not self.text or self.text.isspace())


class _OpenCall:
    """A tool call whose pieces still arrive."""

    def __init__(self, index: object) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: JsonObject = {}

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are a complete object, so that no further piece can belong to them."""
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(jsontext.read("".join(self.arguments)), dict)
        except ValueError:
            return False

    def add(self, call_id: str, name: str, arguments: str) -> None:
        self.id = self.id or call_id
        if name != self.name:  # some servers repeat the whole name in each piece, others send it in pieces
            self.name += name
        if arguments:
            self.arguments.append(arguments)


class ReplyBuilder:
    """Collects the deltas of one choice.

    Texts are kept in pieces and joined once: an answer of many megabytes stays linear.
    """

    def __init__(self) -> None:
        self.finish_reason = ""
        self.usage = Usage()
        self.reasoning_tokens = 0
        self.thoughts: list[JsonObject] = []
        self.refusals: list[str] = []
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []

    def add_text(self, text: str) -> None:
        """Add a piece of the answer."""
        self._texts.append(text)

    def add_reasoning(self, text: str) -> None:
        """Add a piece of what the model thinks aloud."""
        self._reasoning.append(text)

    def add_call(self, piece: JsonObject) -> None:
        """Add a piece of a tool call, to the call that it belongs to."""
        function = object_of(piece.get("function"))
        call_id, name = text_of(piece.get("id")), text_of(function.get("name"))
        call = self._call_for(piece.get("index"), call_id, name)
        call.add(call_id, name, _arguments(function.get("arguments")))
        call.extra |= object_of(piece.get("extra_content"))

    @property
    def call_extras(self) -> list[JsonObject]:
        """What the server said of each call beside the API, empty where it was nothing."""
        return [call.extra for call in self._calls]

    def build(self) -> Reply:
        """Return the reply as far as it came."""
        calls = [ToolCall(id=call.id, name=call.name, arguments="".join(call.arguments)) for call in self._calls]
        return Reply(
            text="".join(self._texts),
            tool_calls=calls,
            finish_reason=self.finish_reason,
            usage=self.usage,
            reasoning="".join(self._reasoning),
            reasoning_tokens=self.reasoning_tokens,
            thoughts=self.thoughts,
        )

    def _call_for(self, index: object, call_id: str, name: str) -> _OpenCall:
        """Return the call that a piece continues, or a new one.

        Index and id decide together: some servers number every call 0, others give two calls one id, or each piece
        of a call another one. Only a name begins a call where its index is taken or unknown.
        """
        same_index = [call for call in self._calls if call.index == index]
        if call_id:
            found = next((call for call in same_index if call.id in (call_id, "")), None)
        elif index is not None:
            found = same_index[-1] if same_index else None
        else:
            found = self._calls[-1] if self._calls and not (name and self._calls[-1].arguments) else None
        if found is not None and name and not call_id and found.is_whole:
            found = None
        if found is None and not name:
            found = _last(same_index) or (None if call_id else _last(self._calls))
        return found or self._open(index)

    def _open(self, index: object) -> _OpenCall:
        self._calls.append(_OpenCall(index))
        return self._calls[-1]


def count(value: object) -> int:
    """Return a number of tokens: 0 for whatever makes no sense as one."""
    return int(value) if isinstance(value, int | float) and 0 < value < _LARGEST_COUNT else 0


def text_of(value: Any) -> str:
    """Return a text, empty for whatever is none."""
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> JsonObject:
    """Return an object, empty for whatever is none."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[JsonObject]:
    """Return the objects of a list, none for whatever is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _last(calls: list[_OpenCall]) -> _OpenCall | None:
    return calls[-1] if calls else None


def _arguments(value: object) -> str:
    """Return the text of a piece of arguments; a server that sends an object means its JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return jsontext.write(value)
