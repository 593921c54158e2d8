"""The arguments of ``delegate_task``: every malformed form is an error that names the task, and none crashes."""

import json
from typing import Any

import msgspec
import pytest
from agent_support import task
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.agent_proc import delegation
from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.provider.reply import ToolCall
from fanjoin.ipc.messages import CallRequest, TaskSpec
from fanjoin.ipc.settings import DelegationLimits

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["goal", "tasks", "role"]), inner),
    max_leaves=8,
)


def read(arguments: object) -> CallRequest:
    """Read a call; arguments that are no text are given as their JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return delegation.read_call(ToolCall(id="c", name=delegation.NAME, arguments=text))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"goal": "a"', "not valid JSON"),
        ("null", "must be a JSON object, not null"),
        ("[]", "must be a JSON object"),
        ("5", "must be a JSON object"),
        ('"x"', "must be a JSON object"),
        ('{"goal": NaN}', "not valid JSON"),
        ("", "the task: goal is missing"),
        ({}, "the task: goal is missing"),
        ({"goal": None}, "the task: goal must be a text, not null"),
        ({"goal": 5}, "the task: goal must be a text, not 5"),
        ({"goal": " \n"}, "the task: goal is blank"),
        ({"tasks": []}, "tasks is empty"),
        ({"tasks": "[]"}, "tasks is empty"),
        ({"tasks": "[{"}, "tasks is a text that is not valid JSON"),
        ({"tasks": {"goal": "a"}}, "tasks must be an array"),
        ({"tasks": 7}, "tasks must be an array of tasks, not 7"),
        ({"tasks": [{"goal": "a"}, "b"]}, 'tasks[1] must be an object with a goal, not "b"'),
        ({"tasks": [{"goal": "a"}, {}]}, "tasks[1]: goal is missing"),
        ({"tasks": [{"goal": ""}], "goal": "ignored"}, "tasks[0]: goal is blank"),
        ({"tasks": [{"goal": "a", "role": "boss"}]}, 'tasks[0]: role must be leaf or orchestrator, not "boss"'),
        ({"tasks": [{"goal": "a", "context": 3}]}, "tasks[0]: context must be a text"),
        ({"tasks": [{"goal": "a", "output_schema": "s"}]}, "tasks[0]: output_schema must be"),
        ({"goal": "a", "shared_context": ["x"]}, "the call: shared_context must be a text"),
    ],
)
def test_malformed_arguments(arguments: object, words: str) -> None:
    """Each malformed form is an ``invalid_arguments`` error in JSON that says what is wrong, and where."""
    with pytest.raises(ToolError) as caught:
        read(arguments)
    error = json.loads(caught.value.content())["error"]
    assert error["reason"] == "invalid_arguments"
    assert words in error["message"]


def test_a_single_task_at_the_top() -> None:
    """The fields of one task may stand at the top level; null counts as absent."""
    request = read({"goal": "g", "context": "c", "role": None, "route": "r", "output_schema": {"type": "object"}})
    spec = TaskSpec(goal="g", context="c", route="r", output_schema={"type": "object"})
    assert request == CallRequest(tool_call_id="c", tasks=[spec])


def test_tasks_win_over_the_top_level() -> None:
    """Beside tasks only the shared context counts; unknown keys, and those that choose a model, are dropped."""
    request = read(
        {
            "tasks": [{"goal": "a", "model": "gpt", "api_key": "k", "role": "orchestrator"}],
            "goal": "x",
            "context": 5,
            "shared_context": "s",
            "model": "gpt",
        }
    )
    assert request == CallRequest(tool_call_id="c", tasks=[TaskSpec(goal="a", role="orchestrator")], shared_context="s")


def test_tasks_as_a_json_text() -> None:
    """Tasks that come as a text of JSON are read."""
    assert [spec.goal for spec in read({"tasks": json.dumps([{"goal": "a"}, {"goal": "b"}])}).tasks] == ["a", "b"]


def test_five_hundred_tasks_go_out() -> None:
    """How many tasks are too many is not judged here: the supervisor's answer names the limit."""
    assert len(read({"tasks": [{"goal": "a"}] * 500}).tasks) == 500


def test_a_lone_surrogate_becomes_a_mark() -> None:
    """A lone surrogate in a goal is replaced; a pair and NUL are kept."""
    assert read('{"goal": "a\\ud800b\\ud83d\\ude00\\u0000"}').tasks[0].goal == "a\ufffdb😀\0"


@given(st.text() | JSON.map(json.dumps))
def test_no_argument_crashes(text: str) -> None:
    """Any text is either a request that can be sent or an error that is a JSON object."""
    text = text.encode(errors="replace").decode()
    try:
        answer = msgspec.json.encode(read(text))
    except ToolError as error:
        answer = error.content().encode()
    assert isinstance(json.loads(answer), dict)


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    """Arguments that are nested ten thousand levels deep are refused."""
    with pytest.raises(ToolError):
        read('{"tasks": ' + "[" * 10_000 + "]" * 10_000 + "}")


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({"toolsets": ("delegation",)}, True),
        ({"toolsets": ("files",)}, False),
        ({"toolsets": ("delegation",), "depth": 1}, False),
        ({"role": "orchestrator", "depth": 1}, False),
        ({"role": "orchestrator", "depth": 1, "limits": DelegationLimits(max_spawn_depth=2)}, True),
        ({"role": "leaf", "depth": 1, "limits": DelegationLimits(max_spawn_depth=2)}, False),
        ({"role": "orchestrator", "depth": 2, "limits": DelegationLimits(max_spawn_depth=2)}, False),
    ],
)
def test_who_may_delegate(fields: dict[str, Any], offered: bool) -> None:
    """The root with the toolset and orchestrators may, as long as the depth allows."""
    assert delegation.is_offered(task(**fields)) is offered


def test_the_description_states_the_real_limits() -> None:
    """The model reads the limits of this turn, and is offered roles and routes only where they exist."""
    limits = DelegationLimits(max_concurrent_children=3, max_tasks=7, max_total_children=5, child_timeout_seconds=9)
    plain = delegation.schema(task(limits=limits))["function"]
    for words in (
        "1 to 7 tasks",
        "3 run at once",
        "At most 5",
        "after 9 seconds",
        "cannot delegate",
        "when all have",
    ):
        assert words in plain["description"]
    fields = plain["parameters"]["properties"]["tasks"]["items"]["properties"]
    assert set(fields) == {"goal", "context", "output_schema"}
    rich = delegation.schema(
        task(limits=DelegationLimits(max_spawn_depth=2), route_notes={"big": "slow, clever"}, finite=False)
    )["function"]
    assert "returns at once" in rich["description"]
    fields = rich["parameters"]["properties"]
    assert fields["role"]["enum"] == ["leaf", "orchestrator"]
    assert fields["route"]["enum"] == ["big"]
    assert "big: slow, clever" in fields["route"]["description"]
