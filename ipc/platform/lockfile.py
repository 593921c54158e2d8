"""A lock file that somebody holds: the lock lives as long as the open file, so the system frees it with the process."""

from typing import BinaryIO


class LockFile:
    """An exclusive lock; closing it frees it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def close(self) -> None:
        """Free the lock. The file stays: removing it would let two processes hold two locks of one name."""
        self._file.close()
