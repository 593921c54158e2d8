"""What the agent's tests share: a supervisor's end of the link, and a model server that follows a script."""

import contextlib
import json
import os
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self, TypeVar

import zmq

from fanjoin.ipc.bootstrap import AGENT_LIMIT, AgentBootstrap, pack_frame
from fanjoin.ipc.codec import back_side
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.messages import (
    AgentTask,
    Bye,
    FromAgent,
    Hello,
    Outcome,
    Progress,
    Result,
    ResultAck,
    ToAgent,
    Welcome,
)
from fanjoin.ipc.settings import Endpoint

DEADLINE = 15.0
KEY = "sk-test-0123456789abcdef"
_ENTRY = "from fanjoin.ipc.agent_start import main; main()"

Kind = TypeVar("Kind")
Answer = Callable[["Handler"], None]


# --- the model server ---


class Handler(BaseHTTPRequestHandler):
    """Answers each request by the next step of its server's script."""

    protocol_version = "HTTP/1.1"
    server: "ModelServer"

    def do_POST(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.take(dict(self.headers), self.path, json.loads(body))(self)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        """Send a whole reply with its length."""
        self.send_response(status)
        for name, value in {"content_type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *parts: bytes) -> None:
        """Begin a stream that ends with its connection, and send parts of it."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for part in parts:
            self.wfile.write(part)
            self.wfile.flush()


class ModelServer(socketserver.ThreadingMixIn, HTTPServer):
    """A model server on loopback. The script's last answer repeats; requests are recorded as they come."""

    daemon_threads = True

    def __init__(self, *script: Answer, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"
        self.script = list(script)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.arrived = threading.Semaphore(0)
        self.released = threading.Event()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def endpoint(self) -> Endpoint:
        """An endpoint of this server."""
        return Endpoint(base_url=self.url, model="m", api_key=KEY)

    def take(self, headers: dict[str, str], path: str, body: dict[str, Any]) -> Answer:
        """Record a request and return how to answer it."""
        self.paths.append(path)
        self.headers.append(headers)
        self.bodies.append(body)
        self.arrived.release()
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def handle_error(self, *_: object) -> None:
        """A client that leaves is part of the tests."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()


def event(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """Return one chunk of a stream."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"


def usage(prompt: int, completion: int) -> bytes:
    """Return the chunk with the token counts."""
    return event(usage={"prompt_tokens": prompt, "completion_tokens": completion})


DONE = b"data: [DONE]\n\n"


def streams(*parts: bytes) -> Answer:
    """Answer with these bytes of a stream, then close."""
    return lambda handler: handler.stream(*parts)


def says(*texts: str, finish: str = "stop") -> Answer:
    """Answer with a text in pieces, and 10 + 5 tokens."""
    pieces = [event({"content": text}) for text in texts]
    return streams(*pieces, event({}, finish), usage(10, 5), DONE)


def asks(*calls: tuple[str, str, object]) -> Answer:
    """Answer with tool calls: id, name and arguments (a text as it is, anything else as its JSON)."""
    deltas = [
        {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for index, (call_id, name, given) in enumerate(calls)
    ]
    return streams(event({"tool_calls": deltas}), event({}, "tool_calls"), usage(10, 5), DONE)


def plain(message: dict[str, Any], finish: str = "stop") -> Answer:
    """Answer with plain JSON although a stream was asked for."""
    body = {"choices": [{"message": message, "finish_reason": finish}], "usage": {"prompt_tokens": 3}}
    return lambda handler: handler.reply(200, json.dumps(body).encode())


def refuses(status: int, error: object = "no", **headers: str) -> Answer:
    """Answer with an error."""
    return lambda handler: handler.reply(status, json.dumps({"error": error}).encode(), **headers)


def hangs(*parts: bytes) -> Answer:
    """Send parts of a stream and then nothing more until the server ends."""

    def answer(handler: Handler) -> None:
        handler.stream(*parts)
        handler.server.released.wait(DEADLINE)

    return answer


def drops(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


# --- the supervisor's end ---


class Supervisor:
    """Plays the supervisor for one agent process."""

    def __init__(self, folder: Path, *, curve: bool = False) -> None:
        self.spool = folder / "spool"
        self.spool.mkdir()
        self.curve = curve
        self.folder = folder
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.LINGER, 0)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.codec = back_side(self.spool)
        self.endpoints = self._bind()
        self.seen: list[FromAgent] = []
        self.process: subprocess.Popen[bytes] | None = None

    def _bind(self) -> Endpoints:
        spool = str(self.spool)
        if not self.curve and sys.platform != "win32":
            address = f"ipc://{self.folder / 'b'}"
            self.router.bind(address)
            return Endpoints(back=address, spool=spool)
        server_key, server_secret = zmq.curve_keypair()
        public, secret = zmq.curve_keypair()
        self.router.curve_server = True
        self.router.curve_secretkey = server_secret
        self.router.bind("tcp://127.0.0.1:*")
        address = self.router.getsockopt_string(zmq.LAST_ENDPOINT)
        keys = {"server_key": server_key, "client_public": public, "client_secret": secret}
        return Endpoints(back=address, spool=spool, **{name: key.decode() for name, key in keys.items()})

    def start(self, endpoint: Endpoint, *, memory_limit_mb: int = 0, code: str = _ENTRY, **environ: str) -> None:
        """Start an agent process as a fresh interpreter."""
        bootstrap = AgentBootstrap(
            run_id="i_run",
            attempt_id="d_one.1",
            nonce="nonce",
            entry="fanjoin.agent_proc.main:run",
            depth=0,
            endpoints=self.endpoints,
            endpoint=endpoint,
            memory_limit_mb=memory_limit_mb,
        )
        kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TEMP", "TMP") if name in os.environ}
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env={**kept, **environ},
                cwd=self.folder,
            )
        assert self.process.stdin
        self.process.stdin.write(pack_frame(bootstrap, AGENT_LIMIT))
        self.process.stdin.flush()

    def receive(self, kind: type[Kind], seconds: float = DEADLINE) -> Kind:
        """Return the next message of this kind; the others are recorded, too."""
        until = time.monotonic() + seconds
        while self.router.poll(max(0, int((until - time.monotonic()) * 1000))):
            identity, frame = self.router.recv_multipart()
            assert identity == b"nonce"
            message = self.codec.decode(frame)
            self.seen.append(message)
            if isinstance(message, kind):
                return message
        raise AssertionError(f"no {kind.__name__} within {seconds} s; seen {self.seen[-5:]}; stderr: {self.stderr()}")

    def send(self, message: ToAgent) -> None:
        """Send a message to the agent."""
        self.router.send_multipart([b"nonce", self.codec.encode(message)])

    def welcome(self, task: AgentTask) -> Hello:
        """Wait for the hello and give the work."""
        hello = self.receive(Hello)
        self.send(Welcome(task=task))
        return hello

    def finish(self, seconds: float = DEADLINE) -> Outcome:
        """Wait for the result, acknowledge it, and see the process end well."""
        outcome = self.receive(Result, seconds).outcome
        self.send(ResultAck())
        assert self.receive(Bye).childless
        assert self.exit_code() == 0
        return outcome

    def run(self, endpoint: Endpoint, task: AgentTask, **environ: str) -> Outcome:
        """Run an agent from its start to its end."""
        self.start(endpoint, **environ)
        self.welcome(task)
        return self.finish()

    def progress(self) -> list[Progress]:
        """Return the progress seen so far."""
        return [message for message in self.seen if isinstance(message, Progress)]

    def exit_code(self, seconds: float = DEADLINE) -> int:
        """Wait for the end of the process."""
        assert self.process
        return self.process.wait(seconds)

    def stderr(self) -> str:
        """Return what the agent wrote to its standard error."""
        return (self.folder / "err").read_text(encoding="utf-8", errors="replace")

    def hang_up(self) -> None:
        """Close the agent's lifeline."""
        assert self.process
        assert self.process.stdin
        self.process.stdin.close()

    def close(self) -> None:
        """End what is left."""
        if self.process:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(OSError):
                self.hang_up()
        self.router.close()
        self.context.term()


@contextlib.contextmanager
def serving(*script: Answer) -> Iterator[ModelServer]:
    """Run a model server with a script."""
    with ModelServer(*script) as server:
        yield server


def task(text: str = "do it", **fields: Any) -> AgentTask:
    """Return an agent's work."""
    return AgentTask(owner_id="d_one", session_id="s_one", text=text, **fields)
