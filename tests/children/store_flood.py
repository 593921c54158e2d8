"""Write receipts without end and print each acknowledged ticket. Arguments: the home, the samples' folder."""

import itertools
import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, sys.argv[2])

from store_samples import finished, open_store, owner, turn

from fanjoin.supervisor.store.writer import Committed

IN_FLIGHT = 64
free = threading.Semaphore(IN_FLIGHT)


def told(committed: list[Committed]) -> None:
    """Print what is on disk, at once."""
    lines = "".join(f"{one.ticket} {one.error or 'ok'}\n" for one in committed)
    os.write(1, lines.encode())
    for _ in committed:
        free.release()


store = open_store(Path(sys.argv[1]), owner(), told)
store.submit(0, turn())
for ticket in itertools.count(1):
    free.acquire()
    store.submit(ticket, finished(f"d_{ticket}"))
