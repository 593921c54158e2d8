"""A folder by its descriptor: every step goes from one descriptor to the next, and a link in the way is an error."""

import contextlib
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import Self

if sys.platform != "win32":
    _STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    _FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in a file's place must not block

    class Folder:
        """An open folder. Every method raises OSError for what the system refuses."""

        def __init__(self, path: str) -> None:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

        def enter(self, name: str, *, make: bool = False) -> "Folder":
            """Return a folder in this one; ``make`` makes a missing one."""
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=self._descriptor)
            inner = Folder.__new__(Folder)
            inner._descriptor = os.open(name, _STEP, dir_fd=self._descriptor)  # noqa: SLF001 - its own class
            return inner

        def open_file(self, name: str, flags: int) -> int:
            """Return the descriptor of a file in this folder."""
            return os.open(name, flags | _FILE, 0o666, dir_fd=self._descriptor)

        def replace(self, source: str, target: str) -> None:
            """Put one file in the place of another, at once."""
            os.replace(source, target, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

        def remove(self, name: str) -> None:
            """Remove a file."""
            os.unlink(name, dir_fd=self._descriptor)

        def entries(self) -> "list[os.DirEntry[str]]":
            """Return what is in this folder."""
            with os.scandir(self._descriptor) as entries:
                return list(entries)

        @contextlib.contextmanager
        def locked(self, seconds: float) -> Iterator[None]:
            """Keep every other process that asks for it from writing in this folder meanwhile.

            Raises:
                TimeoutError: another one held it for so many seconds.
            """
            deadline = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise TimeoutError("another process holds the lock of the folder") from None
                    time.sleep(0.002)
            try:
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

        @staticmethod
        def copy_mode(source: int, target: int) -> None:
            """Give one open file the permissions of another."""
            os.fchmod(target, stat.S_IMODE(os.fstat(source).st_mode) & 0o777)

        def close(self) -> None:
            """Let it go."""
            os.close(self._descriptor)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()
