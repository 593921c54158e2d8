"""Background delegates: dispatched at once, told once, whatever happens to their session and its owner."""

import json
from typing import Any

from run_support import Home, delegate_plan, wait_until
from sessions_support import Client, Owner, Owners, background, messages, told_results

from fanjoin.ipc.messages import Accepted, Event, TurnDone
from fanjoin.ipc.session_messages import SessionInfo, SessionSnapshot


def dispatched(home: Home, session_id: str) -> dict[str, Any]:
    """Return the answer to the session's first call."""
    (answer, *_) = [one["content"] for one in messages(home, session_id) if one["role"] == "tool"]
    value: dict[str, Any] = json.loads(answer)
    return value


def calls(home: Home) -> list[tuple[Any, ...]]:
    """Return state and delivery of every dispatched call."""
    return home.rows("SELECT state, delivery_state FROM async_delegations ORDER BY rowid")


def wait_told(home: Home, count: int = 1) -> None:
    """Wait until so many results are told and nothing of their turns is open."""
    told = (
        "SELECT COUNT(*) FROM async_delegations JOIN session_admissions AS a "
        "ON a.admission_id = delivered_admission_id WHERE a.status = 'terminal'"
    )
    wait_until(lambda: home.rows(told) == [(count,)], "delivery")


def start_held(owner: Owner, client: Client, session_id: str, name: str) -> TurnDone:
    """Dispatch one delegate that goes on only when ``release`` asks the provider under the same name."""
    return owner.run(client, session_id, background(f"[[hold 2 name={name}]] held"), finite=False)


def release(owner: Owner, name: str, request_id: str = "r_release") -> None:
    """Let the held delegate go on, by a turn of another session."""
    client = owner.client(f"release-{name}-{request_id}")
    other = client.session(request_id)
    client.send(owner.submit(other, f"[[hold 2 name={name}]] go"))


def test_a_call_is_answered_at_once_and_its_result_becomes_a_turn(owners: Owners, home: Home) -> None:
    """The turn ends while its delegates run; the joined result comes later, as a user turn of the same session."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    done = start_held(owner, client, session_id, "simple")
    assert (done.status, done.answer, done.results) == ("completed", "Dispatched.", [])
    answer = dispatched(home, session_id)
    assert (answer["status"], answer["count"]) == ("dispatched", 1)
    assert answer["goals"] == ["[[hold 2 name=simple]] held"]
    assert answer["transcripts"][0].endswith(".jsonl")
    assert calls(home) == [("running", "pending")]
    release(owner, "simple")
    wait_told(home)
    assert calls(home) == [("completed", "delivered")]
    (told,) = told_results(home, session_id)
    assert answer["delegation_id"] in told
    client.take(Event, lambda event: event.name == "delegation.joined")
    client.take(Event, lambda event: event.name == "turn.started")
    assert messages(home, session_id)[-1]["role"] == "assistant"


def test_a_new_user_message_kills_no_delegate(owners: Owners, home: Home) -> None:
    """A turn that comes meanwhile runs and ends; the result is told after it."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    start_held(owner, client, session_id, "meanwhile")
    assert owner.run(client, session_id, "[[answer still here]]", finite=False).answer == "still here"
    assert calls(home) == [("running", "pending")]
    release(owner, "meanwhile")
    wait_told(home)
    assert home.statuses() == [("completed", "")]


def test_a_result_waits_for_a_busy_session(owners: Owners, home: Home) -> None:
    """What ends while a turn runs is told when that has ended, never into it."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    start_held(owner, client, session_id, "busy")
    busy = client.ask(owner.submit(session_id, "[[hold 2 name=long]] long", finite=False), Accepted)
    release(owner, "busy")
    wait_until(lambda: calls(home) == [("completed", "pending")], "completed call")
    release(owner, "long", "r_second")
    client.take(TurnDone, lambda done: done.admission_id == busy.admission_id)
    wait_told(home)
    roles = [(one["role"], '"results"' in str(one["content"])) for one in messages(home, session_id)]
    assert roles[-4:] == [("user", False), ("assistant", False), ("user", True), ("assistant", False)]


def test_a_finite_turn_leaves_no_row(owners: Owners, home: Home) -> None:
    """Inline calls are joined and never stand among the dispatched ones."""
    owner = owners.start()
    client = owner.client()
    owner.run(client, client.session(), delegate_plan("[[answer one]]"))
    assert calls(home) == []


def test_five_restarts_and_one_delivery(owners: Owners, home: Home) -> None:
    """A result that ended with nobody to tell it is told once, however often its owner dies before and after."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    start_held(owner, client, session_id, "five")
    busy = owner.submit(session_id, "[[hold 2 name=never]] long", finite=False)
    client.ask(busy, Accepted)
    release(owner, "five")
    wait_until(lambda: calls(home) == [("completed", "pending")], "completed call")
    owner.kill()
    for _ in range(3):  # the turn that had begun holds the session: nothing is told yet
        owner = owners.start()
        snapshot = owner.client().ask(SessionInfo(request_id="r_i", session_id=session_id), SessionSnapshot)
        assert ([turn.status for turn in snapshot.turns], snapshot.pending) == (["unknown"], 1)
        owner.kill()
    assert home.other("sessions", "resolve", session_id[:8], "--discard").returncode == 0
    owner = owners.start()
    wait_told(home)
    owner.kill()
    owners.start()
    assert len(told_results(home, session_id)) == 1
    assert calls(home) == [("completed", "delivered")]


def test_an_idle_session_is_told_after_a_restart(owners: Owners, home: Home) -> None:
    """The owner dies with the delegate: the daemon that comes next tells that it is lost, without being asked."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    start_held(owner, client, session_id, "lost")
    owner.kill()
    owners.start()
    wait_told(home)
    (told,) = told_results(home, session_id)
    assert '"lost"' in told
    assert home.statuses() == [("lost", "owner_lost")]


def test_a_finite_turn_gets_what_was_lost_before_its_text(owners: Owners, home: Home) -> None:
    """Resumed without a daemon: the result stands before the new text, is told once, and nothing is run again."""
    owner = owners.start(daemon=False)
    client = owner.client()
    session_id = client.session()
    start_held(owner, client, session_id, "resumed")
    owner.kill()
    for text in ("[[answer first]]", "[[answer second]]"):
        done = home.chat(text, "--resume", session_id)
        assert done.returncode == 0, done.stderr
    contents = [str(one["content"]) for one in messages(home, session_id)]
    told = [number for number, content in enumerate(contents) if '"results"' in content]
    assert told == [contents.index("[[answer first]]") - 1]
    assert calls(home) == [("completed", "delivered")]
    assert home.statuses() == [("lost", "owner_lost")]


def test_a_finite_turn_joins_what_still_runs_before_its_last_step(owners: Owners, home: Home) -> None:
    """Its model answers while a dispatched delegate runs: the result comes first, then one more step, then the end."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    start_held(owner, client, session_id, "late")
    accepted = client.ask(owner.submit(session_id, "Anything new?"), Accepted)
    wait_until(lambda: [one["role"] for one in messages(home, session_id)][-2:] == ["user", "assistant"], "answer")
    release(owner, "late")
    done = client.take(TurnDone, lambda one: one.admission_id == accepted.admission_id)
    assert done.status == "completed"
    assert "1 of 1 delegate completed" in done.answer
    roles = [(one["role"], '"results"' in str(one["content"])) for one in messages(home, session_id)]
    assert roles[-4:] == [("user", False), ("assistant", False), ("user", True), ("assistant", False)]
    assert calls(home) == [("completed", "delivered")]


def test_a_private_owner_that_ends_cancels_with_receipts(owners: Owners, home: Home) -> None:
    """Without a daemon delegates end with their owner: cancelled, recorded, and told when the session is resumed."""
    owner = owners.start(daemon=False)
    client = owner.client()
    session_id = client.session()
    start_held(owner, client, session_id, "private")
    owner.close()
    home.check_nothing_left()
    assert home.statuses() == [("cancelled", "viewer_lost")]
    assert calls(home) == [("completed", "pending")]
    assert home.chat("[[answer ok]]", "--resume", "latest").stdout == b"ok\n"
    assert len(told_results(home, session_id)) == 1
