"""Fixtures of the agent's tests."""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from agent_support import Supervisor


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    """The supervisor's end of a link, in a folder whose path is short enough for a socket."""
    with TemporaryDirectory(prefix="fj") as folder:
        supervisor = Supervisor(Path(folder))
        yield supervisor
        supervisor.close()
