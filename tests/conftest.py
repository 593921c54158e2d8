"""Fixtures of all tests that run the whole program: a provider, and a home whose processes end with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_support import Home, Provider


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
def home(tmp_path: Path, provider: Provider) -> Iterator[Home]:
    """Return a home; whatever a failed test left running in it is ended."""
    home = Home(tmp_path / "home", provider)
    yield home
    for process in home.processes():
        process.kill()
