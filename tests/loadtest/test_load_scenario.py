"""What a load test is told: every flag's form, and what is refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.client import load_scenario as load
from fanjoin.ipc.errors import UserError


def test_the_scenario_is_read_whole() -> None:
    """Every member of a scenario is read, and the comma within a delay does not end it."""
    scenario = load.parse_scenario("fanout=4,steps=5,shared_prefix=0,tool_delay=lognormal:2s,0.5,output=200")
    assert scenario == load.Scenario(fanout=4, steps=5, shared_prefix=0, tool_delay=load.Delay(2.0, 0.5), output=200)


def test_what_a_scenario_leaves_out_has_a_default() -> None:
    """An empty text is the default scenario."""
    assert load.parse_scenario("") == load.Scenario()


@pytest.mark.parametrize(
    "written", ["fanout=0", "steps=x", "speed=3", "fanout", "tool_delay=normal:1,2", "tool_delay=-1s", "output=-2"]
)
def test_a_wrong_scenario_is_refused(written: str) -> None:
    """An unknown name or a value that makes no sense is a user's error, and nothing runs."""
    with pytest.raises(UserError, match="Nothing was run"):
        load.parse_scenario(written)


@pytest.mark.parametrize(
    ("written", "value"), [("500ms", 0.5), ("2s", 2.0), ("1.5m", 90.0), ("0.25", 0.25), ("0", 0.0)]
)
def test_durations(written: str, value: float) -> None:
    """A duration is a number with a unit, seconds without one."""
    assert load.seconds(written) == value


def test_goals_are_durations_and_shares() -> None:
    """A goal limits a figure in seconds, and failures as a share."""
    goals = load.parse_goals("ttft_p99=500ms,failed=1%", ("ttft_p99",))
    assert goals == [load.Goal(name="ttft_p99", limit=0.5), load.Goal(name="failed", limit=0.01)]


@pytest.mark.parametrize("written", ["ttft_p98=1s", "failed=2", "failed=x", "ttft_p99=fast"])
def test_a_wrong_goal_is_refused(written: str) -> None:
    """A goal for a figure that does not exist would never be missed, so it is refused."""
    with pytest.raises(UserError):
        load.parse_goals(written, ("ttft_p99",))


def test_faults_and_levels_and_arrivals() -> None:
    """The other flags are read, too."""
    assert load.parse_faults("crash=0.01,http500=2%") == {"crash": 0.01, "http500": 0.02}
    assert load.parse_levels("2,8, 32") == [2, 8, 32]
    assert (load.parse_arrival("closed"), load.parse_arrival("poisson:2.5")) == (0.0, 2.5)


@pytest.mark.parametrize("written", ["open", "poisson", "poisson:0", "poisson:-1", "uniform:3"])
def test_a_wrong_arrival_is_refused(written: str) -> None:
    """Arrivals are closed, or Poisson with a rate above zero."""
    with pytest.raises(UserError):
        load.parse_arrival(written)


def test_arrivals_come_from_the_given_source() -> None:
    """Gaps of the distribution are divided by the rate and added up."""
    gaps = iter([1.0, 2.0, 3.0])
    assert load.poisson(2.0, 3, lambda: next(gaps)) == [0.5, 1.5, 3.0]


@given(st.integers(0, 2**32), st.floats(0.5, 50.0))
def test_arrivals_have_the_rate_that_was_asked_for(seed: int, rate: float) -> None:
    """Arrivals never go back in time, and a thousand of them take about a thousand mean gaps."""
    source = random.Random(seed)
    dues = load.poisson(rate, 1000, lambda: source.expovariate(1.0))
    assert dues == sorted(dues)
    assert 0.8 < dues[-1] * rate / 1000 < 1.25


def test_a_delay_is_drawn_around_its_median() -> None:
    """Half of the lognormal delays are below the median; without a sigma each one is the median."""
    source = random.Random(7)
    below = sum(load.Delay(2.0, 0.5).draw(source) < 2.0 for _ in range(2000))
    assert 900 < below < 1100
    assert load.Delay(2.0).draw(source) == 2.0
