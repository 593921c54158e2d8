"""When a model call is tried again, with a clock and a random number that the test holds."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.agent_proc.provider.client import patiently
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.reply import Reply
from fanjoin.agent_proc.provider.retry import TRIES, asked_wait, wait_before

NOW = 1_800_000_000.0


class Server:
    """Fails as scripted, then answers; records the waits between the calls."""

    def __init__(self, *failures: ProviderError) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.waits: list[float] = []
        self.told: list[str] = []

    def call(self) -> Reply:
        """Be the model, once."""
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return Reply(text="ok")

    def ask(self) -> Reply:
        """Ask with patience."""
        return patiently(
            self.call,
            lambda error, wait: self.told.append(f"{error.reason} {wait:g}"),
            sleep=self.waits.append,
            now=lambda: NOW,
            jitter=lambda: 0.0,
        )


def limited(retry_after: str | None = None) -> ProviderError:
    """Return a failure that is worth another try."""
    return ProviderError("rate_limit", "slow down.", retry_after=retry_after)


def test_a_third_try_may_succeed() -> None:
    """Two failures are told of and waited for, longer the second time."""
    server = Server(limited(), ProviderError("network", "gone"))
    assert server.ask().text == "ok"
    assert server.waits == [0.5, 1.0]
    assert server.told == ["rate_limit 0.5", "network 1"]


def test_three_tries_are_all() -> None:
    """After the third failure the last one is raised."""
    server = Server(*[limited()] * 5)
    with pytest.raises(ProviderError, match="slow down"):
        server.ask()
    assert server.calls == TRIES == 3


@pytest.mark.parametrize("reason", ["auth", "billing", "bad_request", "model_not_found", "context_overflow"])
def test_what_cannot_get_better_is_not_repeated(reason: str) -> None:
    """A failure that the same request meets again is raised at once."""
    server = Server(ProviderError(reason, "no"))
    with pytest.raises(ProviderError):
        server.ask()
    assert (server.calls, server.waits) == (1, [])


@given(asked=st.floats(0, 60), jitter=st.floats(0, 1), next_try=st.integers(2, TRIES))
def test_never_sooner_than_asked(asked: float, jitter: float, next_try: int) -> None:
    """A wait is at least what the server asked for and at least the floor, and never much longer."""
    wait = wait_before(next_try, asked, lambda: jitter)
    assert wait >= asked
    assert 0.5 <= wait <= max(asked + 1, 2)


def test_many_agents_do_not_come_back_together() -> None:
    """Agents that were asked for the same wait spread over the second after it."""
    waits = {wait_before(2, 2.0, lambda at=index / 20: at) for index in range(20)}  # type: ignore[misc]
    assert len(waits) == 20
    assert min(waits) >= 2


def test_a_wait_that_is_too_long_is_told_at_once() -> None:
    """More than a minute is not waited for; the message says what was asked."""
    server = Server(limited("2678"))
    with pytest.raises(ProviderError, match=r"slow down\. It asks to wait 2678 s") as caught:
        server.ask()
    assert (caught.value.reason, server.waits) == ("rate_limit", [])


def test_a_date_is_honoured() -> None:
    """Retry-After may be a date."""
    server = Server(limited(formatdate(NOW + 7, usegmt=True)))
    server.ask()
    assert server.waits == [7.0]


@pytest.mark.parametrize("header", [None, "", "-5", "abc", "nan", "inf", "1e9", "5 s", "Wed, 99 Foo 2026", "0x10"])
def test_what_makes_no_sense_is_ignored(header: str | None) -> None:
    """An odd header is as good as none."""
    assert asked_wait(header, NOW) is None


def test_a_date_that_has_passed_asks_for_nothing() -> None:
    """A past date asks for no wait, and the floor holds."""
    assert asked_wait(formatdate(NOW - 100, usegmt=True), NOW) == 0.0
    assert wait_before(2, 0.0, lambda: 0.0) == 0.5


@given(st.text())
def test_any_header_is_read_without_a_crash(header: str) -> None:
    """No text in the header raises; what is read is never negative."""
    wait = asked_wait(header, NOW)
    assert wait is None or wait >= 0
