import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider_support import DELEGATE, answered, called, request, user

from fanjoin.cli.provider.plan import decide, plan_in, read_script, with_plan
from fanjoin.cli.provider.wire import BadRequestError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS, st.lists(st.builds(lambda text: {"text": text}, TEXTS), min_size=1))
def test_a_plan_is_read_back_whatever_surrounds_it(intro: str, replies: list[dict[str, str]]) -> None:
    """A user message that carries a plan gives back exactly that plan, whatever its words and its replies are."""
    assert [spec.text for spec in plan_in(with_plan(intro, replies))] == [reply["text"] for reply in replies]


def test_a_fence_that_is_not_the_end_is_text() -> None:
    """A plan that is quoted in the middle of a document gives no orders."""
    assert decide(request('```plan\n[{"text": "obey"}]\n```\nThat was an example.')).text is None


def test_a_plan_goes_on_reply_by_reply_and_ends() -> None:
    """The n-th reply of a plan answers the n-th model call; after the last one the provider decides for itself."""
    asked = user(with_plan("Go.", [{"delegate": ["a", {"goal": "b", "role": "orchestrator"}]}, {"text": "last"}]))
    first = decide(request(asked, tools=[DELEGATE]))
    assert json.loads(first.calls[0].arguments) == {"tasks": [{"goal": "a"}, {"goal": "b", "role": "orchestrator"}]}
    asked += [called("c1", {}), answered("c1", {"results": []})]
    assert decide(request(asked, tools=[DELEGATE])).text == "last"
    asked += [{"role": "assistant", "content": "last"}]
    assert decide(request(asked, tools=[DELEGATE])).text is None


def test_a_plan_survives_a_later_user_message() -> None:
    """Where a client asks for the rest of a cut reply, the plan that was going on goes on."""
    asked = user(with_plan("Go.", [{"text": "one", "finish_reason": "length"}, {"text": "two"}]))
    assert decide(request(asked)).finish_reason == "length"
    assert decide(request([*asked, {"role": "assistant", "content": "one"}, *user("Go on.")])).text == "two"


def test_calls_are_sent_as_they_are_written() -> None:
    """Arguments that are a text go out unchanged, broken JSON included; several calls keep their order."""
    calls = [{"name": "delegate_task", "arguments": '{"goal": '}, {"name": "x", "arguments": {"n": 1}}]
    reply = decide(request(with_plan("", [{"calls": calls}])))
    assert [(call.name, call.arguments) for call in reply.calls] == [("delegate_task", '{"goal": '), ("x", '{"n": 1}')]


def test_a_list_of_goals_becomes_delegates() -> None:
    """A user who speaks of delegates and lists goals gets one task for each, once, and only where there is a tool."""
    asked = user("Delegate these:\n- count the words\n2) find the longest line")
    reply = decide(request(asked, tools=[DELEGATE]))
    assert json.loads(reply.calls[0].arguments)["tasks"] == [
        {"goal": "count the words"},
        {"goal": "find the longest line"},
    ]
    assert not decide(request(asked)).calls
    assert not decide(request([*asked, called("c", {}), answered("c", {"results": []})], tools=[DELEGATE])).calls


@pytest.mark.parametrize("written", ["[{", '[{"txt": "typo"}]', '{"text": "no list"}', "[" * 100_000])
def test_a_broken_plan_is_an_error(written: str) -> None:
    """A plan that cannot be read is refused with the reason: a test must not pass because of a typing error."""
    with pytest.raises(BadRequestError, match="plan"):
        decide(request(f"Go.\n\n```plan\n{written}\n```"))


RULES = """
- when: {user: red, offers: delegate_task}
  replies: [{delegate: [a]}, {text: joined}]
- when: {model: other}
  replies: [{text: "for the other model"}]
- when: {system: terse}
  replies: [{text: yes}]
"""


def test_the_first_rule_that_holds_answers(tmp_path: Path) -> None:
    """A plan file's rules look at the user's text, the system's, the tools on offer and the model, in their order."""
    path = tmp_path / "plan.yaml"
    path.write_text(RULES.replace("yes", '"yes"'), encoding="utf-8", newline="\n")
    script = read_script(path)
    assert decide(request("a red one", tools=[DELEGATE]), script).calls
    assert decide(request("a red one"), script).text is None
    assert decide(request("any", model="other"), script).text == "for the other model"
    assert decide(request([{"role": "system", "content": "be terse"}, *user("any")]), script).text == "yes"
    assert decide(request(with_plan("a red one", [{"text": "mine"}]), tools=[DELEGATE]), script).text == "mine"


@pytest.mark.parametrize(("name", "written"), [("p.json", "{"), ("p.yaml", "a: [b"), ("p.yml", "- {replys: []}")])
def test_a_broken_plan_file_says_why(tmp_path: Path, name: str, written: str) -> None:
    """JSON, YAML and members that do not exist are refused as a ValueError."""
    path = tmp_path / name
    path.write_text(written, encoding="utf-8", newline="\n")
    with pytest.raises(ValueError, match=r"\S"):
        read_script(path)
