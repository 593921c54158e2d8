"""What runs of dead supervisors left in the system: processes and folders. Nothing is ended by its pid alone."""

import contextlib
import shutil
import time
from pathlib import Path

from fanjoin.ipc import platform
from fanjoin.ipc.paths import instance_folder, socket_folder
from fanjoin.supervisor.store.recovery import AttemptLeft, Recovered

PATIENCE_SECONDS = 2.0


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

    def remove_folder(self, recovered: Recovered) -> None:
        """Remove the folder of a run of which nothing is left; its lock is free, and recovered runs are not reused."""
        if recovered.attempts_left:
            return
        folder = instance_folder(self._home, recovered.instance_id)
        for path in {folder, socket_folder(folder)}:
            with contextlib.suppress(OSError):
                shutil.rmtree(path)
