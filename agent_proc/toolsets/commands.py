"""Commands that run for an agent: each the leader of a session of its own, none of which outlives the agent.

A command's output is read by a thread into bounded memory, so that none can fill the machine; another thread waits for
its end. What it left in its process group ends with it.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping

from fanjoin.agent_proc.toolsets.output import Output
from fanjoin.ipc import platform

TERM_SECONDS = 1.0
"""How long a command may take to end when it is asked to, before it is ended by force."""
_DRAIN_SECONDS = 0.5  # how long the output of an ended command is read on, when something else holds it open
_END_SECONDS = TERM_SECONDS + 2 * _DRAIN_SECONDS  # from SIGKILL until its end is known, what it left included


class Command:
    """One command line that was started. It has ended when ``ended`` is set; ``exit_code`` is its result then."""

    def __init__(self, line: str, folder: str, environment: Mapping[str, str]) -> None:
        self.line = line
        self.output = Output()
        self.ended = threading.Event()
        self.exit_code: int | None = None
        self.began = time.monotonic()
        self.seconds = 0.0
        self._process = subprocess.Popen(
            platform.shell_command(line),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            **platform.detached_flags(),
        )
        platform.lead_group(self._process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def ask_to_end(self) -> None:
        """Send the polite signal to the whole group, if it has not ended."""
        if not self.ended.is_set():
            platform.polite_stop(self._process.pid)

    def end(self, seconds: float = TERM_SECONDS) -> None:
        """End it: politely, and after so many seconds by force. Returns when the whole group is gone."""
        self.ask_to_end()
        if not self.ended.wait(seconds):
            platform.end_process(self._process.pid)
            self.ended.wait(_END_SECONDS)

    def _read(self) -> None:
        stream = self._process.stdout
        if stream is not None:
            with contextlib.suppress(OSError, ValueError), stream:
                while data := os.read(stream.fileno(), 65_536):
                    self.output.add(data)

    def _wait(self) -> None:
        """Wait for the end of the shell; then end what it left behind, while its number still names its group."""
        pid = self._process.pid
        platform.await_exit(self._process)
        self.seconds = time.monotonic() - self.began
        platform.end_process(pid)
        code = self._process.wait()
        platform.reap_group(pid, TERM_SECONDS)
        self._reader.join(_DRAIN_SECONDS)
        self.exit_code = code
        self.ended.set()


class Commands:
    """All commands of one agent. The link's thread ends them when the agent is cancelled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Command] = []
        self._over = False

    def start(self, line: str, folder: str, environment: Mapping[str, str]) -> Command:
        """Start a command.

        Raises:
            OSError: it cannot be started.
        """
        with self._lock:
            if not self._over:
                command = Command(line, folder, environment)
                self._running = [one for one in self._running if not one.ended.is_set()]
                self._running.append(command)
                return command
        return _for_ever()

    def ask_to_end(self) -> None:
        """Ask all of them to end, and let no new one begin."""
        with self._lock:
            self._over = True
            for command in self._running:
                command.ask_to_end()

    def end(self) -> None:
        """End all of them; returns when nothing is left of their groups."""
        self.ask_to_end()
        deadline = time.monotonic() + TERM_SECONDS
        for command in self._running:
            command.end(max(0.0, deadline - time.monotonic()))


def _for_ever() -> Command:
    """Wait: this process is about to end."""
    while True:
        threading.Event().wait()
