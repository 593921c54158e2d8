"""What the zygote does before it freezes: load everything that an agent needs, late imports included."""

import importlib
import io
import socket
from collections.abc import Iterator
from typing import Any

from fanjoin.agent_proc.http import Http
from fanjoin.agent_proc.link import connect
from fanjoin.agent_proc.provider.chat_completions import ChatCompletions
from fanjoin.ipc.bootstrap import AGENT_LIMIT, AgentBootstrap, pack_frame, read_frame
from fanjoin.ipc.codec import agent_side
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.messages import AgentTask, Welcome
from fanjoin.ipc.settings import Endpoint, ModelLimits

_CALLS = 8  # the interpreter rewrites code for speed after so many calls; each agent would copy the pages it writes to
_EVENTS = b'data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def rehearse() -> Iterator[None]:
    """Do what every agent does, once a step.

    Raises:
        OSError, ProviderError: there is no loopback network.
    """
    _read_messages()
    _ask_model()
    yield
    for _ in range(_CALLS - 1):
        _ask_model()
        _open_link()
        yield
    _load_other_formats()
    yield
    importlib.import_module("fanjoin.agent_proc.worker")  # the entry of delegates whose work a program does
    yield


def _load_other_formats() -> None:
    """Load the wire formats that the rehearsed calls do not use."""
    from fanjoin.agent_proc.provider import anthropic_messages, responses  # noqa: F401


def _read_messages() -> None:
    """Let the codec inspect the message types, which it does once per type."""
    endpoint = Endpoint(base_url="", model="")
    bootstrap = AgentBootstrap(
        run_id="", attempt_id="", nonce="", entry="", depth=0, endpoints=Endpoints(), endpoint=endpoint
    )
    read_frame(io.BytesIO(pack_frame(bootstrap)), AgentBootstrap, AGENT_LIMIT)
    codec = agent_side()
    codec.decode(codec.encode(Welcome(task=AgentTask(owner_id="", session_id="", text=""))))


def _open_link() -> None:
    """Open a link's socket and close it; its threads end with it."""
    context, dealer = connect(Endpoints(back="inproc://nobody"), "rehearsal")
    dealer.poll(0)
    dealer.close(linger=0)
    context.term()


def _ask_model() -> None:
    """Make a real model call to a socket of this process, with no second thread.

    The kernel takes the connection and the request; they are answered from inside the client, when it begins to wait.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer(stage: str, _: dict[str, Any]) -> None:
            if stage == "http11.receive_response_headers.started":
                _answer(listener)

        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        client = ChatCompletions(Endpoint(base_url=url, model="none", api_key="none"), Http(url, ModelLimits(), answer))
        client.complete([{"role": "user", "content": "ok"}], [], lambda _: None)
        client.close()


def _answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        request = b""
        while not request.endswith(b"}"):  # the end of its JSON body
            request += connection.recv(65_536)
        connection.sendall(_HEAD + _EVENTS)
