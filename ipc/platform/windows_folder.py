"""A folder by its path: there is nothing to look names up in, so whatever was opened is checked afterwards."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Self

from fanjoin.ipc.platform import replace

if sys.platform == "win32":
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.CreateMutexW.restype = ctypes.c_void_p
    _kernel32.CreateMutexW.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_wchar_p)
    for _name in ("WaitForSingleObject", "ReleaseMutex", "CloseHandle"):
        getattr(_kernel32, _name).argtypes = (ctypes.c_void_p, *([ctypes.c_uint32] * (_name[0] == "W")))
    _HELD_BY_ANOTHER = 0x102

    class Folder:
        """A folder whose path holds no link. Every method raises OSError for what the system refuses."""

        def __init__(self, path: str) -> None:
            if not os.path.isdir(path):
                raise NotADirectoryError(f"{path} is not a folder")
            self._path = path

        def enter(self, name: str, *, make: bool = False) -> "Folder":
            """Return a folder in this one; ``make`` makes a missing one."""
            path = os.path.join(self._path, name)
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path)
            _require_no_link(path)
            return Folder(path)

        def open_file(self, name: str, flags: int) -> int:
            """Return the descriptor of a file in this folder."""
            path = os.path.join(self._path, name)
            descriptor = os.open(path, flags | os.O_BINARY | os.O_NOINHERIT, 0o666)
            try:
                _require_no_link(path)
            except OSError:
                os.close(descriptor)
                raise
            return descriptor

        def replace(self, source: str, target: str) -> None:
            """Put one file in the place of another, at once."""
            replace(os.path.join(self._path, source), os.path.join(self._path, target))

        def remove(self, name: str) -> None:
            """Remove a file."""
            os.unlink(os.path.join(self._path, name))

        def entries(self) -> "list[os.DirEntry[str]]":
            """Return what is in this folder."""
            with os.scandir(self._path) as entries:
                return list(entries)

        @contextlib.contextmanager
        def locked(self, seconds: float) -> Iterator[None]:
            """Keep every other process that asks for it from writing in this folder meanwhile.

            Raises:
                TimeoutError: another one held it for so many seconds.
            """
            import hashlib

            name = hashlib.sha256(os.path.normcase(self._path).encode()).hexdigest()[:32]
            mutex = _kernel32.CreateMutexW(None, 0, f"Local\\fanjoin-{name}")
            try:
                if _kernel32.WaitForSingleObject(mutex, int(seconds * 1000)) == _HELD_BY_ANOTHER:
                    raise TimeoutError("another process holds the lock of the folder")
                try:
                    yield
                finally:
                    _kernel32.ReleaseMutex(mutex)
            finally:
                _kernel32.CloseHandle(mutex)

        @staticmethod
        def copy_mode(source: int, target: int) -> None:
            """Do nothing: permissions come from the folder here."""
            del source, target

        def close(self) -> None:
            """Have nothing to let go."""

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

    def _require_no_link(path: str) -> None:
        if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
            raise PermissionError(f"{path} leads somewhere else")
