"""How one response is read, whatever its wire format: plain JSON or a stream of events, to its end or to its break."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from fanjoin.agent_proc import jsontext
from fanjoin.agent_proc.http import Response
from fanjoin.agent_proc.provider.client import OnDelta
from fanjoin.agent_proc.provider.failure import ProviderError, from_error_object, from_status
from fanjoin.agent_proc.provider.reply import Reply, ReplyBuilder
from fanjoin.agent_proc.provider.sse import EventReader
from fanjoin.agent_proc.provider.thinking import ThinkingFilter, split_unopened
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clean, clip

_OK = 200
_SUCCESS = range(200, 300)  # frameworks answer a POST with 201 unless they are told not to
_ERROR_BYTES = 64 << 10
_REPLY_BYTES = 128 << 20
_REFUSAL_CHARACTERS = 600
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"


class Reading(ABC):
    """Reads one response; a subclass knows what the events and the plain reply of its format mean.

    Attributes:
        reply: what has come so far. Its ``finish_reason`` says that the answer is whole.
        done: nothing more is to come, whatever the connection still does.
    """

    def __init__(self, on_delta: OnDelta) -> None:
        self.reply = ReplyBuilder()
        self.done = False
        self._on_delta = on_delta
        self._thinking = ThinkingFilter()
        self._events = 0

    @property
    def satisfied(self) -> bool:
        """Whether nothing that counts can come any more."""
        return self.done

    @abstractmethod
    def event(self, value: JsonObject) -> None:
        """Take one event of a stream."""

    @abstractmethod
    def plain(self, value: JsonObject) -> bool:
        """Take a whole reply; False when it is none of this format."""

    def close(self) -> None:  # noqa: B027 - most formats hold nothing
        """Take in what was held until the end of the body."""

    def read(self, response: Response) -> Reply:
        """Return the reply that a response holds.

        Raises:
            ProviderError: it holds a failure, breaks off, or is not what a model API answers.
        """
        if response.status not in _SUCCESS:
            raise from_status(response.status, response.read(_ERROR_BYTES), response.headers.get("retry-after"))
        try:
            self._read_body(response.chunks())
        except ProviderError:
            # A finished answer stays one, however its connection ended.
            if not self.reply.finish_reason:
                raise
        self.close()
        self._pass_on(self._thinking.close())
        for thought in self._thinking.thoughts:
            self.reply.add_reasoning(thought)
        reply = self.reply.build()
        unopened, reply.text = split_unopened(reply.text)
        reply.reasoning += unopened
        return self._checked(reply)

    def add_text(self, text: str) -> None:
        """Take a piece of the answer, in which a model may think aloud."""
        self._pass_on(self._thinking.feed(text))

    def add_reasoning(self, text: str) -> None:
        """Take a piece of what the model thinks aloud."""
        self.reply.add_reasoning(text)
        self._on_delta("")

    def _pass_on(self, text: str) -> None:
        if text:
            self.reply.add_text(text)
        self._on_delta(text)

    def _read_body(self, chunks: Iterator[bytes]) -> None:
        """Read the body as what it is: servers answer a request for a stream with plain JSON, and the reverse."""
        start = b""
        for chunk in chunks:
            start = (start + chunk).removeprefix(_BOM).lstrip(_SPACE)
            if start and not _BOM.startswith(start):
                break
        if not start:
            raise ProviderError("invalid_response", "The provider answered with an empty body.", status=_OK)
        if start.startswith(b"<"):
            text = "The provider answered with an HTML page: the base URL may not be that of a model API."
            raise ProviderError("invalid_response", text, retryable=False, status=_OK)
        if start.startswith((b"{", b"[")):
            self._whole(b"".join(_bounded(chunks, start)))
        else:
            self._stream(_bounded(chunks, start))

    def _stream(self, chunks: Iterator[bytes]) -> None:
        events = EventReader()
        for chunk in chunks:
            for data in events.feed(chunk):
                self._take(data)
            if self.satisfied:
                return
        for data in events.close():
            self._take(data)
        if not self._events:
            text = "The provider's reply is neither JSON nor a stream of events."
            raise ProviderError("invalid_response", text, status=_OK)
        if not self.done and not self.reply.finish_reason:
            text = "The provider's stream ended in the middle of the answer."
            raise ProviderError("network", text, status=_OK)

    def _take(self, data: bytes) -> None:
        self._events += 1
        if self.done or not data.strip():
            return
        if data.strip() == b"[DONE]":
            self.done = True
            return
        self.event(_object(data))

    def _whole(self, body: bytes) -> None:
        if not self.plain(_object(body)):
            text = f"The provider's reply is none of this API: {clip(body[:800].decode('utf-8', 'replace'), 200)}"
            raise ProviderError("invalid_response", text, status=_OK)

    def _checked(self, reply: Reply) -> Reply:
        """Return the reply, unless it is a failure in the form of one."""
        refusal = clean("".join(self.reply.refusals))
        if reply.finish_reason == "content_filter":
            text = "The provider's content filter stopped the answer."
            raise ProviderError("content_filter", f"{text} {clip(refusal, _REFUSAL_CHARACTERS)}".strip(), status=_OK)
        if reply.finish_reason == "error":
            raise ProviderError("server_error", "The provider ended its answer with an error.", status=_OK)
        if refusal and reply.is_empty:
            text = f"The model refused to answer: {clip(refusal, _REFUSAL_CHARACTERS)}"
            raise ProviderError("content_filter", text, status=_OK)
        return reply


def _bounded(chunks: Iterator[bytes], start: bytes) -> Iterator[bytes]:
    """Yield the whole body, and stop one that never ends."""
    size = len(start)
    yield start
    for chunk in chunks:
        size += len(chunk)
        if size > _REPLY_BYTES:
            raise ProviderError("invalid_response", f"The reply is over {_REPLY_BYTES} bytes.", retryable=False)
        yield chunk


def _object(data: bytes) -> JsonObject:
    """Return an event or a body as an object; an error in the place of one is raised."""
    try:
        value = jsontext.read(data)
    except ValueError as error:
        text = f"The provider sent what is not JSON ({error}): {clip(data[:400].decode('utf-8', 'replace'), 200)}"
        raise ProviderError("invalid_response", text, status=_OK) from error
    if not isinstance(value, dict):
        raise ProviderError("invalid_response", "The provider sent JSON that is not an object.", status=_OK)
    if value.get("error") or value.get("object") == "error":
        raise from_error_object(value)
    return value
