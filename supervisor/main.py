"""A supervisor process, from its first import to its last: zygote first, then the viewer's word, then the service."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import zmq  # noqa: F401 - imported before the zygote is forked, so that both share it

from fanjoin.ipc import platform
from fanjoin.ipc.bootstrap import CoreBootstrap, CoreReady, read_frame, write_frame
from fanjoin.ipc.environment import RUN_TAG
from fanjoin.ipc.errors import FanjoinError

if TYPE_CHECKING:
    from fanjoin.supervisor.launch.zygote import ZygoteHandle


def main() -> NoReturn:
    """Run a supervisor whose viewer is at the other end of standard input and output."""
    platform.reset_signals()
    zygote = early_zygote()
    platform.contain_own_tree()
    platform.become_subreaper()
    lifeline, answers = take_standard_streams()
    from fanjoin.supervisor.service import Service  # not in the zygote: agents need none of it

    bootstrap = read_frame(lifeline, CoreBootstrap)
    if bootstrap is None:
        os._exit(0)
    viewer = Lifeline(lifeline)
    try:
        service = Service(bootstrap, zygote, os.environ.get(RUN_TAG, ""))
    except FanjoinError as error:
        write_frame(answers, CoreReady(error=str(error), reason=error.reason))
        os._exit(error.exit_code)
    write_frame(answers, CoreReady(endpoints=service.endpoints))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.end())
    viewer.when_ended(service.viewers_lost)
    service.run()
    os._exit(0)


class Lifeline:
    """The viewer's pipe. Its end ends this process at once, until somebody else takes care of that."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._ended = False
        self._callback: Callable[[], None] = lambda: os._exit(1)
        threading.Thread(target=self._watch, daemon=True).start()

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call this, from another thread, instead; at once when the end has come."""
        with self._lock:
            self._callback = callback
            if self._ended:
                callback()

    def _watch(self) -> None:
        while self._stream.read(4096):
            pass
        with self._lock:
            self._ended = True
            self._callback()


def early_zygote() -> "ZygoteHandle | None":
    """Fork the zygote while this process has one thread, no lock and no key."""
    if sys.platform != "linux":
        return None
    from fanjoin.supervisor.launch.zygote import fork_zygote

    return fork_zygote()


def take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Move the viewer's pipes off 0 and 1, so that nothing that we start or import can touch them."""
    lifeline = open(os.dup(0), "rb", buffering=0)  # noqa: SIM115 - open as long as the process
    answers = open(os.dup(1), "wb")  # noqa: SIM115 - its end tells the viewer that we are gone
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return lifeline, answers
