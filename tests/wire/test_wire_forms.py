"""Every form in which a server answers is read as it was meant: over real HTTP, and at any split of its bytes."""

import gzip
import itertools
import zlib
from collections.abc import Callable, Sequence

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
    assert "".join(heard) == (form.text if form.heard is None else form.heard)


BOM = b"\xef\xbb\xbf"
FRAMES: dict[str, Callable[[bytes], bytes]] = {
    "CRLF": lambda body: body.replace(b"\n", b"\r\n"),
    "CR": lambda body: body.replace(b"\n", b"\r"),
    "no space": lambda body: body.replace(b"data: ", b"data:").replace(b"event: ", b"event:"),
    "byte order mark": lambda body: BOM + body,
    "comments": lambda body: b": hello\n\n" + body.replace(b"data:", b": ping\nid: 7\ndata:") + b":\n\n",
    "no names of events": lambda body: b"\n".join(line for line in body.split(b"\n") if not line.startswith(b"event:")),
    "no last empty line": lambda body: body.rstrip(b"\n"),
    "[DONE]": lambda body: body + b"data: [DONE]\n\n",
}
STREAMS = [
    "chat_completions: a call as documented",
    "anthropic_messages: text and a call",
    "responses: text and a call",
]


@pytest.mark.parametrize("frame", FRAMES)
def test_every_format_is_read_in_every_frame(frame: str) -> None:
    """What servers do to the frame of events changes nothing of what a stream says, whatever its format."""
    for name in STREAMS:
        mode, form = FORMS[name]
        form.check(READINGS[mode](lambda _: None).read(Body([FRAMES[frame](form.body)])))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_every_format_is_read_compressed(encoding: str) -> None:
    """A compressed body is read, as a stream and as plain JSON."""
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    for name in [*STREAMS, "chat_completions: plain", "anthropic_messages: plain", "responses: plain"]:
        mode, form = FORMS[name]
        body = pack(form.body)
        with serving(lambda handler, body=body: handler.reply(200, body, content_encoding=encoding)) as server:
            form.check(ask(server, mode))
