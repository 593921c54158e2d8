"""What runs of dead supervisors left in the system: processes and folders. Nothing is ended by its pid alone."""

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

from fanjoin.ipc import platform
from fanjoin.ipc.ids import INSTANCE
from fanjoin.ipc.paths import instance_folder, socket_folder
from fanjoin.supervisor.store.recovery import AttemptLeft, Recovered

PATIENCE_SECONDS = 2.0
YOUNG_SECONDS = 60.0


class LeftoverRuns:
    """Ends processes by their run's tag, and proves attempts gone by boot, pid and start mark."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._swept: set[str] = set()
        self._boot_id = platform.boot_id()

    def end_process(self, attempt: AttemptLeft) -> bool:
        """End what is left of an attempt's run, and say whether the attempt is proven gone."""
        if attempt.boot_id != self._boot_id:
            return True
        if attempt.run_tag and attempt.run_tag not in self._swept:
            self._sweep(attempt.run_tag)
            self._swept.add(attempt.run_tag)
        return attempt.pid is None or platform.process_start(attempt.pid) != attempt.process_start

    def _sweep(self, tag: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (members := platform.run_members(tag)) and time.monotonic() < deadline:
            for pid in members:
                platform.end_process(pid)
            time.sleep(0.005)

    def remove_unregistered(self, connection: sqlite3.Connection) -> None:
        """Remove the folders of supervisors that died before they were registered: nothing was started in them.

        A young one is left alone: its supervisor may be about to take its lock.
        """
        registered = {row[0] for row in connection.execute("SELECT instance_id FROM owners WHERE ended_at IS NULL")}
        for folder in (self._home / "run").glob(f"{INSTANCE}*"):
            with contextlib.suppress(OSError):
                if folder.name not in registered and time.time() - folder.stat().st_mtime > YOUNG_SECONDS:
                    self._remove_unlocked(folder)

    def _remove_unlocked(self, folder: Path) -> None:
        lock = platform.try_lock(folder / "lock")
        if lock is not None:
            lock.close()
            self._remove(folder)

    def remove_folder(self, recovered: Recovered) -> None:
        """Remove the folder of a run of which nothing is left; its lock is free, and recovered runs are not reused."""
        if recovered.attempts_left:
            return
        self._remove(instance_folder(self._home, recovered.instance_id))

    def _remove(self, folder: Path) -> None:
        for path in {folder, socket_folder(folder)}:
            with contextlib.suppress(OSError):
                shutil.rmtree(path)
