"""A supervisor as its viewers see it: started here, spoken to by messages, killed when a test wants it."""

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from msgspec import Struct
from run_support import DEADLINE, Home, plan

from fanjoin.client.core_process import CoreProcess
from fanjoin.client.run import AGENT_ENTRY
from fanjoin.client.viewer import Viewer
from fanjoin.ipc.bootstrap import CoreBootstrap
from fanjoin.ipc.messages import Accepted, Submit, TurnDone
from fanjoin.ipc.paths import prepare_home
from fanjoin.ipc.payload import TurnFlags, payload_json
from fanjoin.ipc.session_messages import CreateSession, SessionSnapshot
from fanjoin.ipc.settings import DelegationLimits, Endpoint, SupervisorSettings, TurnSettings

Answer = TypeVar("Answer", bound=Struct)


class Client:
    """One viewer. What it is told stays in ``told`` until a test takes it."""

    def __init__(self, owner: "Owner", name: str) -> None:
        self._viewer = Viewer(owner.endpoints, name)
        self.told: list[Struct] = []

    def send(self, message: Struct) -> None:
        """Send a message."""
        self._viewer.send(message)

    def take(self, kind: type[Answer], wanted: Callable[[Answer], bool] = lambda _: True) -> Answer:
        """Return, and forget, the first message of this kind that is wanted; wait for it."""
        deadline = time.monotonic() + DEADLINE
        while True:
            self.read()
            for message in self.told:
                if isinstance(message, kind) and wanted(message):
                    self.told.remove(message)
                    return message
            left = deadline - time.monotonic()
            assert left > 0, f"no {kind.__name__}; told so far: {self.told}"
            self._viewer.wait(left)

    def read(self) -> None:
        """Read what has arrived."""
        while (message := self._viewer.receive()) is not None:
            self.told.append(message)

    def ask(self, message: Any, kind: type[Answer]) -> Answer:
        """Send a request and return its answer."""
        self.send(message)
        return self.take(kind, lambda answer: answer.request_id == message.request_id)  # type: ignore[attr-defined]

    def session(self, request_id: str = "r_create", **more: Any) -> str:
        """Make a session and return its name."""
        snapshot = self.ask(CreateSession(request_id=request_id, **more), SessionSnapshot)
        return snapshot.session_id

    def close(self) -> None:
        """Leave."""
        self._viewer.close()


class Owner:
    """A supervisor process of a home."""

    def __init__(self, home: Home, *, daemon: bool = True, environ: dict[str, str] | None = None) -> None:
        self.core = CoreProcess(prepare_home(home.path))
        self._home = home
        self._clients: list[Client] = []
        bootstrap = CoreBootstrap(
            home=str(home.path),
            instance_id=self.core.instance_id,
            owned=True,
            agent_entry=AGENT_ENTRY,
            settings=SupervisorSettings(),
            environ=environ or {},
            daemon=daemon,
        )
        self.endpoints = self.core.endpoints(bootstrap)

    def client(self, name: str = "v") -> Client:
        """Connect a viewer."""
        client = Client(self, name)
        self._clients.append(client)
        return client

    def submit(self, session_id: str, text: str, *, finite: bool = True, key: str = "", **more: Any) -> Submit:
        """Return a submission whose settings name the test's provider."""
        endpoint = Endpoint(base_url=self._home.provider.url, model="synthetic", api_key=key)
        settings = TurnSettings(
            endpoint=endpoint, delegate_endpoint=endpoint, limits=DelegationLimits(), cwd=os.getcwd()
        )
        fields = {"request_id": f"r_{text}", "payload_json": payload_json(text, TurnFlags(), finite=finite)}
        return Submit(session_id=session_id, text=text, finite=finite, settings=settings, **{**fields, **more})

    def run(self, client: Client, session_id: str, text: str, **more: Any) -> TurnDone:
        """Submit a turn and return its end."""
        accepted = client.ask(self.submit(session_id, text, **more), Accepted)
        return client.take(TurnDone, lambda done: done.admission_id == accepted.admission_id)

    def kill(self) -> None:
        """Kill it, as nobody can prevent, and wait until nothing of it is left."""
        os.kill(self.core.pid, signal.SIGKILL)
        self.core.close(10)
        self._home.check_no_process()

    def close(self) -> None:
        """End it in good order."""
        for client in self._clients:
            client.close()
        self.core.close(20)


class Owners:
    """Starts supervisors and ends them."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._owners: list[Owner] = []

    def start(self, **how: Any) -> Owner:
        """Start one."""
        owner = Owner(self._home, **how)
        self._owners.append(owner)
        return owner

    def close(self) -> None:
        """End all."""
        for owner in self._owners:
            owner.close()


def background(*goals: str) -> str:
    """Return a text whose turn dispatches these goals and then says so."""
    return plan({"delegate": list(goals)}, {"text": "Dispatched."})


def write(home: Home, sql: str) -> None:
    """Change state.db behind everybody's back."""
    with closing(sqlite3.connect(home.path / "state.db", isolation_level=None, timeout=10)) as connection:
        connection.execute(sql)


def messages(home: Home, session_id: str) -> list[dict[str, Any]]:
    """Return a session's conversation as it is stored."""
    sql = f"SELECT message FROM messages WHERE session_id = '{session_id}' ORDER BY seq"  # noqa: S608
    return [json.loads(text) for (text,) in home.rows(sql)]


def told_results(home: Home, session_id: str) -> list[str]:
    """Return the user messages that tell a joined result."""
    return [
        one["content"]
        for one in messages(home, session_id)
        if one["role"] == "user" and '"results"' in str(one["content"])
    ]
