"""The supervisor's event loop: ZeroMQ sockets, descriptors, calls from other threads, and one deadline.

It is a plain poll: asyncio would cost 45 ms of start-up and hides when a process is reaped. Level-triggered polling
of the sockets themselves needs no care with ZMQ_FD, which is edge-triggered.
"""

import socket
from collections import deque
from collections.abc import Callable

import zmq

Callback = Callable[[], None]
Source = int | zmq.Socket[bytes]


class Loop:
    """Runs callbacks when their source is readable."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._callbacks: dict[Source, Callback] = {}
        self._posted: deque[Callback] = deque()
        self._wake_receive, self._wake_send = socket.socketpair()
        self._wake_receive.setblocking(False)
        self._wake_send.setblocking(False)
        self.watch(self._wake_receive.fileno(), self._woken)

    def watch(self, source: Source, callback: Callback) -> None:
        """Call back whenever the source is readable (a descriptor also when it is at its end)."""
        self._callbacks[source] = callback
        self._poller.register(source, zmq.POLLIN)

    def unwatch(self, source: Source) -> None:
        """Stop watching; an unknown source is fine."""
        if self._callbacks.pop(source, None) is not None:
            self._poller.unregister(source)

    def post(self, callback: Callback) -> None:
        """Have a callback run by the loop soon. The only method that other threads may call."""
        self._posted.append(callback)
        try:
            self._wake_send.send(b"\0")
        except OSError:
            return  # the loop has wakes enough waiting, or it is closed and nobody waits

    def run_once(self, timeout: float) -> None:
        """Wait for at most so many seconds and run what is due."""
        ready = self._poller.poll(max(0, int(timeout * 1000)) if not self._posted else 0)
        for source, _ in ready:
            callback = self._callbacks.get(source)
            if callback is not None:
                callback()
        while self._posted:
            self._posted.popleft()()

    def _woken(self) -> None:
        try:
            self._wake_receive.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Free the loop's own sockets."""
        self._wake_receive.close()
        self._wake_send.close()
