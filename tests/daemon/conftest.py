"""Fixtures of the tests of the daemon: a home with a model, and a daemon that serves it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "run"))

from daemon_support import DaemonHome
from run_support import Provider


@pytest.fixture(scope="session")
def lasting_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """Return the synthetic provider that all tests ask."""
    provider = Provider(tmp_path_factory.mktemp("provider") / "requests.jsonl")
    yield provider
    provider.close()


@pytest.fixture
def provider(lasting_provider: Provider) -> Provider:
    """Return a synthetic provider that has seen no request of this test yet."""
    lasting_provider.forget()
    return lasting_provider


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
