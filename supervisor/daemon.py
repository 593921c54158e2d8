"""The daemon's process: the supervisor of a home that outlives its viewers, and the gateway beside it."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import msgspec

from fanjoin.ipc import platform
from fanjoin.ipc.bootstrap import CoreBootstrap, CoreReady, read_frame, write_frame
from fanjoin.ipc.daemon_file import DaemonDescriptor
from fanjoin.ipc.environment import RUN_TAG
from fanjoin.ipc.errors import FanjoinError, RunError
from fanjoin.ipc.ids import new_secret
from fanjoin.ipc.messages import PROTOCOL_VERSION, JsonObject
from fanjoin.ipc.paths import daemon_file, daemon_lock
from fanjoin.ipc.version import VERSION
from fanjoin.supervisor.main import early_zygote, take_standard_streams

if TYPE_CHECKING:
    from fanjoin.supervisor.launch.zygote import ZygoteHandle

_ENDING_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")


def background() -> NoReturn:
    """Be the daemon of whoever started this process and waits for its first word at the other end of our output."""
    _run(in_foreground=False)


def foreground() -> NoReturn:
    """Be the daemon of a terminal or a service manager; the bootstrap waits on standard input."""
    _run(in_foreground=True)


def _run(*, in_foreground: bool) -> NoReturn:
    kept = _ignored_hangup()
    platform.reset_signals()
    zygote = early_zygote()
    platform.contain_own_tree()
    platform.become_subreaper()
    stdin, answers = take_standard_streams()
    bootstrap = read_frame(stdin, CoreBootstrap)
    stdin.close()
    if bootstrap is None:
        os._exit(0)
    try:
        daemon = Daemon(bootstrap, zygote, os.environ.get(RUN_TAG, ""))
    except FanjoinError as error:
        if in_foreground:
            _say(str(error))
        else:
            write_frame(answers, CoreReady(error=str(error), reason=error.reason))
        os._exit(error.exit_code)
    for name in _ENDING_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and number != kept:
            signal.signal(number, lambda *_: daemon.drain())
    daemon.publish()  # whoever reads it may send a signal at once
    if in_foreground:
        _say(f"fanjoin daemon {os.getpid()} serves {bootstrap.home} at {daemon.url}")
    else:
        _report_ready(answers, daemon)
    daemon.run()
    os._exit(0)


def _report_ready(answers: BinaryIO, daemon: "Daemon") -> None:
    """Say that it is ready; a start that was given up meanwhile leaves no daemon."""
    try:
        with answers:
            write_frame(answers, CoreReady(endpoints=daemon.endpoints))
    except OSError:
        daemon.drain()


def _ignored_hangup() -> int | None:
    """Return the number of SIGHUP when it was inherited as ignored, which is how nohup asks for it to stay so."""
    number = getattr(signal, "SIGHUP", None)
    return number if number is not None and signal.getsignal(number) is signal.SIG_IGN else None


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - in the foreground it speaks to a person


class Daemon:
    """The one daemon of a home.

    Args:
        bootstrap: what a supervisor needs; its ``environ`` may hold keys.
        zygote: forks the agents, where there is one.
        run_tag: marks every process below this one.

    Raises:
        UserError, RunError: another one serves the home, or this one cannot.
    """

    def __init__(self, bootstrap: CoreBootstrap, zygote: "ZygoteHandle | None", run_tag: str) -> None:
        from fanjoin.supervisor.gateway.book import Book  # late, like the service: agents need none of it
        from fanjoin.supervisor.gateway.methods import Methods
        from fanjoin.supervisor.gateway.server import FrontOffice, Gateway
        from fanjoin.supervisor.service import Service

        self._home = Path(bootstrap.home)
        self._lock = self._claim()
        self._service = Service(bootstrap, zygote, run_tag)
        self._service.outlive_viewers()
        self.endpoints = self._service.endpoints
        started_at = time.time()
        methods = Methods(_about(bootstrap, started_at), Book(self._home, bootstrap.environ), bootstrap.instance_id)
        office = FrontOffice(self._service.viewer_joined, self._service.viewer_said, self._service.viewer_left)
        token = new_secret() + new_secret()
        try:
            self._gateway = Gateway(office, methods.call, token)
        except OSError as error:
            raise RunError(f"The daemon cannot listen on 127.0.0.1: {error}. Nothing was started.") from error
        self.url = self._gateway.url
        self._descriptor = DaemonDescriptor(
            pid=os.getpid(),
            url=self.url,
            token=token,
            instance_id=bootstrap.instance_id,
            started_at=started_at,
            version=VERSION,
        )

    def _claim(self) -> object:
        """Become the one daemon of the home; the lock lives as long as this process."""
        lock = platform.try_lock(daemon_lock(self._home))
        if lock is None:
            raise RunError(f"A daemon serves {self._home} already; `fanjoin daemon status` names it.")
        return lock

    def publish(self) -> None:
        """Say that we are ready, whole or not at all."""
        path = daemon_file(self._home)
        part = path.with_suffix(f".{self._descriptor.instance_id}")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(self._descriptor))
        platform.replace(part, path)

    def drain(self) -> None:
        """End in good order; the second time at once. Safe to call from a signal handler."""
        self._service.drain()

    def run(self) -> None:
        """Serve until the end is asked for and nothing is left to do."""
        self._service.run(self._close_doors)

    def _close_doors(self) -> None:
        with contextlib.suppress(OSError):
            daemon_file(self._home).unlink()
        self._gateway.close()


def _about(bootstrap: CoreBootstrap, started_at: float) -> JsonObject:
    from fanjoin.supervisor.gateway.rpc import MAX_FRAME

    return {
        "name": "fanjoin",
        "version": VERSION,
        "protocol": PROTOCOL_VERSION,
        "instance_id": bootstrap.instance_id,
        "pid": os.getpid(),
        "home": bootstrap.home,
        "started_at": started_at,
        "limits": {
            "max_frame_bytes": MAX_FRAME,
            "max_processes": bootstrap.settings.max_processes,
            "drain_seconds": bootstrap.settings.drain_seconds,
        },
    }
