"""Watches what the processes of a load test use, from a thread that looks a few times a second."""

import threading
from typing import Self

from fanjoin.ipc.platform.usage import tree_usage

LOOK_SECONDS = 0.25


class Watch:
    """Samples the tree of a supervisor between entering and leaving.

    ``peak`` is the most memory of the whole tree at one look, ``by_process`` the most of each process, in bytes; what
    lives shorter than the time between two looks may be missed.

    Args:
        root: the supervisor's process.
    """

    def __init__(self, root: int) -> None:
        self.peak = 0
        self.by_process: dict[int, int] = {}
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def largest(self, processes: set[int]) -> int | None:
        """Return the most memory that one of these processes had, None when none of them was seen."""
        return max((size for pid, size in self.by_process.items() if pid in processes), default=None)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            memory = tree_usage(self._root).memory
            self.peak = max(self.peak, sum(memory.values()))
            for pid, size in memory.items():
                self.by_process[pid] = max(size, self.by_process.get(pid, 0))
