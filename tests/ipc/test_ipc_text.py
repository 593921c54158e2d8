"""Text as it enters and leaves."""

from hypothesis import given
from hypothesis import strategies as st

from fanjoin.ipc.text import clean, clean_tree, clip, head_and_tail, mask_in, mask_secret

anything = st.text(st.characters())
with_surrogates = st.lists(st.one_of(anything, st.sampled_from(["\ud800", "\udfff", "\ud83d\ude00"]))).map("".join)


@given(with_surrogates)
def test_cleaned_text_can_always_be_encoded(text: str) -> None:
    """Lone surrogates become U+FFFD; text without any stays as it is, NUL included."""
    cleaned = clean(text)
    cleaned.encode()
    assert clean(cleaned) == cleaned
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert cleaned == text


def test_a_pair_of_surrogates_is_the_letter_that_it_means() -> None:
    """Two halves that belong together are joined, not lost."""
    assert clean("\ud83d\ude00 \ud83d!") == "😀 \ufffd!"


def test_every_string_of_a_tree_is_cleaned() -> None:
    """Keys and values, at any depth; numbers and null stay."""
    assert clean_tree({"a\ud800": ["\udc00", {"b": 1}, None]}) == {"a\ufffd": ["\ufffd", {"b": 1}, None]}


def test_little_is_shown_of_a_secret() -> None:
    """Four letters of a long one, none of a short one."""
    assert mask_secret("") == "(none)"
    assert mask_secret("sk-123") == "…"
    assert mask_secret("sk-0123456789abcdef") == "…cdef"
    assert mask_in("key sk-123, sk-123", "sk-123") == "key …, …"
    assert mask_in("nothing", "") == "nothing"


@given(anything, st.integers(0, 50))
def test_clipped_text_is_never_too_long(text: str, limit: int) -> None:
    """What fits stays; what does not ends in an ellipsis."""
    clipped = clip(text, limit)
    assert len(clipped) <= max(limit, 1)
    assert clipped == text if len(text) <= limit else clipped.endswith("…")


@given(st.text(min_size=1, max_size=500), st.integers(3, 100))
def test_the_middle_of_a_long_text_is_left_out_and_counted(text: str, limit: int) -> None:
    """Head and tail are the text's own, and the line between them adds up."""
    short = head_and_tail(text, limit)
    if len(text) <= limit:
        assert short == text
        return
    head, tail = text[: limit * 2 // 3], text[len(text) - limit // 3 :]
    assert short.startswith(head)
    assert short.endswith(tail)
    assert f"[... {len(text) - len(head) - len(tail)} characters left out ...]" in short
