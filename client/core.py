"""Whose supervisor runs a turn: the daemon of the home, or one that is started for the run and ends with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Union

from fanjoin.client.daemon import DaemonCore, find_daemon

if TYPE_CHECKING:
    from fanjoin.client.core_process import CoreProcess

Core = Union["CoreProcess", DaemonCore]


def core_for(home: Path, *, attach: bool = True) -> "CoreProcess | DaemonCore":
    """Return the supervisor to use; one of our own begins to load now.

    Args:
        home: the home folder, prepared.
        attach: use the daemon that serves the home, if there is one.

    Raises:
        OSError: none can be started.
    """
    daemon = find_daemon(home) if attach else None
    if daemon is not None:
        return DaemonCore(home, daemon)
    from fanjoin.client.core_process import CoreProcess  # late: beside a daemon it is not needed

    return CoreProcess(home)
