"""What the tests of wire formats share: a form with its expected reading, and clients of each format."""

from collections.abc import Iterator
from typing import Any

from agent_support import KEY, Answer, ModelServer, task
from msgspec import Struct
from msgspec.structs import replace

from fanjoin.agent_proc.provider.client import ModelClient
from fanjoin.agent_proc.provider.modes import open_client
from fanjoin.agent_proc.provider.reply import Reply
from fanjoin.ipc.settings import Endpoint, ModelLimits

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
QUICK = ModelLimits(connect=2, first_byte=1, between_bytes=1, whole_call=5)
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
}

Call = tuple[str, str, str]


class Form(Struct, frozen=True, kw_only=True):
    """The bytes of a body as some server sends them, and what they have to be read as.

    ``calls`` are (id, name, arguments); ``usage`` is input, output, cached and reasoning tokens. ``heard`` is what is
    passed on while it arrives, where that is not yet known to be no part of the text.
    """

    body: bytes
    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    usage: tuple[int, int, int, int] = (0, 0, 0, 0)
    reasoning: str = ""
    thoughts: int = 0
    heard: str | None = None

    def check(self, reply: Reply) -> None:
        """Check a reply against what was expected."""
        assert reply.text == self.text
        assert tuple((call.id, call.name, call.arguments) for call in reply.tool_calls) == self.calls
        assert reply.finish_reason == self.finish
        counts = reply.usage
        spent = (counts.input_tokens, counts.output_tokens, counts.cached_tokens, reply.reasoning_tokens)
        assert spent == self.usage
        assert reply.reasoning == self.reasoning
        assert len(reply.thoughts) == self.thoughts

    @property
    def answer(self) -> Answer:
        """Send it as a server does: a stream as one, plain JSON as that."""
        plain = self.body.lstrip(b"\xef\xbb\xbf \n").startswith(b"{")
        content_type = "application/json" if plain else "text/event-stream"
        return lambda handler: handler.reply(200, self.body, content_type=content_type)


class Body:
    """A response whose bytes arrive in the given parts."""

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody writes to it

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def chunks(self) -> Iterator[bytes]:
        """Yield the parts."""
        yield from self._parts

    def read(self, limit: int) -> bytes:
        """Return the beginning of the body."""
        return b"".join(self._parts)[:limit]


def client_of(server: ModelServer, mode: str = "chat_completions", **fields: Any) -> ModelClient:
    """Return a client of a server, with the limits of a test; other fields are the endpoint's or the task's."""
    if "max_output_tokens" in fields:
        fields["model_limits"] = replace(QUICK, max_output_tokens=fields.pop("max_output_tokens"))
    known = {name: fields.pop(name) for name in ("reasoning_effort", "model", "base_url") if name in fields}
    endpoint = Endpoint(**{"base_url": server.url, "model": "m", "api_key": KEY, "api_mode": mode, **known})
    return open_client(endpoint, task(**{"model_limits": QUICK, **fields}))


def ask(
    server: ModelServer,
    mode: str = "chat_completions",
    messages: list[dict[str, Any]] | None = None,
    tools: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> Reply:
    """Make one call."""
    client = client_of(server, mode, **fields)
    try:
        return client.complete(messages or HELLO, tools or [], lambda _: None)
    finally:
        client.close()
