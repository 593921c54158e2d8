from collections.abc import Iterator

import pytest

from fanjoin.supervisor.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Give a loop of the test's own."""
    loop = Loop()
    yield loop
    loop.close()
