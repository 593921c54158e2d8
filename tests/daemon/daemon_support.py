"""What the tests of the daemon share: a home that a daemon serves, and a client of its WebSocket."""

import contextlib
import json
import os
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from run_support import DEADLINE, GONE_SECONDS, Home, Provider, wait_until
from websockets.sync.client import ClientConnection, connect

MAX_FRAME = 32 << 20


class DaemonHome(Home):
    """A home folder of one test that a daemon may serve."""

    def __init__(self, path: Path, provider: Provider) -> None:
        super().__init__(path, provider)
        self.daemon_env = self.env

    def configure(self, more: str = "") -> None:
        """Write config.yaml with this test's model."""
        self.config(f"model: {{base_url: {self.provider.url}, model: synthetic}}\n{more}\n")

    def start_daemon(self) -> dict[str, Any]:
        """Start a daemon in the background and return its descriptor."""
        done = subprocess.run(
            self.command("daemon", "start"), env=self.daemon_env, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return self.descriptor()

    def run_daemon(self, **popen: Any) -> "subprocess.Popen[bytes]":
        """Start a daemon in the foreground and return once it is ready."""
        process = subprocess.Popen(self.command("daemon", "run"), env=self.daemon_env, **popen)
        wait_until(lambda: self.serves(process.pid), "ready descriptor")
        return process

    def serves(self, pid: int) -> bool:
        """Say whether the descriptor names this process."""
        with contextlib.suppress(OSError):
            return bool(self.descriptor()["pid"] == pid)
        return False

    def descriptor(self) -> dict[str, Any]:
        """Return what the daemon says of itself."""
        value: dict[str, Any] = json.loads((self.path / "run" / "daemon.json").read_bytes())
        return value

    def descriptor_gone(self) -> bool:
        """Say whether no daemon calls itself ready."""
        return not (self.path / "run" / "daemon.json").exists()

    def process(self) -> psutil.Process:
        """Return the daemon's process."""
        return psutil.Process(self.descriptor()["pid"])

    def stop_daemon(self) -> None:
        """Stop the daemon and check that nothing of it is left."""
        done = self.other("daemon", "stop", "--now")
        assert done.returncode == 0, done.stderr
        self.check_daemon_gone()
        self.check_records()

    def check_daemon_gone(self) -> None:
        """Check that no process of this home lives, and nothing but the lock file is left."""
        wait_until(lambda: not self.processes(), "end of all processes", GONE_SECONDS)
        assert {path.name for path in (self.path / "run").iterdir()} == {"daemon.lock"}

    def kill_daemon(self) -> None:
        """End the daemon by SIGKILL, and wait until the zygote has ended what it left."""
        self.process().kill()
        wait_until(lambda: not self.processes(), "end of all processes", GONE_SECONDS)

    @contextlib.contextmanager
    def client(self, **options: Any) -> Iterator["Client"]:
        """Connect to the WebSocket."""
        told = self.descriptor()
        headers = {"Authorization": f"Bearer {told['token']}"}
        with connect(told["url"], additional_headers=headers, proxy=None, **{"max_size": MAX_FRAME, **options}) as wire:
            yield Client(wire)


class RefusedError(Exception):
    """An error that the daemon answered."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error}")
        self.code: int = error["code"]
        self.reason: str = error["message"]
        self.data: dict[str, Any] = error.get("data", {})


class Client:
    """A JSON-RPC client that keeps the events that come between answers."""

    def __init__(self, wire: ClientConnection) -> None:
        self.wire = wire
        self.events: deque[dict[str, Any]] = deque()
        self._next = 0

    def send(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        self._next += 1
        self.wire.send(json.dumps({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}))
        return self._next

    def call(self, method: str, **params: Any) -> Any:
        """Send a request and return its result."""
        return self.answer(self.send(method, **params))

    def answer(self, request_id: int | None) -> Any:
        """Wait for the answer to a request; events that come before it are kept."""
        while True:
            message = json.loads(self.wire.recv(timeout=DEADLINE))
            if message.get("method") == "event":
                self.events.append(message["params"])
            elif message["id"] == request_id:
                if "error" in message:
                    raise RefusedError(message["error"])
                return message["result"]

    def event(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the next event of a kind (and with these members); those before it are dropped."""
        while True:
            event = self.events.popleft() if self.events else json.loads(self.wire.recv(timeout=DEADLINE))["params"]
            if event["type"] == kind and all(event[name] == value for name, value in fields.items()):
                found: dict[str, Any] = event
                return found

    def session(self, **params: Any) -> str:
        """Create a session and return its name."""
        created: str = self.call("session.create", **params)["session_id"]
        return created

    def turn(self, session_id: str, text: str, **params: Any) -> dict[str, Any]:
        """Run a finite turn and return its end."""
        told = self.call("prompt.submit", session_id=session_id, text=text, finite=True, **params)
        return self.event("message.complete", admission_id=told["admission_id"])["payload"]


def descriptors(process: psutil.Process) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{process.pid}/fd")) if os.path.isdir("/proc") else process.num_fds()
