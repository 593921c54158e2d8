"""Fixtures of the tests of whole runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_support import Home, Provider


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    """Return a synthetic provider of the test's own."""
    provider = Provider(tmp_path / "provider.jsonl")
    yield provider
    provider.close()


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Iterator[Home]:
    """Return a home; whatever a failed test left running in it is ended."""
    home = Home(tmp_path / "home", provider)
    yield home
    for process in home.processes():
        process.kill()
