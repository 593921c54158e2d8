"""A supervisor process, from its first import to its last: zygote first, then the viewer's word, then the service."""

import os
import signal
import sys
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
    try:
        service = Service(bootstrap, zygote, os.environ.get(RUN_TAG, ""))
    except FanjoinError as error:
        write_frame(answers, CoreReady(error=str(error), exit_code=error.exit_code))
        os._exit(error.exit_code)
    write_frame(answers, CoreReady(endpoints=service.endpoints))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.viewers_lost())
    service.run(lifeline)
    os._exit(0)


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
