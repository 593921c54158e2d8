"""Named routes, end to end: each with its own server, key, wire format and effort, side by side in one call."""

import json
import threading
from typing import Any

import messages_forms
import responses_forms
from agent_support import Answer, Handler, ModelServer, refuses, says, serving
from run_support import Home, delegate_plan
from wire_support import Form

KEYS = {"FAST_KEY": "fast-key-5b1e77aa90c2d418", "DEEP_KEY": "deep-key-c2aa518e4471f00d"}


def _together(gate: threading.Barrier, body: bytes) -> Answer:
    """Answer with a body once so many requests wait at the same time."""

    def answer(handler: Handler) -> None:
        gate.wait(10)
        Form(body=body).answer(handler)

    return answer


def _config(home: Home, routes: dict[str, dict[str, Any]], **delegation: Any) -> None:
    home.config(json.dumps({"delegation": {"routes": routes, **delegation}}))  # JSON is YAML


def _keys(server: ModelServer) -> list[str | None]:
    headers = [{name.lower(): value for name, value in one.items()} for one in server.headers]
    return [one.get("x-api-key") or one.get("authorization") for one in headers]


def test_each_route_has_its_own_server_key_format_and_effort(home: Home) -> None:
    """Two routes in one call answer only while both wait; neither sees the other's key, nor the parent's."""
    gate = threading.Barrier(2)
    with (
        serving(_together(gate, messages_forms.FORMS["plain"].body)) as deep,
        serving(_together(gate, responses_forms.FORMS["as documented"].body)) as fast,
    ):
        routes = {
            "deep": {
                "model": "big",
                "base_url": deep.url,
                "api_key_env": "DEEP_KEY",
                "api_mode": "anthropic_messages",
                "reasoning_effort": "high",
                "description": "slow and thorough",
            },
            "fast": {
                "model": "small",
                "base_url": fast.url,
                "api_key_env": "FAST_KEY",
                "api_mode": "responses",
                "reasoning_effort": "low",
            },
        }
        _config(home, routes)
        query = delegate_plan(
            {"goal": "think", "route": "deep"}, {"goal": "hurry", "route": "fast"}, "[[answer own]] x"
        )
        result = home.result(query, env=KEYS)
    assert [entry["summary"] for entry in result["results"]] == ["hello", "hello", "own"]
    assert [entry["model"] for entry in result["results"]] == ["big", "small", "synthetic"]
    assert result["results"][0]["usage"] == {"input_tokens": 5, "output_tokens": 15, "cached_tokens": 0}
    assert result["results"][1]["usage"] == {"input_tokens": 20, "output_tokens": 12, "cached_tokens": 8}
    assert (_keys(deep), _keys(fast)) == ([KEYS["DEEP_KEY"]], [f"Bearer {KEYS['FAST_KEY']}"])
    assert (deep.paths, fast.paths) == (["/v1/messages"], ["/v1/responses"])
    assert deep.bodies[0]["thinking"]["type"] == "enabled"
    assert fast.bodies[0]["reasoning"] == {"effort": "low"}
    assert deep.bodies[0]["messages"][0]["content"] == [{"type": "text", "text": "think"}]
    assert not any(key in (home.path / "state.db").read_bytes().decode("latin-1") for key in KEYS.values())


def test_a_route_that_nobody_configured_starts_nothing(home: Home) -> None:
    """The model may only choose among what the operator named; the message tells the names."""
    with serving(says("never")) as server:
        _config(home, {"fast": {"model": "small", "base_url": server.url}})
        result = home.result(delegate_plan({"goal": "x", "route": "secret"}))
    assert result["results"] == []
    [(told,)] = home.rows("SELECT message FROM messages WHERE role = 'tool'")
    error = json.loads(json.loads(told)["content"])["error"]
    assert error["reason"] == "unknown_route"
    assert "fast" in error["message"]
    assert server.bodies == []


def test_one_routes_fate_is_not_anothers(home: Home) -> None:
    """A route whose server refuses its key fails its delegate alone; an answer that stays cut says so in its entry."""
    with serving(refuses(401)) as bad, serving(says("fine")) as good, serving(says("so", finish="length")) as short:
        routes = {
            "bad": {"model": "b", "base_url": bad.url, "api_key_env": "DEEP_KEY"},
            "good": {"model": "g", "base_url": good.url, "api_key_env": "FAST_KEY"},
            "short": {"model": "s", "base_url": short.url},
        }
        _config(home, routes)
        query = delegate_plan(*[{"goal": "x", "route": route} for route in routes])
        result = home.result(query, env=KEYS)
    assert [entry["status"] for entry in result["results"]] == ["failed", "completed", "completed"]
    assert result["results"][2]["summary"] == "so" * 5
    cut = "The answer is cut: the model's output limit."
    assert [entry.get("note") for entry in result["results"]] == [None, None, cut]
    assert result["results"][0]["error"]["reason"] == "auth"
    assert not any(key in json.dumps(result) for key in KEYS.values())


def test_what_a_route_refuses_is_learnt_once(home: Home) -> None:
    """Delegates that start after the first one met a refusal leave the refused part out at once."""

    def picky(handler: Handler) -> None:
        refused = "stream_options" in handler.server.bodies[-1]
        (refuses(400, "Unknown parameter: 'stream_options'") if refused else says("ok"))(handler)

    with serving(picky) as server:
        _config(home, {"picky": {"model": "p", "base_url": server.url}}, max_concurrent_children=1)
        result = home.result(delegate_plan(*[{"goal": f"{n}", "route": "picky"} for n in range(4)]))
    assert [entry["summary"] for entry in result["results"]] == ["ok"] * 4
    assert ["stream_options" in body for body in server.bodies] == [True, False, False, False, False]


def test_a_run_says_that_its_model_has_no_tools(home: Home) -> None:
    """The answer counts, and standard error says that it was made without tools."""
    with serving(refuses(400, "m does not support tools"), says("ok")) as server:
        home.config(f"model: {{base_url: '{server.url}', model: m}}")
        done = home.run(home.command("chat", "-Q", "-q", "go"))
    assert (done.returncode, done.stdout) == (0, b"ok\n"), done.stderr
    assert b"note: The answer was made without tools" in done.stderr


def test_the_synthetic_provider_answers_every_format(home: Home) -> None:
    """A whole run that needs no other server: the root over one API, its delegates over each of the three."""
    modes = ("chat_completions", "anthropic_messages", "responses")
    routes = {mode: {"model": "m", "base_url": home.provider.url, "api_mode": mode} for mode in modes}
    home.config(json.dumps({"model": {"api_mode": "responses"}, "delegation": {"routes": routes}}))
    result = home.result(delegate_plan(*[{"goal": f"[[answer by {mode}]]", "route": mode} for mode in modes]))
    assert [entry["summary"] for entry in result["results"]] == [f"by {mode}" for mode in modes]
    paths = [request["path"] for request in home.provider.requests()]
    assert (paths[0], paths[-1]) == ("/v1/responses", "/v1/responses")
    assert sorted(paths[1:-1]) == ["/v1/chat/completions", "/v1/messages", "/v1/responses"]


def test_the_root_speaks_any_format(home: Home) -> None:
    """A whole run over the Messages API, its format shown by the URL alone, and one over the Responses API."""
    call = b'{"type":"tool_use","id":"toolu_9","name":"delegate_task","input":{"goal":"one"}}'
    delegating = Form(body=messages_forms.BLOCKS % (call, b"tool_use")).answer
    said = Form(body=messages_forms.FORMS["as documented"].body).answer
    with serving(delegating, said) as server:
        home.config(f"model: {{base_url: '{server.url.removesuffix('/v1')}/anthropic', model: m}}")
        done = home.run(home.command("chat", "-Q", "-q", "go"))
    assert (done.returncode, done.stdout) == (0, b"hello\n"), done.stderr
    assert set(server.paths) == {"/anthropic/v1/messages"}
    assert json.loads(server.bodies[2]["messages"][2]["content"][0]["content"])["results"][0]["summary"] == "hello"
    with serving(Form(body=responses_forms.FORMS["as documented"].body).answer) as server:
        home.config(f"model: {{base_url: '{server.url}', model: m, api_mode: responses}}")
        done = home.run(home.command("chat", "-Q", "-q", "go"))
    assert (done.returncode, done.stdout) == (0, b"hello\n"), done.stderr
