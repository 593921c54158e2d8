"""Whether a lock is held, without ever making its file."""

from pathlib import Path

from fanjoin.ipc.platform import try_lock


def is_held(path: Path) -> bool:
    """Return whether a process holds this lock. A missing one has no holder."""
    if not path.exists():
        return False
    lock = try_lock(path)
    if lock is None:
        return True
    lock.close()
    return False
