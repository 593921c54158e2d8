"""Every form in which a server answers is read as it was meant: over real HTTP, and at any split of its bytes."""

import itertools
from collections.abc import Sequence

import chat_forms
import messages_forms
import pytest
import responses_forms
from agent_support import serving
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_support import Body, Form, ask

from fanjoin.agent_proc.provider.anthropic_messages import MessageReading
from fanjoin.agent_proc.provider.chat_completions import ChatReading
from fanjoin.agent_proc.provider.reading import Reading
from fanjoin.agent_proc.provider.responses import ResponseReading

READINGS: dict[str, type[Reading]] = {
    "chat_completions": ChatReading,
    "anthropic_messages": MessageReading,
    "responses": ResponseReading,
}
FORMS: dict[str, tuple[str, Form]] = {
    f"{mode}: {name}": (mode, form)
    for mode, forms in (
        ("chat_completions", chat_forms.TEXTS | chat_forms.CALLS),
        ("anthropic_messages", messages_forms.FORMS),
        ("responses", responses_forms.FORMS),
    )
    for name, form in forms.items()
}
CUTS = st.lists(st.integers(1, 2500), max_size=12) | st.just(range(1, 2500))


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_read_as_it_was_meant(name: str) -> None:
    """Text, calls, the end, token counts and what was thought are those of the table, over real HTTP."""
    mode, form = FORMS[name]
    with serving(form.answer) as server:
        form.check(ask(server, mode))


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=25, deadline=None)
@given(cuts=CUTS)
def test_any_split_reads_the_same(name: str, cuts: Sequence[int]) -> None:
    """However the network splits the bytes, one by one included, reading and hearing come to the same."""
    mode, form = FORMS[name]
    edges = sorted({0, len(form.body), *(cut for cut in cuts if cut < len(form.body))})
    parts = [form.body[start:end] for start, end in itertools.pairwise(edges)]
    heard: list[str] = []
    form.check(READINGS[mode](heard.append).read(Body(parts)))
    assert "".join(heard) == form.text
