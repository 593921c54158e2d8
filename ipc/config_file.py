"""The configuration file as text: found, read and decoded. ``config_tree.py`` makes values of it.

The parser is imported only when there is something to parse, because it costs more than everything else here.
"""

import stat
from pathlib import Path

from msgspec import Struct, field

from fanjoin.ipc.errors import ConfigError
from fanjoin.ipc.paths import config_file
from fanjoin.ipc.text import clean

SIZE_LIMIT = 1 << 20
"""Bytes of a configuration file; a larger one is something else."""
NEXT_STEP = "Nothing was started. Correct the file, then check it with: fanjoin config check"


class Located(Struct, frozen=True):
    """A value and the line (from 1) of the file that it stands on."""

    value: object
    line: int


class Config(Struct, frozen=True, kw_only=True):
    """What the file says: checked values by dotted name, what it names itself, and warnings for the user.

    ``routes`` and ``prices`` hold the fields of each route and of each model's price.
    """

    path: Path
    values: dict[str, Located] = field(default_factory=dict)
    routes: dict[str, dict[str, Located]] = field(default_factory=dict)
    prices: dict[str, dict[str, Located]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def named(self, section: str) -> dict[str, dict[str, Located]]:
        """Return the members of a section whose members the user names."""
        members: dict[str, dict[str, Located]] = getattr(self, section.rpartition(".")[2])
        return members

    def place(self, line: int) -> str:
        """Return how a message names a line of this file."""
        return f"{clean(str(self.path))}:{line}"


def load_config(home: Path) -> Config:
    """Read the configuration file of a home folder; one that does not exist holds nothing.

    Raises:
        ConfigError: it cannot be read, is not YAML, or holds values of a wrong type; all of these are named at once.
    """
    config = Config(path=config_file(home))
    text = _read(config)
    if text.strip():
        from fanjoin.ipc.config_tree import read_into

        read_into(config, text)
    return config


def _read(config: Config) -> str:
    """Return the text of the file, empty when there is none."""
    path, shown = config.path, clean(str(config.path))
    try:
        if not path.exists() and not path.is_symlink():
            return ""
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{shown} is not a file, so it cannot be the configuration.\n{NEXT_STEP}")
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read: {error.strerror or error}.\n{NEXT_STEP}") from error
    if len(data) > SIZE_LIMIT:
        raise ConfigError(f"{shown} is larger than {SIZE_LIMIT} bytes, which no configuration is.\n{NEXT_STEP}")
    return _decode(config, data)


def _decode(config: Config, data: bytes) -> str:
    """Return the text; lone surrogates become U+FFFD, and any other byte that is not UTF-8 is an error."""
    try:
        return clean(data.decode("utf-8", "surrogatepass")).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        place = config.place(data.count(b"\n", 0, error.start) + 1)
        raise ConfigError(f"{place}: this line is not UTF-8. Save the file as UTF-8 text.\n{NEXT_STEP}") from error
