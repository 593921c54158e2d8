"""Where things are: the home folder and what lies in it. One function each, no state."""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from fanjoin.ipc.errors import UserError
from fanjoin.ipc.text import clean

_MARKS = ("state.db", "config.yaml", "transcripts")
"""One of these makes a folder a home; the user may have put the second one there first."""
SOCKET_FOLDER_BYTES = 90
"""A Unix socket's path holds at most 107 bytes (104 on macOS); this leaves room for the socket's own name."""


def home_from(environ: Mapping[str, str]) -> Path:
    """Return the home folder that the environment names, or the platform's user data folder.

    Raises:
        UserError: a file is there.
    """
    named = environ.get("FANJOIN_HOME")
    if not named:
        from platformdirs import user_data_path

        return user_data_path("fanjoin", appauthor=False)
    home = Path(os.path.abspath(os.path.expanduser(named)))
    if home.is_file():
        raise UserError(f"FANJOIN_HOME names {clean(str(home))}, which is a file. Name a folder.")
    return home


def prepare_home(home: Path) -> Path:
    """Make the home folder private and complete, and return it.

    Raises:
        UserError: another user owns it, it cannot be made, or its name is no text.
    """
    if clean(str(home)) != str(home):
        raise UserError(f"The home folder {clean(str(home))} has a name that is not UTF-8 text. Name another one.")
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_home(home)
        _require_private(home)
        for name in ("transcripts", "logs", "run"):  # the mark comes first: others may be looking
            (home / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The home folder {home} cannot be used: {error.strerror or error}.\n"
            "Nothing was started. Name another folder with FANJOIN_HOME."
        ) from error
    return home


def _require_home(folder: Path) -> None:
    """Refuse a folder that holds something, but nothing of ours: its files and its mode are somebody's business."""
    if any(folder.iterdir()) and not any((folder / name).exists() for name in _MARKS):
        raise UserError(
            f"{folder} holds files that are not fanjoin's, so it was left as it is. "
            "Name an empty or a new folder with FANJOIN_HOME."
        )


def _require_private(folder: Path) -> None:
    """Tighten a folder of ours to mode 0700; refuse one of another user."""
    if sys.platform == "win32":
        return
    info = folder.stat()
    if info.st_uid != os.geteuid():
        raise UserError(
            f"The home folder {folder} belongs to another user (uid {info.st_uid}): keys and receipts would not be "
            "private there.\nName a folder of your own with FANJOIN_HOME."
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        folder.chmod(0o700)


def config_file(home: Path) -> Path:
    """Return the path of the configuration file."""
    return home / "config.yaml"


def database_file(home: Path) -> Path:
    """Return the path of the database. It is opened through SQLite only: a raw close drops its locks."""
    return home / "state.db"


def instance_folder(home: Path, instance_id: str) -> Path:
    """Return the folder of one supervisor: its lock, the output of its processes, its sockets where the path fits."""
    return home / "run" / instance_id


def endpoints_file(instance: Path) -> Path:
    """Return the file in which a supervisor says where it listens."""
    return instance / "endpoints.json"


def daemon_file(home: Path) -> Path:
    """Return the descriptor of the daemon that serves a home: there while one is ready, or after one was killed."""
    return home / "run" / "daemon.json"


def daemon_lock(home: Path) -> Path:
    """Return the file whose lock makes a process the daemon of a home."""
    return home / "run" / "daemon.lock"


def socket_folder(instance: Path) -> Path:
    """Return a folder for sockets: the instance's own, or a short private one when its path is too long."""
    if len(os.fsencode(instance)) <= SOCKET_FOLDER_BYTES:
        return instance
    import hashlib  # late, as in every module that the first lines of a command import
    import tempfile

    digest = hashlib.sha256(os.fsencode(instance)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"fanjoin-{digest}"


def images_folder(home: Path) -> Path:
    """Return the folder of the images that turns were given, each named by its SHA-256. It is made when needed."""
    return home / "images"


def transcript_file(home: Path, owner_id: str) -> Path:
    """Return the path of a turn's or delegate's live transcript (JSON lines)."""
    return home / "transcripts" / f"{owner_id}.jsonl"


def summary_file(home: Path, owner_id: str) -> Path:
    """Return the path of the whole text of an answer that was too long to hand on."""
    return home / "transcripts" / f"{owner_id}.summary.txt"
