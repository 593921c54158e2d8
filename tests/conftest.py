"""Fixtures of all tests that run the whole program: a provider, and a home whose processes end with the test.

It also says what the machine lacks of what tests can use and do not require.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_browser import find_browser
from run_support import Home, Provider


def pytest_report_header() -> str:
    """Say whether pages are opened in a real browser."""
    return f"browser: {find_browser() or 'none is installed, so pages are parsed and not opened'}"


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
