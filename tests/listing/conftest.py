"""Fixtures of the commands that list and show."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from listing_support import GOAL, Home
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent / "store"))
from store_samples import accepted, intended, owner, receipt, started, turn

from fanjoin.ipc.platform import try_lock
from fanjoin.supervisor.records import Record
from fanjoin.supervisor.store.owners import register_owner
from fanjoin.supervisor.store.rows import write
from fanjoin.supervisor.store.writer import open_database


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Give a home in which nothing was ever recorded."""
    folder = tmp_path / "a home"
    folder.mkdir(mode=0o700)
    return Home(folder)


@pytest.fixture
def used_home(home: Home) -> Iterator[Home]:
    """Give a home whose living owner has one queued and one running delegate, and receipts of two that ended."""
    lock = try_lock(home.folder / "held")
    assert lock is not None
    with closing(lock), closing(open_database(home.folder)) as connection:
        register_owner(connection, owner("i_one", home.folder / "held"), 0.5)
        for record in _records():
            write(connection, record, "i_one")
        yield home


def _records() -> Sequence[Record]:
    crashed = replace(
        receipt("d_ended_2"),
        status="crashed",
        reason="killed",
        message="SIGKILL\nended it",
        summary=None,
        partial_text="half\x07 an answer",
        entry={"status": "crashed", "transcript": "/t/d_ended_2.jsonl"},
    )
    return [
        *turn(),
        *(replace(accepted(name), goal=GOAL) for name in ("d_queued", "d_running", "d_ended_1", "d_ended_2")),
        intended("d_running"),
        started("d_running.1", 4711),
        receipt("d_ended_1", summary="All 17 words.\nDone."),
        crashed,
    ]
