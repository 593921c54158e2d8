"""Each way to ask for a finite run, and what its standard output holds."""

import json
from pathlib import Path
from typing import Any

import pytest
from run_support import Home, delegate_plan, plan

from fanjoin.cli.provider.synthetic import NOTE

TWO_AT_ONCE = delegate_plan("[[hold 2 name=pair]] [[answer first]]", "[[hold 2 name=pair]] [[answer second]]")
JOINED = f"2 of 2 delegates completed.\n\n1. task 1: completed\n   first\n2. task 2: completed\n   second\n\n{NOTE}"
CAP_OF_TWO = "delegation: {max_concurrent_children: 2}"

FINITE = {
    "quiet": ["chat", "-Q", "-q", TWO_AT_ONCE],
    "oneshot": ["chat", "--oneshot", "-q", TWO_AT_ONCE],
    "redirected": ["chat", "-q", TWO_AT_ONCE],
    "run": ["run", TWO_AT_ONCE],
    "stdin": ["run", "-"],
}


@pytest.mark.parametrize("mode", FINITE)
def test_a_finite_run_joins_both_delegates_and_prints_the_answer_alone(home: Home, mode: str) -> None:
    """Neither child is answered before both have asked; the answer is made of both, in task order, in 4 requests."""
    home.config(CAP_OF_TWO)
    text_in = TWO_AT_ONCE if mode == "stdin" else None
    done = home.run(home.command(*FINITE[mode], *home.model()), text_in=text_in)
    assert (done.returncode, done.stdout) == (0, f"{JOINED}\n".encode())
    assert len(home.provider.requests()) == 4
    assert b"2 of 2 delegates completed" in done.stderr
    assert b"session: s_" in done.stderr


def test_json_is_one_object_with_the_answer_and_both_results(home: Home) -> None:
    """``--format json``: one line, one object, the same answer, and the entries in task order."""
    home.config(CAP_OF_TWO)
    done = home.chat(TWO_AT_ONCE, "--format", "json")
    assert done.stdout.count(b"\n") == 1
    result = json.loads(done.stdout)
    assert (result["ok"], result["exit_code"], result["status"], result["error"]) == (True, 0, "completed", None)
    assert result["answer"] == JOINED
    assert [entry["summary"] for entry in result["results"]] == ["first", "second"]
    assert all(Path(entry["transcript"]).is_file() for entry in result["results"])
    assert len(home.provider.requests()) == 4


def test_six_streams_at_once_each_end_with_their_result(home: Home, tmp_path: Path) -> None:
    """Six runs side by side under one home, ``stream-json`` to files: every line parses, the last is the result."""
    paths = [tmp_path / f"{number}.jsonl" for number in range(6)]
    running = []
    for number, path in enumerate(paths):
        with path.open("wb") as file:
            query = delegate_plan(f"[[answer {number}]]", "[[answer also]]")
            running.append(home.start(query, "--format", "stream-json", stdout=file))
    for process in running:
        process.communicate(timeout=60)
        assert process.returncode == 0
    home.check_nothing_left()
    for number, path in enumerate(paths):
        events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        _check_stream(events)
        assert [entry["summary"] for entry in events[-1]["results"]] == [str(number), "also"]


def _check_stream(events: list[dict[str, Any]]) -> None:
    """Check the order of one run's events and that the stream tells the same as its result."""
    kinds = [event["type"] for event in events]
    assert kinds[-1] == "result"
    assert kinds.count("result") == 1
    assert len({event["session_id"] for event in events}) == 1
    numbers = [event["sequence"] for event in events if "sequence" in event]
    assert numbers == list(range(1, len(numbers) + 1))
    ended = {
        event["entry"]["receipt_id"]: event["entry"] for event in events if event["type"] == "delegation.completed"
    }
    assert ended == {entry["receipt_id"]: entry for entry in events[-1]["results"]}
    said = "".join(event["text"] for event in events if event["type"] == "message.delta")
    assert said == events[-1]["answer"]


def test_the_answer_is_written_as_it_is(home: Home) -> None:
    """White space, line ends, tabs and NUL of an answer reach standard output untouched, with one newline added."""
    answer = "  first \r\n\n\tthird: \u00fc \u6d4b \U0001f600 \x00 \x1b[0m end \n\n"
    done = home.chat(plan({"text": answer}))
    assert (done.returncode, done.stdout) == (0, f"{answer}\n".encode())


def test_progress_goes_to_standard_error_and_quiet_silences_it(home: Home) -> None:
    """Without ``-Q`` each delegate's start and end is told on standard error; with it only session and verdict."""
    query = delegate_plan("[[answer a]]")
    loud = home.run(home.command("chat", *home.model(), "-q", query)).stderr.decode().splitlines()
    quiet = home.chat(query).stderr.decode().splitlines()
    assert [line.split()[0] for line in quiet] == ["session:", "1"]
    assert sum(" started: " in line for line in loud) == 1
    assert sum(" completed " in line and line.startswith("  d_") for line in loud) == 1


def test_a_flag_given_twice_counts_as_its_last(home: Home) -> None:
    """Repeated flags are no error."""
    done = home.chat(plan({"text": "first"}), "-m", "a", "-m", "b", "-q", plan({"text": "last"}), "-Q")
    assert (done.returncode, done.stdout) == (0, b"last\n")
    assert [request["model"] for request in home.provider.requests()] == ["b"]
