"""What each wire format asks, and what it goes on without once a server has refused it."""

import base64
from typing import Any

import pytest
from agent_support import KEY, Answer, plain, refuses, says, serving, task
from wire_support import HELLO, TOOL, Form, ask, client_of

from fanjoin.agent_proc.prompt import opening
from fanjoin.agent_proc.provider.anthropic_messages import MAX_TOKENS
from fanjoin.agent_proc.provider.failure import ProviderError

MESSAGES_OK = Form(body=b'{"content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}').answer
RESPONSES_OK = Form(
    body=b'{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"ok"}]}]}'
).answer
OK: dict[str, Answer] = {"chat_completions": says("ok"), "anthropic_messages": MESSAGES_OK, "responses": RESPONSES_OK}
PIXEL = base64.b64encode(b"\x89PNG").decode()
CALL = {"id": "a!1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
STORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ],
    },
    {"role": "assistant", "content": "let me", "tool_calls": [CALL, {**CALL, "id": "b"}]},
    {"role": "tool", "tool_call_id": "a!1", "content": "one"},
    {"role": "tool", "tool_call_id": "b", "content": "two"},
]


def asked(mode: str, messages: list[dict[str, Any]] | None = None, **fields: Any) -> tuple[dict[str, Any], str]:
    """Return the body of a request and its path."""
    with serving(OK[mode]) as server:
        assert ask(server, mode, messages, [TOOL], **fields).text == "ok"
    return server.bodies[0], server.paths[0]


def test_a_question_to_chat_completions() -> None:
    """The conversation as it is, tools with leave to call several at once, a stream with counts, the limit if set."""
    body, path = asked("chat_completions", STORY, max_output_tokens=7, reasoning_effort="low")
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "m",
        "messages": STORY,
        "tools": [TOOL],
        "parallel_tool_calls": True,
        "reasoning_effort": "low",
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_question_to_the_messages_api() -> None:
    """System apart, tool answers as the user's blocks, ids in allowed letters, the prefix and the last block cached."""
    body, path = asked("anthropic_messages", STORY)
    cached = {"cache_control": {"type": "ephemeral"}}
    assert path == "/v1/messages"
    assert body == {
        "model": "m",
        "max_tokens": MAX_TOKENS,
        "system": [{"type": "text", "text": "Be brief.", **cached}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "let me"},
                    {"type": "tool_use", "id": "a_1", "name": "look", "input": {"at": 1}},
                    {"type": "tool_use", "id": "b", "name": "look", "input": {"at": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a_1", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "two", **cached},
                ],
            },
        ],
        "tools": [{"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}],
        "stream": True,
    }


def test_a_question_to_the_responses_api() -> None:
    """Instructions apart, calls and answers as items, tools that are not strict, nothing stored at the server."""
    body, path = asked("responses", STORY, reasoning_effort="high", max_output_tokens=9)
    call = {"type": "function_call", "name": "look", "arguments": '{"at": 1}'}
    assert path == "/v1/responses"
    assert body == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "see"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
                ],
            },
            {"role": "assistant", "content": "let me"},
            {**call, "call_id": "a!1"},
            {**call, "call_id": "b"},
            {"type": "function_call_output", "call_id": "a!1", "output": "one"},
            {"type": "function_call_output", "call_id": "b", "output": "two"},
        ],
        "tools": [{"type": "function", **TOOL["function"], "strict": False}],  # type: ignore[dict-item]
        "parallel_tool_calls": True,
        "reasoning": {"effort": "high"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 9,
        "store": False,
        "stream": True,
    }


@pytest.mark.parametrize(
    ("mode", "name", "value"),
    [
        ("chat_completions", "authorization", f"Bearer {KEY}"),
        ("responses", "authorization", f"Bearer {KEY}"),
        ("anthropic_messages", "x-api-key", KEY),
        ("anthropic_messages", "anthropic-version", "2023-06-01"),
    ],
)
def test_the_key_travels_as_the_format_wants_it(mode: str, name: str, value: str) -> None:
    """One header holds the key, and no other does."""
    with serving(OK[mode]) as server:
        ask(server, mode)
    headers = {header.lower(): held for header, held in server.headers[0].items()}
    assert headers[name] == value
    assert sum(KEY in held for held in headers.values()) == 1


@pytest.mark.parametrize(
    ("mode", "ending", "path"),
    [
        ("anthropic_messages", "", "/v1/messages"),
        ("anthropic_messages", "/v1", "/v1/messages"),
        ("anthropic_messages", "/api/anthropic", "/api/anthropic/v1/messages"),
        ("anthropic_messages", "/v1/messages", "/v1/messages"),
        ("chat_completions", "/v1/", "/v1/chat/completions"),
        ("responses", "/v1", "/v1/responses"),
        ("responses", "/v1/responses", "/v1/responses"),
    ],
)
def test_where_questions_go(mode: str, ending: str, path: str) -> None:
    """A base URL may end where the vendors' own clients let it end, or name the whole place."""
    with serving(OK[mode]) as server:
        ask(server, mode, base_url=server.url.removesuffix("/v1") + ending)
    assert server.paths == [path]


def test_siblings_share_a_cached_prefix() -> None:
    """Two delegates of one call send the same first block, marked for the cache: all but their own context."""
    shared = {"depth": 1, "cwd": "/project", "toolsets": ("files",), "rules": "RULES", "shared_context": "ALL"}
    systems = []
    for own in ("one", "two"):
        given = task(**shared, context=own)
        systems.append(asked("anthropic_messages", opening(given), **shared, context=own)[0]["system"])
    first, second = systems
    assert first[0] == second[0]
    assert first[0]["cache_control"] == {"type": "ephemeral"}
    places = [first[0]["text"].find(part) for part in ("/project", "RULES", "ALL")]
    assert 0 < places[0] < places[1] < places[2]
    assert [system[1:] for system in systems] == [
        [{"type": "text", "text": f"Context of your task:\n{own}"}] for own in ("one", "two")
    ]


def test_thinking_gets_room_of_its_own() -> None:
    """An effort is a budget of tokens above the limit of the answer; a model that refuses it is asked for an effort."""
    refusal = refuses(400, {"type": "invalid_request_error", "message": "thinking.type.enabled is not supported."})
    with serving(refusal, MESSAGES_OK) as server:
        ask(server, "anthropic_messages", reasoning_effort="low", max_output_tokens=100)
    first, second = server.bodies
    assert (first["thinking"], first["max_tokens"]) == ({"type": "enabled", "budget_tokens": 2048}, 2148)
    assert (second["thinking"], second["output_config"]) == ({"type": "adaptive"}, {"effort": "low"})
    assert second["max_tokens"] == 100


def test_an_effort_and_a_schema_go_together() -> None:
    """Both are members of one part of the request."""
    with serving(MESSAGES_OK) as server:
        fields = {"reasoning_effort": "low", "output_schema": {"type": "object"}, "refused": ("thinking",)}
        ask(server, "anthropic_messages", **fields)
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    assert server.bodies[0]["output_config"] == {"effort": "low", "format": schema}


def test_no_effort_asks_for_no_thinking() -> None:
    """``none`` sends no thinking to Anthropic, and no wish for encrypted thoughts to OpenAI."""
    assert "thinking" not in asked("anthropic_messages", reasoning_effort="none")[0]
    body, _ = asked("responses", reasoning_effort="none")
    assert body["reasoning"] == {"effort": "none"}
    assert "include" not in body


UNSUPPORTED = "Unsupported parameter: '{}' is not supported with this model."
EXTRA = [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]
VERIFY = {"message": "Your organization must be verified to stream this model.", "param": "stream"}
NO_AUTO = {"message": '"auto" tool choice requires --enable-auto-tool-choice to be set'}
REFUSALS: dict[str, tuple[str, int, object]] = {
    "stream_options, as an argument": ("stream_options", 400, "Unrecognized request argument: stream_options"),
    "stream_options, by a validator": ("stream_options", 422, {"detail": EXTRA}),
    "parallel_tool_calls": ("parallel_tool_calls", 400, {"message": UNSUPPORTED.format("parallel_tool_calls")}),
    "max_tokens": (
        "max_tokens",
        400,
        {"message": UNSUPPORTED.format("max_tokens") + " Use 'max_completion_tokens' instead.", "param": "max_tokens"},
    ),
    "stream": ("stream", 400, VERIFY),
    "tools, of Ollama": ("tools", 400, "registry.ollama.ai/library/x does not support tools"),
    "tools, of llama.cpp": ("tools", 500, {"code": 500, "message": "tools param requires --jinja flag"}),
    "tools, of vLLM": ("tools", 400, NO_AUTO),
    "tools, of a router": ("tools", 404, {"message": "No endpoints found that support tool use."}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_part_that_is_refused_is_left_out_from_then_on(case: str) -> None:
    """One refusal, one request without that part, and the next call leaves it out at once; all else stays."""
    part, status, error = REFUSALS[case]
    with serving(refuses(status, error), plain({"content": "ok"})) as server:
        client = client_of(server, max_output_tokens=5)
        replies = [client.complete(HELLO, [TOOL], lambda _: None) for _ in range(2)]
        client.close()
    first, second, third = server.bodies
    assert second == third
    dropped = {name for name in first if name not in second}
    also = {"stream": {"stream_options"}, "tools": {"parallel_tool_calls"}}.get(part, set())
    assert dropped == {part} | also
    instead = {"max_tokens": {"max_completion_tokens": 5}}.get(part, {})
    assert {name: value for name, value in second.items() if name not in first} == instead
    assert [reply.refused for reply in replies] == [frozenset({part})] * 2


def test_what_is_known_is_not_asked_again() -> None:
    """A client that was told what its endpoint refuses leaves it out of the first request."""
    with serving(says("ok")) as server:
        ask(server, tools=[TOOL], refused=("stream_options", "parallel_tool_calls"))
    assert not {"stream_options", "parallel_tool_calls"} & server.bodies[0].keys()


def test_several_refusals_one_after_the_other() -> None:
    """A server that refuses everything dispensable is asked once more for each part, and then fails for good."""
    parts = ("stream_options", "parallel_tool_calls", "stream", "tools")
    answers = [refuses(400, f"Unknown parameter: '{part}'") for part in parts]
    last = refuses(400, "Unknown parameter: 'messages'")
    with serving(*answers, last) as server, pytest.raises(ProviderError) as caught:
        ask(server, tools=[TOOL])
    assert caught.value.reason == "bad_request"
    assert server.bodies[-1] == {"model": "m", "messages": HELLO}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "Invalid schema for function 'look' in tools[0].function.parameters"}),
        (400, {"message": "messages with role 'tool' must follow tool_calls"}),
        (
            400,
            {"message": "It does not support a context length of 9 tools", "code": "context_length_exceeded"},
        ),
        (401, {"message": "this key does not support tools"}),
        (429, {"message": "tools are not supported at this rate"}),
        (500, {"message": "unexpected end of stream"}),
        (400, {"message": "stream_options is fine, the weather is not"}),
    ],
)
def test_what_is_no_refusal_of_a_part(status: int, error: object) -> None:
    """Other failures that mention a part are failures, and nothing is left out because of them."""
    with serving(refuses(status, error)) as server, pytest.raises(ProviderError):
        ask(server, tools=[TOOL])
    assert len(server.bodies) == 1
