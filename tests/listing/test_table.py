"""Text for a person: columns, widths and times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.cli.table import duration, fitted, one_line, width


@given(st.text(max_size=60), st.integers(1, 40))
def test_what_is_fitted_fits(text: str, room: int) -> None:
    """A text that is cut to a number of columns never takes more, and keeps its beginning."""
    line = one_line(text)
    short = fitted(line, room)
    assert width(short) <= room or width(line) <= room
    assert short == line or (short.endswith("…") and line.startswith(short[:-1]))


def test_letters_of_two_columns_and_of_none() -> None:
    """Wide letters take two columns and combining ones none, so that columns stay aligned."""
    assert (width("ab"), width("漢字"), width("e\u0301")) == (2, 4, 1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (59.9, "59s"), (250, "4m10s"), (7500, "2h05m"), (90_000, "1d01h")],
)
def test_spans_of_time(seconds: float, text: str) -> None:
    """A span is told in its two largest units; a clock that went back is no negative age."""
    assert duration(seconds) == text
