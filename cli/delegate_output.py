"""What a fan-out shows: a table for people, JSON for programs, a file that gets each entry as it ends."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import IO, Protocol

import msgspec

from fanjoin.cli import streams
from fanjoin.cli.standard_output import StandardOutput
from fanjoin.cli.table import fitted, one_line, table, width
from fanjoin.client.fan_out import STATUSES
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.messages import Accepted, Event, JsonObject
from fanjoin.ipc.text import clean

_LIVE_SECONDS = 0.1
_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""
_ID_COLUMNS = 60
"""Of a table, that an id may take: it may be a long path."""


def write_json(value: JsonObject) -> str:
    """Return one line of JSON."""
    return msgspec.json.encode(value).decode()


class Totals:
    """Counts how tasks ended."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.resumed = 0
        self.statuses: Counter[str] = Counter()
        self._began = time.monotonic()

    def add(self, entry: JsonObject) -> None:
        """Count one task that ended."""
        self.statuses[entry["status"]] += 1
        self.resumed += bool(entry.get("resumed"))

    @property
    def ended(self) -> int:
        """Return how many tasks have ended."""
        return self.statuses.total()

    @property
    def all_completed(self) -> bool:
        """Say whether every task completed."""
        return self.statuses["completed"] == self.tasks

    @property
    def seconds(self) -> float:
        """Return how long it has taken so far."""
        return round(time.monotonic() - self._began, 3)

    def line(self) -> str:
        """Return the counts in words."""
        others = [f"{self.statuses[name]} {name}" for name in STATUSES[1:] if self.statuses[name]]
        missing = [f"{self.tasks - self.ended} without a receipt"] if self.ended < self.tasks else []
        earlier = [f"{self.resumed} of them in an earlier run"] if self.resumed else []
        return "; ".join([f"{self.statuses['completed']} of {self.tasks} tasks completed", *earlier, *others, *missing])

    def object(self) -> JsonObject:
        """Return the counts for a program."""
        counts = {name: self.statuses[name] for name in STATUSES}
        return {"tasks": self.tasks, **counts, "resumed": self.resumed, "duration_seconds": self.seconds}


class Output(Protocol):
    """What shows a fan-out on standard output and standard error."""

    stdout: StandardOutput

    def told(self, message: Accepted | Event) -> None:
        """Show what happens."""

    def entry(self, entry: JsonObject, totals: Totals) -> None:
        """Show how a task ended."""

    def done(self, end: JsonObject, totals: Totals) -> None:
        """Show the end of the whole."""


class TextOutput:
    """A table at the end; before it, on standard error, a line for each task that ended, and one that lives."""

    def __init__(self, stdout: StandardOutput, order: Sequence[str], *, quiet: bool) -> None:
        self.stdout = stdout
        self._order = order
        self._quiet = quiet
        self._live = _LiveLine(shown=not quiet and streams.is_terminal(2))
        self._rows: dict[str, tuple[str, ...]] = {}
        self._running = 0

    def told(self, message: Accepted | Event) -> None:
        """Count what runs."""
        _tell_session(message, quiet=self._quiet)
        if isinstance(message, Event) and message.name == "delegation.started":
            self._running += 1

    def entry(self, entry: JsonObject, totals: Totals) -> None:
        """Say how a task ended."""
        reason = f" ({entry['error']['reason']})" if "error" in entry else ""
        said = entry["summary"] or entry.get("error", {}).get("message", "")
        name = fitted(one_line(entry["id"]), _ID_COLUMNS)
        row = (name, entry["status"] + reason, f"{entry['duration_seconds']:.1f}", one_line(said[:400]))
        self._rows[entry["id"]] = row
        self._running = max(0, self._running - 1)
        if not self._quiet and not entry.get("resumed"):
            self._live.clear()
            streams.complain(f"  {row[0]} {row[1]} {row[2]} s")
        self._live.show(f"{totals.ended} of {totals.tasks} ended, {self._running} running, {totals.seconds:.0f} s")

    def done(self, end: JsonObject, totals: Totals) -> None:
        """Print the table, in the order of the tasks, and the counts on standard error."""
        self._live.clear()
        rows = [self._rows[one] for one in self._order if one in self._rows]
        if rows:
            self.stdout.write(table(("ID", "STATUS", "SECONDS", "RESULT"), rows))
        _tell_end(end, totals)


class _LiveLine:
    """The last line of a terminal, written over again and again."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._written = 0
        self._at = 0.0

    def show(self, text: str) -> None:
        """Write it, if the last time is not just now."""
        if self._shown and time.monotonic() - self._at >= _LIVE_SECONDS:
            self.clear()
            self._at = time.monotonic()
            line = fitted(text, (os.get_terminal_size(2).columns or _COLUMNS) - 1)
            streams.complain(line, end="")
            self._written = width(line)

    def clear(self) -> None:
        """Take it away."""
        if self._written:
            streams.complain("", end=f"\r{' ' * self._written}\r")
            self._written = 0


class LinesOutput:
    """Each entry as a line of JSON as it ends; the last line has the totals."""

    def __init__(self, stdout: StandardOutput, *, quiet: bool) -> None:
        self.stdout = stdout
        self._quiet = quiet

    def told(self, message: Accepted | Event) -> None:
        """Say where it is kept."""
        _tell_session(message, quiet=self._quiet)

    def entry(self, entry: JsonObject, totals: Totals) -> None:
        """Write an entry."""
        del totals
        self.stdout.write(write_json(entry))

    def done(self, end: JsonObject, totals: Totals) -> None:
        """Write the totals."""
        _tell_end(end, totals)
        self.stdout.write(write_json({"type": "totals", **end}))


class JsonOutput(LinesOutput):
    """One object at the end, with every entry in the order of the tasks."""

    def __init__(self, stdout: StandardOutput, order: Sequence[str], *, quiet: bool) -> None:
        super().__init__(stdout, quiet=quiet)
        self._order = order
        self._entries: dict[str, JsonObject] = {}

    def entry(self, entry: JsonObject, totals: Totals) -> None:
        """Keep an entry."""
        del totals
        self._entries[entry["id"]] = entry

    def done(self, end: JsonObject, totals: Totals) -> None:
        """Write the object."""
        _tell_end(end, totals)
        results = [self._entries[one] for one in self._order if one in self._entries]
        self.stdout.write(write_json({**end, "results": results}))


def _tell_session(message: Accepted | Event, *, quiet: bool) -> None:
    if isinstance(message, Accepted) and not quiet:
        streams.complain(f"session: {message.session_id}")


def _tell_end(end: JsonObject, totals: Totals) -> None:
    if totals.ended or end["error"] is None:
        streams.complain(totals.line())
    if end["error"] is not None:
        streams.complain(end["error"]["message"])


class OutputFile:
    """The file of ``-o``: a line of JSON for each entry, on disk before the next one is taken, and the totals.

    Raises:
        UserError: it cannot be written, or is the file that the tasks come from.
    """

    def __init__(self, path: str, sources: tuple[str, ...]) -> None:
        self.problem = ""
        self._path = path
        for source in sources:
            if os.path.exists(source) and os.path.exists(path) and os.path.samefile(source, path):
                raise UserError(f"-o {clean(path)} is one of the files that are read. Nothing was run.")
        try:
            self._file: IO[bytes] = open(path, "wb", buffering=0)  # noqa: SIM115 - open until close()
        except OSError as error:
            raise UserError(f"-o {clean(path)} cannot be written: {error.strerror}. Nothing was run.") from error

    def add(self, value: JsonObject) -> None:
        """Write one line. A file that cannot be written does not end the run: receipts keep every entry."""
        data = write_json(value).encode() + b"\n"
        try:
            while data and not self.problem:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            self.problem = (
                f"{clean(self._path)} cannot be written any further: {error.strerror}. Receipts keep every entry: "
                "fanjoin delegate --resume with the same tasks writes them again."
            )
            streams.complain(self.problem)

    def close(self) -> None:
        """Close it."""
        self._file.close()
