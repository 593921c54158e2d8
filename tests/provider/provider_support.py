"""A plain client of the embedded providers, and requests to send with it."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fanjoin.cli.provider.wire import ChatRequest, parse_request
from fanjoin.client.local_model import EmbeddedProvider

JsonObject = dict[str, Any]

DELEGATE = {"type": "function", "function": {"name": "delegate_task", "parameters": {"type": "object"}}}

SECONDS = 20.0
"""How long a test waits for an answer before it fails."""


def user(text: str) -> list[JsonObject]:
    """Return a conversation of one user message."""
    return [{"role": "user", "content": text}]


def request(messages: list[JsonObject] | str, **members: Any) -> ChatRequest:
    """Return a request as a provider reads it."""
    listed = user(messages) if isinstance(messages, str) else messages
    return parse_request(json.dumps({"messages": listed, **members}).encode())


def called(call_id: str, arguments: Any, name: str = "delegate_task") -> JsonObject:
    """Return an assistant message with one tool call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}


def answered(call_id: str, value: Any) -> JsonObject:
    """Return the tool message for a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": json.dumps(value)}


class Client:
    """One connection to a provider."""

    def __init__(self, url: str, key: str = "") -> None:
        self.connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=SECONDS)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def post(self, body: bytes, path: str = "/v1/chat/completions") -> http.client.HTTPResponse:
        """Send a body and return the reply's head."""
        self.connection.request("POST", path, body, {"Content-Type": "application/json", **self._headers})
        return self.connection.getresponse()

    def ask(self, messages: list[JsonObject] | str, **members: Any) -> http.client.HTTPResponse:
        """Send a chat request and return the reply's head."""
        listed = user(messages) if isinstance(messages, str) else messages
        return self.post(json.dumps({"model": "m", "messages": listed, **members}).encode())

    def whole(self, messages: list[JsonObject] | str, **members: Any) -> JsonObject:
        """Return a reply that is not streamed."""
        return dict(json.loads(self.ask(messages, **members).read()))

    def text(self, messages: list[JsonObject] | str, **members: Any) -> str:
        """Return the text of a reply that is not streamed."""
        return str(self.whole(messages, **members)["choices"][0]["message"]["content"])

    def chunks(self, messages: list[JsonObject] | str, **members: Any) -> list[JsonObject]:
        """Return the chunks of a streamed reply, checking that it ends as a stream does."""
        lines = self.ask(messages, stream=True, **members).read().decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def get(self, path: str) -> JsonObject:
        """Return a JSON document."""
        self.connection.request("GET", path)
        return dict(json.loads(self.connection.getresponse().read()))


@contextmanager
def raw(url: str) -> Iterator[socket.socket]:
    """Give a bare socket to a provider."""
    host, port = str(urlsplit(url).netloc).split(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
        yield connection


def records(log: Path) -> list[JsonObject]:
    """Return what a provider wrote down."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


Start = Callable[..., EmbeddedProvider]
Connect = Callable[..., Client]
