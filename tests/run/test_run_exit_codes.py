"""Exit codes: what a script may rely on, and the reason on standard error."""

import json

import pytest
from run_support import Home, delegate_plan, plan

FAILING = "[[status 400]] count"
TURNS = {
    "all completed": (delegate_plan("[[answer a]]", "[[answer b]]"), [], 0, None),
    "some failed": (delegate_plan("[[answer a]]", FAILING), [], 0, None),
    "some failed, strictly": (delegate_plan("[[answer a]]", FAILING), ["--fail-on-child-error"], 4, None),
    "all failed": (delegate_plan(FAILING, FAILING), [], 4, None),
    "none asked for, strictly": (plan({"text": "ok"}), ["--fail-on-child-error"], 0, None),
    "refused by the provider": ("[[status 400]] x", [], 1, "bad_request"),
    "unknown model": ("[[status 404]] x", [], 1, "model_not_found"),
    "key refused": ("[[status 401]] x", [], 1, "auth"),
    "no money": ("[[status 402]] x", [], 1, "billing"),
    "steps used up": (plan(*[{"delegate": ["[[answer a]]"]}] * 5), ["--max-turns", "2"], 1, "max_iterations"),
    "tokens used up": (plan({"delegate": ["[[answer a]]"]}), ["--max-tokens-total", "5"], 1, "budget"),
    "time used up": (delegate_plan("[[answer a]]", "[[hang]]"), ["--deadline", "0.7"], 1, "budget"),
}


@pytest.mark.parametrize("case", TURNS)
def test_each_end_has_its_exit_code(home: Home, case: str) -> None:
    """The code, the same in the object; the reason in the object and on standard error; every receipt written."""
    home.config("delegation: {cancel_grace_seconds: 1}")
    query, flags, code, reason = TURNS[case]
    done = home.chat(query, "--format", "json", *flags)
    result = json.loads(done.stdout)
    assert (done.returncode, result["exit_code"], result["ok"]) == (code, code, code == 0)
    assert (result["error"] or {}).get("reason") == reason
    if reason is not None:
        assert reason.encode() in done.stderr
    assert len(home.statuses()) == len(result["results"])
    if result["results"]:
        completed = sum(entry["ok"] for entry in result["results"])
        assert f"{completed} of {len(result['results'])} delegates completed".encode() in done.stderr


def test_failures_that_are_tried_again_end_with_exit_1(home: Home) -> None:
    """A provider that only answers 500, one that cuts every stream, one that says nothing: 3 tries, 3, 2."""
    queries = {
        "[[status 500]] a": "server_error",
        "[[cut after=1]] b c d": "network",
        "[[answer ]] e": "empty_response",
    }
    running = [home.start(query, "--format", "json") for query in queries]
    for process, reason in zip(running, queries.values(), strict=True):
        out, _ = process.communicate(timeout=30)
        result = json.loads(out)
        assert (process.returncode, result["error"]["reason"]) == (1, reason)
        assert result["retryable"] is (reason != "empty_response")
    home.check_nothing_left()
    asked = [request["user"].split("]]")[-1].strip() for request in home.provider.requests()]
    assert (asked.count("a"), asked.count("b c d"), asked.count("e")) == (3, 3, 2)


def test_a_failed_turn_in_text_prints_no_answer(home: Home) -> None:
    """Standard output stays empty, standard error names status and reason."""
    done = home.chat("[[status 400]] x")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"failed (bad_request): The provider answered HTTP 400" in done.stderr


def test_a_deadline_keeps_what_delegates_had_finished(home: Home) -> None:
    """``--deadline``: the finished delegate's result is told and kept, the hanging one is cancelled with its reason."""
    home.config("delegation: {cancel_grace_seconds: 1}")
    result = home.result(delegate_plan("[[answer kept]]", "[[hang]] x"), "--deadline", "0.7")
    assert [entry["summary"] for entry in result["results"]] == ["kept", None]
    assert home.statuses() == [("completed", ""), ("cancelled", "budget")]
    assert "0.7 s" in result["error"]["message"]


def test_a_failure_that_passes_is_no_failure(home: Home) -> None:
    """A status 429 once, a stream cut once: each run completes, in two requests."""
    running = [home.start(f"[[{fault} times=1]] once") for fault in ("status 429 retry_after=0", "cut after=1")]
    for process in running:
        out, err = process.communicate(timeout=30)
        assert (process.returncode, b"1 word in 1 line" in out) == (0, True), err
    home.check_nothing_left()
    assert len(home.provider.requests()) == 4
