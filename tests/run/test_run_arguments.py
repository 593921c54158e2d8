"""Whatever the model writes as arguments: a JSON error for it, no child, and the turn goes on."""

import json
from typing import Any

from run_support import Home, delegate_plan, plan

GOOD: dict[str, Any] = {"goal": "[[answer fine]]"}
ROUTES = "delegation: {max_tasks: 64, routes: {fast: {model: quick}}}"

MALFORMED: dict[str, tuple[Any, str, str]] = {
    "truncated JSON": ('{"tasks": [{"goal": "x"', "invalid_arguments", "not valid JSON"),
    "a lone brace": ("}", "invalid_arguments", "not valid JSON"),
    "NaN": ('{"goal": NaN}', "invalid_arguments", "not valid JSON"),
    "infinity beside a goal": ('{"goal": "x", "n": Infinity}', "invalid_arguments", "not valid JSON"),
    "nested too deeply": ("[" * 100_000, "invalid_arguments", ""),
    "null": ("null", "invalid_arguments", "null"),
    "an array": ("[]", "invalid_arguments", "[]"),
    "a number": ("5", "invalid_arguments", "5"),
    "a text": ('"x"', "invalid_arguments", "x"),
    "no arguments": ("", "invalid_arguments", "goal is missing"),
    "no tasks": ({"tasks": []}, "invalid_arguments", "empty"),
    "tasks as an object": ({"tasks": {"goal": "x"}}, "invalid_arguments", "array"),
    "tasks as a broken text": ({"tasks": '[{"goal": "x"'}, "invalid_arguments", "not valid JSON"),
    "tasks as a text of NaN": ({"tasks": "[NaN]"}, "invalid_arguments", "not valid JSON"),
    "a task that is no object": ({"tasks": [GOOD, "x"]}, "invalid_arguments", "tasks[1]"),
    "a task that is null": ({"tasks": [None]}, "invalid_arguments", "tasks[0]"),
    "a missing goal": ({"tasks": [GOOD, {"context": "c"}]}, "invalid_arguments", "tasks[1]: goal"),
    "a null goal": ({"tasks": [GOOD, GOOD, {"goal": None}]}, "invalid_arguments", "tasks[2]: goal"),
    "a number for a goal": ({"tasks": [{"goal": 7}]}, "invalid_arguments", "tasks[0]: goal"),
    "a blank goal": ({"tasks": [GOOD, {"goal": " \n\t"}]}, "invalid_arguments", "tasks[1]: goal is blank"),
    "a blank single goal": ({"goal": ""}, "invalid_arguments", "goal is blank"),
    "a context that is no text": ({"tasks": [{"goal": "x", "context": 3}]}, "invalid_arguments", "tasks[0]: context"),
    "an unknown role": ({"tasks": [{"goal": "x", "role": "boss"}]}, "invalid_arguments", "tasks[0]: role"),
    "a role that is a list": ({"tasks": [{"goal": "x", "role": ["leaf"]}]}, "invalid_arguments", "tasks[0]: role"),
    "a schema that is no object": (
        {"tasks": [{"goal": "x", "output_schema": 1}]},
        "invalid_arguments",
        "output_schema",
    ),
    "500 tasks": ({"tasks": [GOOD] * 500}, "too_many_tasks", "delegation.max_tasks"),
    "an unknown route": ({"tasks": [GOOD, {"goal": "x", "route": "slow"}]}, "unknown_route", "fast"),
    "an orchestrator too deep": (
        {"tasks": [{"goal": "x", "role": "orchestrator"}]},
        "depth_exceeded",
        "max_spawn_depth",
    ),
}


def tool_answers(home: Home) -> list[dict[str, Any]]:
    """Return the tool messages of the conversation, parsed."""
    rows = home.rows("SELECT message FROM messages WHERE role = 'tool' ORDER BY seq")
    return [json.loads(json.loads(row[0])["content"]) for row in rows]


def calls_of(*arguments: Any) -> dict[str, Any]:
    """Return a reply of a plan that makes one call with each of these arguments."""
    return {"calls": [{"arguments": one} for one in arguments]}


def test_every_malformed_form_gets_a_json_error_and_the_turn_goes_on(home: Home) -> None:
    """One message with a call of every bad form: each is told its reason and place, no child starts, exit 0."""
    home.config(ROUTES)
    arguments = [form for form, _, _ in MALFORMED.values()]
    result = home.result(plan(calls_of(*arguments), {"text": "I go on."}))
    assert (result["exit_code"], result["answer"], result["results"]) == (0, "I go on.", [])
    answers = tool_answers(home)
    assert len(answers) == len(MALFORMED)
    for name, (_, reason, words), answer in zip(MALFORMED, MALFORMED.values(), answers, strict=True):
        assert list(answer) == ["error"], name
        assert answer["error"]["reason"] == reason, (name, answer)
        assert words in answer["error"]["message"], (name, answer)
    assert home.rows("SELECT COUNT(*) FROM delegations") == [(0,)]
    assert home.rows("SELECT COUNT(*) FROM attempts") == [(1,)]
    assert len(home.provider.requests()) == 2


def test_odd_but_meant_forms_run(home: Home) -> None:
    """Tasks as a JSON text, top-level fields, fields the model may not set, a bad call beside good ones: all run."""
    reply = calls_of(
        {"tasks": json.dumps([GOOD, GOOD])},
        {**GOOD, "api_key": "x", "model": "other", "base_url": "http://127.0.0.1:1/v1", "command": "rm", "extra": [1]},
        '{"tasks": [',
        {"tasks": [GOOD], "goal": "ignored"},
        {**GOOD, "tasks": None},
    )
    result = home.result(plan(reply))
    assert [entry["summary"] for entry in result["results"]] == ["fine"] * 5
    assert [len(answer.get("results", [])) for answer in tool_answers(home)] == [2, 1, 0, 1, 1]
    assert {request["model"] for request in home.provider.requests()} == {"synthetic"}


def test_the_total_of_a_turn_is_kept_over_calls_and_messages(home: Home) -> None:
    """``max_total_children: 3``: the call that would pass it is refused whole, a smaller one still runs."""
    home.config("delegation: {max_total_children: 3}")
    two = {"tasks": [GOOD, GOOD]}
    result = home.result(plan(calls_of(two, two), calls_of({"tasks": [GOOD]}), calls_of(GOOD), {"text": "Done."}))
    assert (result["exit_code"], len(result["results"])) == (0, 3)
    kinds = [answer["error"]["reason"] if "error" in answer else "ran" for answer in tool_answers(home)]
    assert kinds == ["ran", "total_exceeded", "ran", "total_exceeded"]


def test_an_endless_bad_call_ends_the_turn(home: Home) -> None:
    """A model that repeats a bad call is stopped after a few, with exit 1 and a reason; so is an unknown tool."""
    bad = {"calls": [{"arguments": "{"}, {"name": "no_such_tool", "arguments": {}}]}
    result = home.result(plan(*[bad] * 20))
    assert (result["exit_code"], result["error"]["reason"]) == (1, "tool_error")
    assert len(home.provider.requests()) < 10


def test_lone_surrogates_and_nul_do_no_harm(home: Home) -> None:
    """In goals, contexts and answers: each run completes; surrogates become U+FFFD, everything else stays."""
    odd = "\ud83d x \x00 y \udc00 \U0001f600"
    query = delegate_plan({"goal": f"[[answer A{odd}]] {odd}", "context": odd}, f"count {odd}")
    done = home.chat(query, "--format", "json")
    result = json.loads(done.stdout)
    shown = "\ufffd x \x00 y \ufffd \U0001f600"
    assert (done.returncode, result["results"][0]["summary"]) == (0, f"A{shown}")
    assert result["results"][1]["status"] == "completed"
    assert [row[0] for row in home.rows("SELECT goal FROM delegations ORDER BY rowid")] == [
        f"[[answer A{shown}]] {shown}",
        f"count {shown}",
    ]
    assert home.chat(plan({"text": odd})).stdout == f"{shown}\n".encode()


def test_a_goal_of_300_kilobytes_reaches_its_delegate_whole(home: Home) -> None:
    """A goal larger than any argument list may be; the file that holds the query is larger still."""
    goal = "word " * 60_000
    (home.path.parent / "query.md").write_text(delegate_plan(goal), encoding="utf-8")
    done = home.chat(None, "--query-file", str(home.path.parent / "query.md"), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["summary"].startswith("60,000 words in 1 line")
    assert home.rows("SELECT LENGTH(goal) FROM delegations") == [(len(goal),)]
