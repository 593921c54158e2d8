"""The statistics of a load test: quantiles, latencies from what was seen, verdicts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_support import seen_level

from fanjoin.client.load_scenario import Goal
from fanjoin.client.load_stats import Resources, figures, generator_limit, latencies, missed, quantile, summary


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_the_smallest_value_that_covers_its_share(values: list[float], share: float) -> None:
    """At least the share of all values do not exceed the quantile, and no smaller value has that property."""
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-6
    assert sum(value < found for value in ordered) < math.ceil(share * len(ordered) - 1e-6)


def test_nothing_measured_has_no_quantiles() -> None:
    """Where nothing was seen there is a count of zero and no figure that looks like one."""
    assert summary([]) == {"count": 0}


def test_latencies_are_the_differences_of_what_was_seen() -> None:
    """Each part is measured between its two moments, and what was never seen is left out."""
    assert latencies(seen_level()) == {
        "queued": [0.5, 1.0, 3.0],
        "launch": [0.5, 0.5, 0.5],
        "ttft": [0.5, 0.25],
        "between": [0.25, 0.125],
        "receipt": [0.25, 0.25],
        "joining": [0.25, 1.0],
        "join": [4.5, 9.0],
    }


def test_the_figures_of_a_level() -> None:
    """Rates are per second of the level, failures by reason, tokens summed up."""
    level = figures(seen_level())
    assert (level.delegations, level.delegations_per_second, level.steps_per_second) == (3, 0.3, 0.4)
    assert (level.input_tokens, level.output_tokens, level.cached_tokens) == (200, 20, 80)
    assert level.statuses == {"completed": 2, "crashed": 1}
    assert level.failures == {"crashed: killed": 1}
    assert level.failed == pytest.approx(1 / 3)
    assert level.request_errors == {"http 500": 1, "held for ever": 1}
    assert level.cpu_per_delegation == 0.25


def test_a_reply_that_is_none_counts_as_an_error() -> None:
    """A status other than 200, redirects included; of a request without a reply what the relay says."""
    seen = seen_level()
    seen.calls[0].status, seen.calls[1].status = 302, 204
    assert figures(seen).request_errors == {"http 302": 1, "http 204": 1, "http 500": 1, "held for ever": 1}


def test_goals_are_held_or_missed() -> None:
    """A goal is missed when its figure is above the limit, and when there is no figure."""
    level = figures(seen_level())
    assert missed(level, [Goal(name="join_max", limit=9.0), Goal(name="failed", limit=0.5)]) == []
    assert missed(level, [Goal(name="join_max", limit=8.9)]) == ["join_max is 9.000 s, at most 8.9 s"]
    assert missed(level, [Goal(name="failed", limit=0.01)]) == ["failed is 33.33%, at most 1.00%"]
    level.latency["ttft"] = {"count": 0}
    assert "no value" in missed(level, [Goal(name="ttft_p99", limit=1.0)])[0]


def test_the_load_test_says_when_it_was_the_limit() -> None:
    """More than 80 % of a core is said, less is not; a provider of somebody else's is not judged."""
    assert generator_limit(Resources(own_cores=0.79)) == ""
    assert "the load test itself used 85%" in generator_limit(Resources(own_cores=0.85))
    assert "the synthetic provider" in generator_limit(Resources(own_cores=0.1, provider_cores=0.95))
