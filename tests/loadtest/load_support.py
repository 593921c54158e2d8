"""What the tests of the load test share: one level as it may have been seen, and the page of it."""

import msgspec

from fanjoin.cli.loadtest_report import page
from fanjoin.client.load_scenario import Scenario
from fanjoin.client.load_stats import Call, Delegation, FanOut, Resources, Seen, figures


def seen_level(own_cores: float = 0.1) -> Seen:
    """Return two fan-outs: one of two delegates that completed, one whose delegate crashed without a result."""
    done = {"status": "completed", "steps": 2, "input_tokens": 100, "output_tokens": 10, "cached_tokens": 40}
    return Seen(
        concurrency=2,
        began=100.0,
        ended=110.0,
        fan_outs=[FanOut(number=1, due=100.0, size=2, joined=104.5), FanOut(number=2, due=101.0, size=1, joined=110.0)],
        delegations=[
            Delegation(mark="1-0", join=1, due=100.0, launched=100.5, result=103.0, committed=103.25, **done),
            Delegation(mark="1-1", join=1, due=100.0, launched=101.0, result=104.0, committed=104.25, **done),
            Delegation(
                mark="2-0", join=2, due=101.0, launched=104.0, committed=109.0, status="crashed", reason="killed"
            ),
        ],
        calls=[
            Call(mark="1-0", arrived=101.0, sent=101.5, first=102.0, ended=102.5, gaps=[0.25, 0.125], status=200),
            Call(mark="1-0", arrived=102.5, sent=102.5, first=102.75, ended=103.0, status=200),
            Call(mark="1-1", arrived=101.5, sent=101.5, ended=101.5, status=500),
            Call(mark="2-0", arrived=104.5, error="held for ever"),
        ],
        resources=Resources(cpu_agents=0.75, memory_kind="proportional set size", own_cores=own_cores),
    )


def written_page(*misses: str) -> str:
    """Return the page of one level, with texts that look like markup."""
    seen = seen_level()
    seen.delegations[0].mark = seen.calls[0].mark = seen.calls[1].mark = "<1&0>"
    plan = {"endpoint": "http://x/?a=<b>", "model": "m", "arrival": 2.0, "scenario": msgspec.to_builtins(Scenario())}
    return page(plan, [seen], [figures(seen)], list(misses))
