import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.cli.provider.directives import Behaviour, behaviour_of, filler, split_directives
from fanjoin.cli.provider.faults import KINDS, Dice, parse_fault
from fanjoin.cli.provider.wire import BadRequestError


def behaviour(text: str, arrival: int = 1) -> Behaviour:
    """Return what a text asks for."""
    return behaviour_of(split_directives(text)[0], arrival)


@given(st.text())
def test_any_text_can_be_split(text: str) -> None:
    """Splitting fails on no text, and what is not a directive stays as it is."""
    directives, rest = split_directives(text)
    assert text.endswith(rest)
    assert directives or rest == text


def test_directives_add_up() -> None:
    """Several directives describe one reply, and the text after them is what remains."""
    directives, rest = split_directives("[[sleep 1.5]] [[hold 2 name=a]]\n[[answer [x] y]] [[finish length]] the goal")
    assert rest == "the goal"
    assert behaviour_of(directives) == Behaviour(sleep=1.5, hold=2, hold_name="a", answer="[x] y", finish="length")


@pytest.mark.parametrize("text", ["see [[hang]]", "[[Home page]] is a link", "[[sleepy 3]]", "[hang]", ""])
def test_only_the_beginning_gives_orders(text: str) -> None:
    """Text that holds double brackets later, or of another kind, is left alone."""
    assert split_directives(text) == ((), text)


@pytest.mark.parametrize(
    ("text", "ending", "after"),
    [("[[hang]]", "hang", 0), ("[[hang after=3]]", "hang", 3), ("[[silence]]", "silence", 1), ("[[cut]]", "cut", 2)],
)
def test_endings_have_a_place(text: str, ending: str, after: int) -> None:
    """A reply breaks after so many pieces, each kind with its own default."""
    assert (behaviour(text).ending, behaviour(text).after) == (ending, after)


def test_times_counts_arrivals() -> None:
    """A directive with a number of times leaves later arrivals of the same request alone."""
    text = "[[status 429 retry_after=2 code=slow times=2]] [[answer fine]]"
    assert [behaviour(text, arrival).status for arrival in (1, 2, 3)] == [429, 429, 0]
    assert behaviour(text).retry_after == "2"
    assert behaviour(text).code == "slow"


@pytest.mark.parametrize("text", ["[[sleep soon]]", "[[status]]", "[[hold x]]", "[[cut after=x]]", "[[drop times=x]]"])
def test_a_directive_that_cannot_be_read_is_an_error(text: str) -> None:
    """A number that is none is refused: a test must not pass because of a typing error."""
    with pytest.raises(BadRequestError):
        behaviour(text)


@given(st.integers(0, 5000))
def test_filler_has_the_size(size: int) -> None:
    """A text of a given size has exactly that size."""
    assert len(filler(size)) == size


def test_faults_are_repeatable() -> None:
    """The same seed draws the same faults in the same order, at about the rate that was asked for."""
    rates = [parse_fault("http500=0.25"), parse_fault("cut=0.25")]
    first, second = Dice(rates, seed=3), Dice(rates, seed=3)
    drawn = [first.draw() for _ in range(400)]
    assert drawn == [second.draw() for _ in range(400)]
    assert 60 < sum(fault == (KINDS["http500"],) for fault in drawn) < 140
    assert not any(Dice([parse_fault("drop=0")]).draw() for _ in range(50))


@pytest.mark.parametrize("written", ["fire=0.1", "cut", "cut=2", "cut=-1", "cut=x", ""])
def test_a_fault_that_is_none_is_refused(written: str) -> None:
    """A kind that does not exist and a rate out of range are told apart from a fault."""
    with pytest.raises(ValueError, match=r"fault|rate"):
        parse_fault(written)
