"""Server-sent events: any split of the bytes, any line ending, gives the same events."""

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from fanjoin.agent_proc.provider.sse import EventReader

LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)
EVENT = st.lists(LINE, min_size=1, max_size=3)
NOISE = st.sampled_from([": ping", ":", "id: 7", "event: x", "retry: 5", "unknown", ""])


def read(*chunks: bytes) -> list[bytes]:
    """Return the events of a stream that arrives in these chunks."""
    reader = EventReader()
    return [data for chunk in chunks for data in reader.feed(chunk)] + list(reader.close())


@given(
    events=st.lists(EVENT, max_size=4),
    noise=NOISE,
    style=st.tuples(st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["", " "]), st.sampled_from(["", "\ufeff"])),
    cuts=st.lists(st.integers(0, 300), max_size=20),
)
def test_any_split_gives_the_events_that_were_sent(
    events: list[list[str]], noise: str, style: tuple[str, str, str], cuts: list[int]
) -> None:
    """Whatever line ending, comments and fields between them and split of the bytes: the events are those sent."""
    ending, space, mark = style
    lines = [noise]
    for event in events:
        lines += [f"data:{space}{line}" for line in event] + [noise, ""]
    body = (mark + "".join(line + ending for line in lines)).encode()
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = [body[start:end] for start, end in itertools.pairwise(edges)]
    expected = ["\n".join(line if space else line.removeprefix(" ") for line in event) for event in events]
    assert read(*chunks) == [text.encode() for text in expected]


def test_every_byte_by_itself() -> None:
    """Events are found when each byte arrives alone."""
    body = b"\xef\xbb\xbfdata: a\r\ndata: b\r\n\r\n: c\rdata:d\r\rdata\n\n"
    assert read(*[bytes([byte]) for byte in body]) == [b"a\nb", b"d", b""]


def test_a_comment_after_an_id_is_no_event() -> None:
    """An id, a later comment and empty lines give no event."""
    assert read(b"id: 1\n\n: ping\n\n\n") == []


def test_the_last_event_needs_no_empty_line() -> None:
    """A server that forgets the last line ending loses nothing."""
    assert read(b"data: x") == read(b"data: x\n") == [b"x"]


def test_a_line_of_many_pieces_takes_linear_time() -> None:
    """20 MB in one line, in small pieces, are put together once."""
    piece = b"x" * 1000
    began = time.monotonic()
    assert len(read(b"data: ", *[piece] * 20_000, b"\n\n")[0]) == 20_000_000
    assert time.monotonic() - began < 2
