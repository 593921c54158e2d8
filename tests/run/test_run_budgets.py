"""Budgets of a whole run: what is done is joined, the rest is cancelled, and the budget is named."""

import json
import time
from itertools import pairwise

import pytest
from run_support import Home, delegate_plan, plan

LONG = "[[size 20000]]"
"""An answer of more than 3000 tokens."""
MIDDLING = "[[size 8000]]"
"""One of more than 1500, and less than 3000."""


def fates(result: dict[str, object]) -> list[tuple[str, str]]:
    """Return (status, reason) of every entry of a run's result."""
    entries = result["results"]
    assert isinstance(entries, list)
    return [(entry["status"], entry.get("error", {}).get("reason", "")) for entry in entries]


@pytest.mark.parametrize("name", ["--deadline", "--max-tokens-total"])
def test_what_is_done_is_joined_and_the_rest_is_cancelled(home: Home, name: str) -> None:
    """The finished delegate's result is in the conversation of the parent, beside the entry of the cancelled one."""
    home.config("delegation: {cancel_grace_seconds: 1}")
    value = "1" if name == "--deadline" else "3000"
    result = home.result(delegate_plan(f"{LONG} x", "[[hang]] y"), name, value)
    assert (result["exit_code"], result["status"], result["error"]["reason"]) == (1, "cancelled", "budget")
    assert name in result["error"]["message"]
    assert fates(result) == [("completed", ""), ("cancelled", "budget")]
    assert name in result["results"][1]["error"]["message"]
    [(told,)] = home.rows("SELECT message FROM messages WHERE role = 'tool'")
    joined = json.loads(json.loads(told)["content"])["results"]
    assert [entry["status"] for entry in joined] == ["completed", "cancelled"]
    assert joined[0]["summary"].startswith("This sentence")


def test_the_tokens_of_all_agents_count_together(home: Home) -> None:
    """Four delegates, none of which is over the budget by itself, end the run; the parent asks no more."""
    result = home.result(delegate_plan(*[f"{MIDDLING} {n}" for n in range(4)]), "--max-tokens-total", "5000")
    usage = result["usage"]
    assert (result["status"], result["error"]["reason"]) == ("cancelled", "budget")
    assert usage["input_tokens"] + usage["output_tokens"] >= 5000
    assert all(entry["usage"]["output_tokens"] < 5000 for entry in result["results"])
    assert "completed" in [status for status, _ in fates(result)]
    parents = [request for request in home.provider.requests() if "delegate_task" in request["tools"]]
    assert len(parents) == 1


def test_tokens_used_up_before_any_delegate_start_none(home: Home) -> None:
    """A parent whose own step used the budget up does not get to delegate."""
    result = home.result(delegate_plan("a", "b"), "--max-tokens-total", "5")
    assert (result["exit_code"], result["error"]["reason"], result["results"]) == (1, "budget", [])
    assert len(home.provider.requests()) == 1


def test_an_answer_that_is_over_the_budget_counts(home: Home) -> None:
    """The step that crosses the budget has its answer: what was paid for is told."""
    result = home.result(f"{MIDDLING} x", "--max-tokens-total", "10")
    assert (result["exit_code"], result["status"]) == (0, "completed")


def test_a_deadline_cuts_a_model_that_does_not_answer(home: Home) -> None:
    """Without delegates: the turn ends at its deadline with what was said so far."""
    home.config("delegation: {cancel_grace_seconds: 1}")
    began = time.monotonic()
    result = home.result("[[answer half an answer]][[hang after=2]]", "--deadline", "1")
    assert time.monotonic() - began < 8
    assert (result["status"], result["error"]["reason"]) == ("cancelled", "budget")
    assert result["answer"].startswith("half")


def test_a_deadline_reaches_orchestrators_and_their_delegates(home: Home) -> None:
    """A nested delegate that hangs is cancelled with everything above it, within the grace."""
    home.config("delegation: {max_spawn_depth: 2, cancel_grace_seconds: 1}")
    nested = {"goal": delegate_plan("[[hang]] x"), "role": "orchestrator"}
    result = home.result(delegate_plan(nested, "[[answer kept]] y"), "--deadline", "1.5")
    assert fates(result)[:2] == [("cancelled", "budget"), ("completed", "")]
    assert sorted(home.statuses()) == [("cancelled", "budget"), ("cancelled", "budget"), ("completed", "")]


def test_the_steps_of_delegates_are_bounded(home: Home) -> None:
    """``delegation.max_iterations``: a delegate that only calls tools fails alone, named by its limit."""
    home.config("delegation: {max_iterations: 2}")
    looping = plan(*[{"calls": [{"name": "nothing", "arguments": {}}]}] * 3)
    result = home.result(delegate_plan(looping, "[[answer fine]] x"))
    assert fates(result) == [("failed", "max_iterations"), ("completed", "")]
    assert result["results"][0]["steps"] == 2
    assert [one["ok"] for one in result["results"][0]["tool_trace"]] == [False, False]


def test_a_call_that_always_fails_is_not_repeated_for_ever(home: Home) -> None:
    """A model that makes the same bad call again and again ends the turn: exit 1, tool_error, few requests."""
    result = home.result(plan(*[{"calls": [{"name": "delegate_task", "arguments": "{"}]}] * 20))
    assert (result["exit_code"], result["error"]["reason"]) == (1, "tool_error")
    assert len(home.provider.requests()) == 5


def test_an_empty_end_after_work_fails_alone(home: Home) -> None:
    """Two tool calls and then nothing: failed (empty_response), the trace kept, the sibling untouched."""
    calls = [{"calls": [{"name": "nothing", "arguments": {}}]}] * 2
    result = home.result(delegate_plan(plan(*calls, {"text": ""}, {"text": ""}), "[[answer fine]] x"))
    assert fates(result) == [("failed", "empty_response"), ("completed", "")]
    assert len(result["results"][0]["tool_trace"]) == 2


# --- many delegates, one limit of rate ---


def test_delegates_do_not_come_back_together(home: Home) -> None:
    """Twelve are told to wait one second: none comes sooner, and they spread over the second after it."""
    home.config("delegation: {max_concurrent_children: 12}")
    goals = [f"[[status 429 retry_after=1 times=1]] number {n}" for n in range(12)]
    result = home.result(delegate_plan(*goals))
    assert fates(result) == [("completed", "")] * 12
    times: dict[str, list[float]] = {}
    for request in home.provider.requests():
        if "number" in request["user"] and "delegate_task" not in request["tools"]:
            times.setdefault(request["user"], []).append(request["time"])
    waits = [again - first for first, again in times.values()]
    assert min(waits) >= 1
    assert max(waits) - min(waits) > 0.1


def test_a_limit_of_rate_is_bounded_whatever_it_asks(home: Home) -> None:
    """Without a header or with nonsense: three tries with a floor between them; with an endless one: no second one."""
    asked = {"none": 3, "retry_after=2678": 1, "retry_after=-5": 3, "retry_after=abc": 3}
    running = [home.start(f"[[status 429 {option}]] {option}", "--format", "json") for option in asked]
    for process, (option, requests) in zip(running, asked.items(), strict=True):
        out, _ = process.communicate(timeout=30)
        result = json.loads(out)
        assert (process.returncode, result["error"]["reason"], result["retryable"]) == (1, "rate_limit", True)
        assert ("2678 s" in result["error"]["message"]) is (requests == 1)
        times = [one["time"] for one in home.provider.requests() if one["user"].endswith(option)]
        assert len(times) == requests
        assert all(again - before >= 0.5 for before, again in pairwise(times))
    home.check_nothing_left()


def test_a_context_that_is_too_small_fails_the_delegate_alone(home: Home) -> None:
    """A delegate whose model says so is failed (context_overflow), its siblings' long answers are bounded."""
    goals = ["[[status 400 code=context_length_exceeded]] x", *[f"[[size 200000]] {n}" for n in range(5)]]
    result = home.result(delegate_plan(*goals))
    assert fates(result) == [("failed", "context_overflow"), *[("completed", "")] * 5]
    for entry in result["results"][1:]:
        assert len(entry["summary"]) < 25_000
        with open(entry["summary_path"], encoding="utf-8") as file:
            assert len(file.read()) == 200_000
