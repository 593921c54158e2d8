"""Fan-outs wider than the cap, several calls at once, delegates that delegate; each launcher and transport."""

import json
import sys
from typing import Any

import pytest
from run_support import Home, delegate_plan, plan

CAP_OF_THREE = "delegation: {max_concurrent_children: 3}"


def most_in_flight(home: Home) -> int:
    """Return how many requests the provider answered at the same time, at most."""
    return max(int(request["in_flight"]) for request in home.provider.requests())


def summaries(result: dict[str, Any]) -> list[str]:
    """Return what the delegates answered, in the order of the results."""
    return [entry["summary"] for entry in result["results"]]


def held(answer: object, number: int = 3) -> str:
    """Return a goal that is answered only while so many of its kind wait."""
    return f"[[hold {number} name=together]] [[answer {answer}]]"


def test_twelve_tasks_run_three_at_once_and_are_joined_in_order(home: Home) -> None:
    """Under a cap of 3 always three run (each waits for two others), never four, and every result is in its place."""
    home.config(CAP_OF_THREE)
    result = home.result(delegate_plan(*(held(number) for number in range(12))))
    assert result["exit_code"] == 0
    assert summaries(result) == [str(number) for number in range(12)]
    assert [entry["task_index"] for entry in result["results"]] == list(range(12))
    assert most_in_flight(home) == 3
    assert len(home.provider.requests()) == 14
    assert result["results"][0]["queued_seconds"] < result["results"][11]["queued_seconds"]


def test_calls_of_one_message_run_side_by_side_under_the_one_cap(home: Home) -> None:
    """Three calls of two tasks under a cap of 3: three at once can only be tasks of two calls; never more than 3."""
    home.config(CAP_OF_THREE)
    calls = [{"arguments": {"tasks": [{"goal": held(f"{call}{task}")} for task in "xy"]}} for call in "abc"]
    result = home.result(plan({"calls": calls}))
    assert summaries(result) == ["ax", "ay", "bx", "by", "cx", "cy"]
    assert most_in_flight(home) == 3
    assert home.rows("SELECT COUNT(DISTINCT delegation_id), COUNT(*) FROM receipts") == [(3, 6)]
    tools = [json.loads(message) for (message,) in home.rows("SELECT message FROM messages WHERE role = 'tool'")]
    joined = [json.loads(message["content"]) for message in tools]
    assert [[entry["summary"] for entry in answer["results"]] for answer in joined] == [
        ["ax", "ay"],
        ["bx", "by"],
        ["cx", "cy"],
    ]


def test_orchestrators_under_a_cap_of_one_do_not_deadlock_and_usage_adds_up(home: Home) -> None:
    """An orchestrator that joins gives its slot back; ``usage_total`` holds everything below it, level by level."""
    home.config("delegation: {max_concurrent_children: 1, max_spawn_depth: 2}")
    orchestrators = [
        {"goal": plan({"delegate": [f"[[answer {name}1]]", f"[[answer {name}2]]"]}), "role": "orchestrator"}
        for name in "ab"
    ]
    result = home.result(delegate_plan(*orchestrators, "[[answer leaf]]"))
    assert (result["exit_code"], most_in_flight(home)) == (0, 1)
    own, total = _usages(home)
    top = {entry["receipt_id"] for entry in result["results"] if entry["steps"] == 2}
    below: dict[str, list[str]] = {receipt_id: [] for receipt_id in top}
    for parent_id, receipt_id in home.rows("SELECT parent_id, receipt_id FROM delegations WHERE depth = 2"):
        below[parent_id].append(receipt_id)
    for receipt_id, children in below.items():
        assert len(children) == 2
        assert total[receipt_id] == own[receipt_id] + sum(total[child] for child in children)
    assert len(top) == 2
    outcome = json.loads(home.rows("SELECT outcome FROM session_admissions")[0][0])
    spent = outcome["usage"]["input_tokens"] + sum(own.values())
    assert result["usage"]["input_tokens"] == outcome["usage_total"]["input_tokens"] == spent > 0


def _usages(home: Home) -> tuple[dict[str, int], dict[str, int]]:
    """Return the input tokens of every delegate: its own, and with everything below it."""
    rows = home.rows("SELECT receipt_id, usage ->> 'input_tokens', usage_total ->> 'input_tokens' FROM receipts")
    return {row[0]: row[1] for row in rows}, {row[0]: row[2] for row in rows}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param("delegation: {launcher: spawn, max_concurrent_children: 2}", id="spawn"),
        pytest.param("supervisor: {transport: tcp}\ndelegation: {max_concurrent_children: 2}", id="tcp"),
        pytest.param("supervisor: {max_processes: 3}", id="three-processes"),
    ],
)
def test_each_launcher_and_transport_runs_the_same(home: Home, config: str) -> None:
    """Fresh interpreters, TCP with keys, few processes: two at once, all joined in order, a failure told apart."""
    home.config(config)
    result = home.result(delegate_plan(held("a", 2), held("b", 2), "[[status 400]]", "[[answer d]]"))
    assert summaries(result) == ["a", "b", None, "d"]
    assert [entry["status"] for entry in result["results"]] == ["completed", "completed", "failed", "completed"]
    assert result["exit_code"] == 0
    assert most_in_flight(home) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the zygote exists on Linux only")
def test_the_zygote_can_be_asked_for(home: Home) -> None:
    """``delegation.launcher: zygote`` runs where there is one."""
    home.config("delegation: {launcher: zygote}")
    assert summaries(home.result(delegate_plan("[[answer a]]"))) == ["a"]
