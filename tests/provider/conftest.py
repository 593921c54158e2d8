from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from provider_support import Client, Connect, Start

from fanjoin.client.local_model import EmbeddedProvider, start_provider


@pytest.fixture(scope="session")
def plain_provider() -> Iterator[EmbeddedProvider]:
    """Give a synthetic provider without any flag, one for all tests."""
    with start_provider() as provider:
        yield provider


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Give a function that connects to a provider; what it connected is closed after the test."""
    opened: list[Client] = []

    def connect_to(url: str, key: str = "") -> Client:
        opened.append(Client(url, key))
        return opened[-1]

    yield connect_to
    for client in opened:
        client.connection.close()


@pytest.fixture
def client(plain_provider: EmbeddedProvider, connect: Connect) -> Client:
    """Give a connection to the provider without flags."""
    return connect(plain_provider.url)


@pytest.fixture
def start() -> Iterator[Start]:
    """Give a function that starts providers with flags and ends them after the test."""
    with ExitStack() as stack:
        yield lambda *flags, **more: stack.enter_context(start_provider(*flags, **more))
