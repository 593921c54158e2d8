"""Messages: broken, oversized, endless, in another's name, from a stranger, and very large true ones."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from faults_support import MISSPEAK, core_of, count, fates
from run_support import MISBEHAVE, Home, delegate_plan, plan, wait_until

from fanjoin.ipc.messages import CancelTurn, Hello, Outcome, Result

if sys.platform == "win32":
    pytest.skip("a stranger needs keys there; tests of the sockets show that", allow_module_level=True)

CALM_MIB = 150
"""What a supervisor may grow to while somebody floods it; a quiet one has 30."""


@pytest.mark.parametrize("deed", ["garbage", "oversized", "impostor"])
def test_three_bad_frames_end_their_sender_and_nobody_else(home: Home, deed: str) -> None:
    """Garbage, frames over the limit, frames in a sibling's name: protocol_violation; the sibling is untouched."""
    result = home.result(delegate_plan(deed, "[[sleep 0.5]][[answer mine]]"), entry=MISSPEAK)
    assert fates(result) == [("crashed", "protocol_violation"), ("completed", "")]
    assert result["results"][1]["summary"] == "mine"
    assert "frames broke the protocol" in result["results"][0]["error"]["message"]


@pytest.mark.parametrize("deed", ["twice-wrong", "replay", "thief"])
def test_what_breaks_nothing_is_forgiven(home: Home, deed: str) -> None:
    """Two bad frames, a result of another run, a connection under a sibling's name: all answers are the own ones."""
    result = home.result(delegate_plan(f"{deed} [[", "[[sleep 0.5]][[answer mine]]"), entry=MISSPEAK)
    assert fates(result) == [("completed", "")] * 2
    assert result["results"][1]["summary"] == "mine"
    assert "stolen" not in json.dumps(result)


def test_a_second_hello_does_not_start_the_clock_anew(home: Home) -> None:
    """A delegate that greets for ever is ended by its timeout."""
    home.config("delegation: {child_timeout_seconds: 1, cancel_grace_seconds: 0.2}")
    result = home.result(delegate_plan("greet-again"), entry=MISSPEAK)
    assert fates(result) == [("timeout", "child_timeout")]


def test_a_flood_of_progress_is_bounded_and_delays_nobody(home: Home) -> None:
    """400 MB of true progress from one delegate: the supervisor stays small, both delegates complete."""
    process = home.start(delegate_plan("flood", "[[answer mine]]"), "--format", "json", entry=MISSPEAK)
    wait_until(lambda: count(home, "attempts WHERE receipt_id <> ''"), "delegates")
    core, peak = core_of(home), 0
    while process.poll() is None and core.is_running():
        peak = max(peak, memory_of(core))
    out, _ = process.communicate(timeout=30)
    assert fates(json.loads(out)) == [("completed", "")] * 2
    assert 0 < peak < CALM_MIB
    home.check_nothing_left()


def memory_of(process: Any) -> int:
    """Return a process's resident MiB, 0 when it is gone."""
    try:
        return int(process.memory_info().rss) >> 20
    except Exception:  # noqa: BLE001 - it ended meanwhile
        return 0


def test_a_flood_of_output_is_bounded_and_its_end_is_kept(home: Home) -> None:
    """One prints 200 MB and goes, one prints 100 MB a second until it is ended: little stays of either."""
    home.config("delegation: {child_timeout_seconds: 2, cancel_grace_seconds: 0}")
    process = home.start(delegate_plan("flood", "print", "count this"), "--format", "json", entry=MISBEHAVE)
    wait_until((home.path / "reached-print").exists, "delegate that prints")
    core = core_of(home)
    sizes, memory = [0], [0]
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):  # it goes with its process
            sizes += [log.stat().st_size for log in home.path.glob("run/*/d_*.log")]
        memory.append(memory_of(core))
    out, _ = process.communicate(timeout=30)
    assert fates(json.loads(out)) == [("crashed", "exit_code"), ("timeout", "child_timeout"), ("completed", "")]
    assert max(sizes) < 250 << 20
    assert max(memory) < CALM_MIB
    kept = home.rows("SELECT MAX(LENGTH(stderr_tail)) FROM attempts")[0][0]
    assert 0 < kept <= 4000
    home.check_nothing_left()


def test_a_stranger_reaches_nothing(home: Home) -> None:
    """Garbage, guessed names and guessed nonces at both sockets of a run: it completes as if nobody had called."""
    process = home.start(delegate_plan("[[sleep 1]][[answer mine]]"), "--format", "json")
    wait_until(lambda: count(home, "attempts WHERE receipt_id <> '' AND pid > 0"), "delegate")
    attempt = home.rows("SELECT attempt_id FROM attempts WHERE receipt_id <> ''")[0][0]
    endpoints = json.loads(next(home.path.glob("run/*/endpoints.json")).read_text(encoding="utf-8"))
    run_id = next(home.path.glob("run/i_*")).name
    with zmq.Context() as context:
        for address in (endpoints["back"], endpoints["front"]):
            for name in (attempt, attempt.replace(".1", ".2"), "owner", "x" * 200):
                speak_as(context, address, name, run_id)
    out, _ = process.communicate(timeout=20)
    result = json.loads(out)
    assert fates(result) == [("completed", "")]
    assert result["results"][0]["summary"] == "mine"
    home.check_nothing_left()


def speak_as(context: "zmq.Context[zmq.Socket[bytes]]", address: str, name: str, run_id: str) -> None:
    """Connect under a name and say everything that somebody could try without a secret."""
    who = {"run_id": run_id, "attempt_id": name}
    with context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.ROUTING_ID, name.encode())
        dealer.setsockopt(zmq.LINGER, 200)
        dealer.connect(address)
        frames = [
            [b""],
            [os.urandom(1000)],
            [b"a", b"b", b"c"],
            [b"\x91" * 5000],
            [msgspec.msgpack.encode(Hello(nonce="guessed", pid=1, **who))],
            [msgspec.msgpack.encode(Result(outcome=Outcome(status="completed", text="stolen"), **who))],
            [msgspec.msgpack.encode(CancelTurn())],
        ]
        for frame in frames * 3:
            dealer.send_multipart(frame)


def test_the_folder_of_the_sockets_is_closed_to_others(home: Home) -> None:
    """Home, run folder and spool are private, and so is what names the sockets."""
    process = home.start(delegate_plan("[[sleep 0.5]] a"))
    found = wait_until(lambda: list(home.path.glob("run/*/endpoints.json")), "run folder")[0]
    spool = Path(json.loads(found.read_text(encoding="utf-8"))["spool"])
    for path, mode in ((home.path, 0o700), (found.parent, 0o700), (spool, 0o700), (found, 0o600)):
        assert path.stat().st_mode & 0o777 == mode, path
    process.communicate(timeout=20)
    home.check_nothing_left()


def test_sixty_four_goals_of_300_kb_arrive_whole(home: Home) -> None:
    """No argument list, no pipe and no frame limits a goal: the provider counts the bytes of each."""
    home.config("delegation: {max_concurrent_children: 16}")
    goals = [f"[[answer {number:02}]]" + "word " * 60_000 for number in range(64)]
    file = home.path.with_name("query.txt")
    file.write_text(plan({"delegate": goals}, {"text": "all here"}), encoding="utf-8")
    done = home.chat(None, "--query-file", str(file), "--format", "json")
    result = json.loads(done.stdout)
    assert [entry["summary"] for entry in result["results"]] == [f"{number:02}" for number in range(64)]
    assert home.rows("SELECT COUNT(*), MIN(LENGTH(goal)) FROM delegations") == [(64, len(goals[0]))]


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_many_delegates_at_once_find_their_supervisor(home: Home, transport: str) -> None:
    """Forty start at the same moment and connect to an address that was bound before it was told."""
    home.config(f"delegation: {{max_concurrent_children: 40}}\nsupervisor: {{transport: {transport}}}")
    result = home.result(delegate_plan(*["[[answer here]]"] * 40))
    assert fates(result) == [("completed", "")] * 40
