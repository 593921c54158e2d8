"""The thread that speaks with the supervisor. It owns the socket, and it alone ends the process in good order.

The loop hands it messages and waits for answers. A cancel is answered here at once, even when the loop is stuck in a
model call or a tool: the link takes what the loop's account holds, sends it as the result, and leaves once that is
acknowledged. A process that exits normally loses what its socket has not sent yet: hence the acknowledgement, the
repetition until it comes, and the linger.
"""

import contextlib
import os
import queue
import socket
import sys
import threading
import time
import traceback
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import zmq

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.toolsets.commands import Commands
from fanjoin.ipc.bootstrap import AgentBootstrap
from fanjoin.ipc.codec import Spooled, agent_side
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.ids import new_id
from fanjoin.ipc.messages import (
    AgentTask,
    Bye,
    CallRequest,
    Cancel,
    Delegate,
    Hello,
    Joined,
    Outcome,
    Progress,
    Reject,
    Result,
    ResultAck,
    ToAgent,
    Welcome,
)
from fanjoin.ipc.platform import POLLS_PIPES, has_children

RESEND_SECONDS = 0.5
LINGER_SECONDS = 1.0
_RECONNECT_MS = 20
_JOIN = "j_"


class Link:
    """One agent's connection. ``send``, ``welcome``, ``join`` and ``finish`` are for the loop's thread.

    Args:
        bootstrap: who this process is.
        account: what it has to show when it is cancelled.
        commands: what its tools started, which ends with it.
        stop: called instead, from the link's thread, where the work itself has to end and to say how.
    """

    def __init__(
        self,
        bootstrap: AgentBootstrap,
        account: Account,
        commands: Commands | None = None,
        stop: Callable[[Cancel], None] | None = None,
    ) -> None:
        self._who = {"run_id": bootstrap.run_id, "attempt_id": bootstrap.attempt_id}
        self._nonce = bootstrap.nonce
        self._endpoints = bootstrap.endpoints
        self._account = account
        self._commands = commands or Commands()
        self._stop = stop
        self._codec = agent_side(bootstrap.endpoints.spool)
        self._outbox: deque[tuple[bytes, Result | None]] = deque()
        self._inbox: queue.SimpleQueue[AgentTask | Joined] = queue.SimpleQueue()
        self._result: Result | None = None
        self._result_frame = b""
        self._result_file: Path | None = None
        self._resend_at = 0.0

    def start(self, lifeline: int) -> None:
        """Connect, say hello, and serve from now on.

        Args:
            lifeline: the readable end of a pipe; the process ends at once when the other end is closed.
        """
        # First the hello, from this thread: the rest can be made while the supervisor reads it.
        context, dealer = connect(self._endpoints, self._nonce)
        dealer.send(self._frame(Hello, nonce=self._nonce, pid=os.getpid()))
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        # Not by threading: its objects cost an agent 100 KiB and 0.4 ms, and nothing here needs them.
        start_new_thread(self._run, (context, dealer, lifeline))

    def welcome(self) -> AgentTask:
        """Wait for the work of this process."""
        while True:
            message = self._inbox.get()
            if isinstance(message, AgentTask):
                return message

    def send(self, kind: type[msgspec.Struct], **fields: object) -> None:
        """Send one message of this kind."""
        self._post(self._frame(kind, **fields))

    def join(self, calls: list[CallRequest]) -> dict[str, str]:
        """Hand calls to the supervisor and wait until all are answered; returns the answer to each call's id."""
        join_id = new_id(_JOIN)
        self.send(Delegate, join_id=join_id, calls=calls)
        while True:
            message = self._inbox.get()
            if isinstance(message, Joined) and message.join_id == join_id:
                self._account.budget = message.budget
                return {answer.tool_call_id: answer.content for answer in message.answers}

    def finish(self, outcome: Outcome) -> NoReturn:
        """Send the result; the process ends as soon as it is acknowledged."""
        result = Result(outcome=outcome, **self._who)
        self._post(self._codec.encode(result), result)
        while True:
            threading.Event().wait()

    def _frame(self, kind: type[msgspec.Struct], **fields: object) -> bytes:
        return self._codec.encode(kind(**self._who, **fields))

    def _post(self, frame: bytes, result: Result | None = None) -> None:
        self._outbox.append((frame, result))
        with contextlib.suppress(BlockingIOError):  # then it has been woken often enough
            self._wake.send(b"\0")

    # --- everything below runs in the link's thread ---

    def _run(self, context: "zmq.Context[zmq.Socket[bytes]]", dealer: "zmq.Socket[bytes]", lifeline: int) -> None:
        try:
            self._serve(dealer, lifeline)
            dealer.close(linger=int(LINGER_SECONDS * 1000))
            context.term()
            exit_now(0)
        except BaseException:  # noqa: BLE001 - without its link the process is nothing
            traceback.print_exc()
            exit_now(1)

    def _serve(self, dealer: "zmq.Socket[bytes]", lifeline: int) -> None:
        """Serve until the result is acknowledged, and say bye."""
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        if POLLS_PIPES:
            poller.register(lifeline, zmq.POLLIN)
        else:
            start_new_thread(_watch, (lifeline,))
        while True:
            ready = dict(poller.poll(self._patience()))
            if lifeline in ready:
                _read(lifeline)
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
                self._send_outbox(dealer)
            if dealer in ready and self._receive(dealer):
                break
            if self._result and time.monotonic() >= self._resend_at:
                self._send_result(dealer)
        self._commands.end()
        dealer.send(self._frame(Bye, childless=not has_children()))

    def _patience(self) -> int | None:
        """Return the milliseconds until the result has to be sent again."""
        return max(0, int((self._resend_at - time.monotonic()) * 1000) + 1) if self._result else None

    def _send_outbox(self, dealer: zmq.Socket[bytes]) -> None:
        while self._outbox and not self._result:
            frame, result = self._outbox.popleft()
            if result:
                self._end_with(result, frame)
            else:
                dealer.send(frame)

    def _end_with(self, result: Result, frame: bytes) -> None:
        self._result, self._result_frame = result, frame

    def _send_result(self, dealer: zmq.Socket[bytes]) -> None:
        """Send the result, or repeat it. The file of a large one is removed by its reader, and then made anew."""
        self._resend_at = time.monotonic() + RESEND_SECONDS
        if self._result_file and self._result_file.exists():
            return  # it is on its way
        if self._result_file and self._result:
            self._result_frame = self._codec.encode(self._result)
        self._result_file = self._spooled(self._result_frame)
        dealer.send(self._result_frame)

    def _spooled(self, frame: bytes) -> Path | None:
        """Return the file that a frame stands for, if it does."""
        try:
            return Path(self._endpoints.spool) / msgspec.msgpack.decode(frame, type=Spooled).name
        except msgspec.ValidationError:
            return None

    def _receive(self, dealer: zmq.Socket[bytes]) -> bool:
        """Take what has arrived; True when the result is acknowledged."""
        while dealer.poll(0):
            message = self._codec.decode(dealer.recv())
            if isinstance(message, ResultAck) and self._result:
                return True
            self._take(message, dealer)
        return False

    def _take(self, message: ToAgent, dealer: zmq.Socket[bytes]) -> None:
        match message:
            case Welcome():
                self._inbox.put(message.task)
            case Joined():
                self._inbox.put(message)
            case Cancel() if not self._result:
                self._cancel(message, dealer)
            case Reject():
                sys.stderr.write(f"The supervisor rejected this process: {message.reason}\n")
                exit_now(1)

    def _cancel(self, cancel: Cancel, dealer: zmq.Socket[bytes]) -> None:
        self._send_outbox(dealer)  # what the loop said before
        if self._result:
            return
        if self._stop:
            self._stop(cancel)
            return
        account = self._account
        account.stop()
        interrupted = account.interrupted()
        self._commands.ask_to_end()
        if interrupted:
            dealer.send(self._frame(Progress, step=account.steps, messages=interrupted))
        text = f"ended on request ({cancel.reason}) before it had an answer"
        result = Result(outcome=account.ended("cancelled", cancel.reason, text), **self._who)
        self._end_with(result, self._codec.encode(result))


def _watch(lifeline: int) -> None:
    while True:
        _read(lifeline)


def _read(lifeline: int) -> None:
    """Read what came through the lifeline, and end this process at once when it was the end: nobody is there."""
    try:
        if os.read(lifeline, 512):
            return
    except OSError:
        traceback.print_exc()
    os._exit(1)


def connect(endpoints: Endpoints, nonce: str) -> tuple["zmq.Context[zmq.Socket[bytes]]", "zmq.Socket[bytes]"]:
    """Return a socket to the supervisor, which knows it by its nonce, and the context to end when it is closed."""
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.ROUTING_ID, nonce.encode())
    dealer.setsockopt(zmq.LINGER, int(LINGER_SECONDS * 1000))
    dealer.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    if endpoints.server_key:
        dealer.setsockopt(zmq.CURVE_SERVERKEY, endpoints.server_key.encode())
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, endpoints.client_public.encode())
        dealer.setsockopt(zmq.CURVE_SECRETKEY, endpoints.client_secret.encode())
    dealer.connect(endpoints.back)
    return context, dealer


def exit_now(code: int) -> NoReturn:
    """End this process without unwinding it: other threads may be stuck in it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody is left to read it
            stream.flush()
    os._exit(code)
