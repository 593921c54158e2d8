"""The chat-completions API: what is asked, and how the answer is read, streamed or not."""

from collections.abc import Iterator
from typing import Any

import msgspec

from fanjoin.agent_proc import jsontext
from fanjoin.agent_proc.http import Http, Response
from fanjoin.agent_proc.provider.client import OnDelta
from fanjoin.agent_proc.provider.failure import ProviderError, from_error_object, from_status
from fanjoin.agent_proc.provider.reply import Reply, ReplyBuilder, read_usage
from fanjoin.agent_proc.provider.sse import EventReader
from fanjoin.agent_proc.provider.thinking import ThinkingFilter
from fanjoin.agent_proc.structured import response_format
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.settings import Endpoint
from fanjoin.ipc.text import clip, mask_in

_OK = 200
_FORM_WORDS = ("response_format", "json_schema", "schema", "grammar")
_ERROR_BYTES = 64 << 10
_REPLY_BYTES = 128 << 20
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"


class ChatCompletions:
    """A client of one endpoint; implements ``ModelClient``."""

    def __init__(self, endpoint: Endpoint, http: Http, output_schema: JsonObject | None = None) -> None:
        self._endpoint = endpoint
        self._form = None if output_schema is None else response_format(output_schema)
        self._http = http
        self._headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
        if endpoint.api_key:
            self._headers["authorization"] = f"Bearer {endpoint.api_key}"

    def complete(self, messages: list[JsonObject], tools: list[JsonObject], on_delta: OnDelta) -> Reply:
        """Return the model's reply to the messages.

        Raises:
            ProviderError: the call failed; the key is masked in its message.
        """
        try:
            return self._ask(messages, tools, on_delta)
        except ProviderError as error:
            error.args = (mask_in(str(error), self._endpoint.api_key),)
            if not self._refuses_form(error, tools):
                raise
        self._form = None  # the validation of the answer remains
        return self.complete(messages, tools, on_delta)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, messages: list[JsonObject], tools: list[JsonObject], on_delta: OnDelta) -> Reply:
        body = msgspec.json.encode(self._question(messages, tools))
        with self._http.post("/chat/completions", self._headers, body) as response:
            return _Reading(on_delta).read(response)

    def _refuses_form(self, error: ProviderError, tools: list[JsonObject]) -> bool:
        """Whether the server does not know the response_format that it was given."""
        asked = self._form is not None and not tools
        return asked and error.reason == "bad_request" and any(word in str(error).lower() for word in _FORM_WORDS)

    def _question(self, messages: list[JsonObject], tools: list[JsonObject]) -> JsonObject:
        body: JsonObject = {"model": self._endpoint.model, "messages": messages}
        if tools:
            body["tools"] = tools
        elif self._form:  # beside tools, some servers would answer at once instead of calling any
            body["response_format"] = self._form
        if self._endpoint.reasoning_effort:
            body["reasoning_effort"] = self._endpoint.reasoning_effort
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        return body


class _Reading:
    """Reads one response."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._reply = ReplyBuilder()
        self._thinking = ThinkingFilter()
        self._events = 0
        self._done = False
        self._has_usage = False

    def read(self, response: Response) -> Reply:
        if response.status != _OK:
            raise from_status(response.status, response.read(_ERROR_BYTES), response.headers.get("retry-after"))
        try:
            self._read_body(response.chunks())
        except ProviderError:
            # A finished answer stays one, however its connection ended.
            if not self._reply.finish_reason:
                raise
        self._add_text(self._thinking.close())
        return self._finished()

    def _read_body(self, chunks: Iterator[bytes]) -> None:
        """Read the body as what it is: servers answer a request for a stream with plain JSON, too."""
        start = b""
        for chunk in chunks:
            start = (start + chunk).removeprefix(_BOM).lstrip(_SPACE)
            if start and not _BOM.startswith(start):
                break
        if not start:
            raise ProviderError("invalid_response", "The provider answered with an empty body.")
        if start.startswith(b"<"):
            text = "The provider answered with an HTML page: the base URL may not be that of a model API."
            raise ProviderError("invalid_response", text, retryable=False)
        if start.startswith((b"{", b"[")):
            self._plain(b"".join(_bounded(chunks, start)))
        else:
            self._stream(_bounded(chunks, start))

    def _stream(self, chunks: Iterator[bytes]) -> None:
        events = EventReader()
        for chunk in chunks:
            for data in events.feed(chunk):
                self._event(data)
            if self._done or (self._reply.finish_reason and self._has_usage):
                return
        for data in events.close():
            self._event(data)
        if not self._events:
            raise ProviderError("invalid_response", "The provider's reply is neither JSON nor a stream of events.")
        if not self._done and not self._reply.finish_reason:
            raise ProviderError("network", "The provider's stream ended in the middle of the answer.")

    def _event(self, data: bytes) -> None:
        self._events += 1
        if self._done or not data.strip():
            return
        if data.strip() == b"[DONE]":
            self._done = True
            return
        self._chunk(_object(data), "delta")

    def _plain(self, body: bytes) -> None:
        value = _object(body)
        if not isinstance(value.get("choices"), list) and "error" not in value:
            text = f"The provider's reply has no choices: {clip(body.decode('utf-8', 'replace'), 200)}"
            raise ProviderError("invalid_response", text)
        self._chunk(value, "message")

    def _chunk(self, value: JsonObject, key: str) -> None:
        if value.get("error"):
            raise from_error_object(value)
        usage = read_usage(value.get("usage"))
        if usage is not None:
            self._reply.usage, self._has_usage = usage, True
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        self._message(choice.get(key) or choice.get("delta") or choice.get("message"))
        self._reply.finish_reason = str(choice.get("finish_reason") or "") or self._reply.finish_reason

    def _message(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        self._add_text(self._thinking.feed(_content(message.get("content"))))
        value = message.get("tool_calls")
        calls = value if isinstance(value, list) else []
        for index, call in enumerate(calls):
            if isinstance(call, dict):
                # Whole calls side by side carry no index of their own.
                self._reply.add_call(call if "index" in call or len(calls) == 1 else {**call, "index": index})

    def _add_text(self, text: str) -> None:
        if text:
            self._reply.add_text(text)
        self._on_delta(text)

    def _finished(self) -> Reply:
        reply = self._reply.build()
        if reply.finish_reason == "content_filter":
            raise ProviderError("content_filter", "The provider's content filter stopped the answer.")
        if reply.finish_reason == "error":
            raise ProviderError("server_error", "The provider ended its answer with an error.")
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
    try:
        value = jsontext.read(data)
    except ValueError as error:
        text = f"The provider sent what is not JSON ({error}): {clip(data[:400].decode('utf-8', 'replace'), 200)}"
        raise ProviderError("invalid_response", text) from error
    if not isinstance(value, dict):
        raise ProviderError("invalid_response", "The provider sent JSON that is not an object.")
    return value


def _content(value: Any) -> str:
    """Return the text of a ``content``: a string, or a list of parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    texts = (part.get("text") for part in value if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
