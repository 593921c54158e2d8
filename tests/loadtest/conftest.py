"""Fixtures of the tests of the load test: homes of whole runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_browser import find_browser
from run_support import Home, Provider

# A browser is not a part of the development environment: without one the page is only parsed, which the header says.
collect_ignore = [] if find_browser() else ["test_load_browser.py"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Return a home with a provider that answers after 0.2 s, 50 words a second."""
    provider = Provider(tmp_path / "requests.jsonl", "--latency", "0.2", "--token-rate", "50")
    home = Home(tmp_path / "home", provider)
    yield home
    provider.close()
    for process in home.processes():
        process.kill()
