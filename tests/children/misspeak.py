"""An agent that is the real one, except that a delegate may break the protocol, as its goal's first word says.

``run`` misspeaks at its first step. ``mute`` and ``early`` are for what happens before any goal is known: of all
delegates of a home the first one to start never says hello, or is killed before it does.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from fanjoin.agent_proc import link as link_module
from fanjoin.agent_proc import loop, main
from fanjoin.ipc.bootstrap import AgentBootstrap
from fanjoin.ipc.codec import agent_side
from fanjoin.ipc.messages import Hello, Outcome, Progress, Result, ToolTrace


class Speaker:
    """Says what a well-behaved agent never would, over the agent's own connection."""

    def __init__(self, bootstrap: AgentBootstrap, link: link_module.Link) -> None:
        self.bootstrap = bootstrap
        self.link = link
        self.who = {"run_id": bootstrap.run_id, "attempt_id": bootstrap.attempt_id}

    def say(self, frame: bytes) -> None:
        """Send any bytes as a frame."""
        self.link._post(frame)

    def sibling(self) -> str:
        """Return the attempt of another delegate of this run, taken from the name of its log."""
        own = self.bootstrap.attempt_id
        while True:
            for log in home().glob("run/*/d_*.log"):
                if log.stem != own:
                    return log.stem
            time.sleep(0.005)


def home() -> Path:
    """Return the home of the run."""
    return Path(os.environ["FANJOIN_HOME"])


def encoded(message: msgspec.Struct) -> bytes:
    """Return the frame of any message, also of one that has no business here."""
    return msgspec.msgpack.encode(message)


def garbage(speaker: Speaker) -> None:
    """Send what is no message at all, and wait."""
    for _ in range(3):
        speaker.say(b"\xc1 garbage")
    time.sleep(60)


def oversized(speaker: Speaker) -> None:
    """Send frames that are larger than a frame may be, and wait."""
    for _ in range(3):
        speaker.say(encoded(Progress(step=1, delta="x" * (2 << 20), **speaker.who)))
    time.sleep(60)


def twice_wrong(speaker: Speaker) -> None:
    """Send two bad frames: that is forgiven."""
    for _ in range(2):
        speaker.say(b"")


def impostor(speaker: Speaker) -> None:
    """Speak in another delegate's name over the own connection, and wait."""
    other = speaker.sibling()
    outcome = Outcome(status="completed", text="stolen")
    for _ in range(3):
        speaker.say(encoded(Result(run_id=speaker.bootstrap.run_id, attempt_id=other, outcome=outcome)))
    time.sleep(60)


def thief(speaker: Speaker) -> None:
    """Speak as another delegate, over connections that take its name and guess its nonce; then do the own work."""
    for routing_id in (speaker.sibling(), "guessed"):
        steal(speaker, routing_id)


def steal(speaker: Speaker, routing_id: str) -> None:
    """Speak as another delegate under a routing id."""
    other, endpoints = speaker.sibling(), speaker.bootstrap.endpoints
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.ROUTING_ID, routing_id.encode())
    dealer.connect(endpoints.back)
    codec = agent_side(Path(endpoints.spool))
    who = {"run_id": speaker.bootstrap.run_id, "attempt_id": other}
    for _ in range(5):
        dealer.send(codec.encode(Hello(nonce="guessed", pid=1, **who)))
        dealer.send(codec.encode(Result(outcome=Outcome(status="completed", text="stolen"), **who)))
    dealer.close(linger=500)
    context.term()


def flood(speaker: Speaker) -> None:
    """Send as much true progress as fits, then do the own work."""
    trace = [ToolTrace(tool="t", preview="p" * 1000)] * 50
    frame = encoded(Progress(step=1, delta="d" * 400_000, tool_started="s" * 400_000, trace=trace, **speaker.who))
    for _ in range(500):
        speaker.say(frame)


def greet_again(speaker: Speaker) -> None:
    """Say hello over and over, as if that started the clock anew."""
    hello = encoded(Hello(nonce=speaker.bootstrap.nonce, pid=os.getpid(), **speaker.who))
    while True:
        speaker.say(hello)
        time.sleep(0.05)


def replay(speaker: Speaker) -> None:
    """Repeat a result of an attempt that never was, then do the own work."""
    who = {"run_id": "i_other", "attempt_id": speaker.bootstrap.attempt_id}
    speaker.say(encoded(Result(outcome=Outcome(status="completed", text="old"), **who)))


def after_ack(speaker: Speaker) -> None:
    """Die of a fault when the result is acknowledged, instead of leaving in good order."""
    del speaker
    link_module.exit_now = lambda _code: os.kill(os.getpid(), signal.SIGSEGV)  # type: ignore[assignment]


def sent(speaker: Speaker) -> None:
    """Die of a fault in the moment in which the result has left."""
    send = speaker.link._send_result

    def send_and_die(dealer: "zmq.Socket[bytes]") -> None:
        send(dealer)
        context = dealer.context
        dealer.close(linger=1000)
        context.term()
        os.kill(os.getpid(), signal.SIGSEGV)

    speaker.link._send_result = send_and_die  # type: ignore[method-assign]


def lost(speaker: Speaker) -> None:
    """Lose the result: the work is done, the process ends well, and nothing is said."""
    speaker.link._send_result = lambda _dealer: os._exit(0)  # type: ignore[method-assign]


DEEDS: dict[str, Callable[[Speaker], None]] = {
    "garbage": garbage,
    "oversized": oversized,
    "twice-wrong": twice_wrong,
    "impostor": impostor,
    "thief": thief,
    "flood": flood,
    "greet-again": greet_again,
    "replay": replay,
    "after-ack": after_ack,
    "sent": sent,
    "lost": lost,
}


def run(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Run an agent that may misspeak. A file ``acked-ATTEMPT`` in the home says that its result was acknowledged."""
    real, leave = loop.Agent.run, link_module.exit_now

    def maybe(self: loop.Agent) -> object:
        deed = self._task.text.split(maxsplit=1)[0] if self._task.depth else ""
        if deed in DEEDS:
            link = self._join.__self__  # type: ignore[attr-defined]
            DEEDS[deed](Speaker(bootstrap, link))
        return real(self)

    def note_and_leave(code: int) -> None:
        if code == 0:
            (home() / f"acked-{bootstrap.attempt_id}").touch()
        leave(code)

    loop.Agent.run = maybe  # type: ignore[method-assign,assignment]
    link_module.exit_now = note_and_leave  # type: ignore[assignment]
    main.run(bootstrap, lifeline)


def _is_first_delegate(bootstrap: AgentBootstrap) -> bool:
    if not bootstrap.depth:
        return False
    try:
        (home() / "first").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def mute(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Run an agent; the first delegate hangs before its hello."""
    if _is_first_delegate(bootstrap):
        time.sleep(300)
    main.run(bootstrap, lifeline)


def early(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Run an agent; the first delegate is killed before its hello."""
    if _is_first_delegate(bootstrap):
        print("about to die", file=sys.stderr, flush=True)  # noqa: T201
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    main.run(bootstrap, lifeline)
