"""Fixtures of the tests of sessions: a home, a provider, and supervisors that viewers of the test's own speak to."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_support import Home, Provider
from sessions_support import Owners


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Iterator[Home]:
    """Return a configured home; whatever a failed test left running in it is ended."""
    home = Home(tmp_path / "home", provider)
    home.config(f"model: {{base_url: '{provider.url}', model: synthetic}}\n")
    yield home
    for process in home.processes():
        process.kill()


@pytest.fixture
def owners(home: Home) -> Iterator[Owners]:
    """Return a way to start supervisors of the home, which are ended with the test."""
    owners = Owners(home)
    yield owners
    owners.close()
