"""Fixtures of the tests of the daemon: a home with a model, and a daemon that serves it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_support import DaemonHome
from run_support import Provider


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Iterator[DaemonHome]:
    """Return a home with a model; whatever a failed test left running in it is ended."""
    home = DaemonHome(tmp_path / "home", provider)
    home.configure()
    yield home
    for process in home.processes():
        process.kill()


@pytest.fixture
def daemon(home: DaemonHome) -> Iterator[DaemonHome]:
    """Return a home that a daemon serves; after the test it is stopped, and nothing of it is left."""
    home.start_daemon()
    yield home
    home.stop_daemon()
