"""An owner that is killed: what was recorded stays, what had begun is decided by the user, what waited runs once."""

import json
from typing import Any

import pytest
from run_support import Home, delegate_plan, plan, wait_until
from sessions_support import Owner, Owners, messages, write

from fanjoin.ipc.messages import Accepted, Done, Refused, TurnDone
from fanjoin.ipc.session_messages import PromptReceipt, ResolveUnknown, TurnReceipt


def statuses(home: Home) -> list[str]:
    """Return the status of every turn, in the order of admission."""
    return [status for (status,) in home.rows("SELECT status FROM session_admissions ORDER BY seq")]


def die_between_children(owner: Owner, home: Home) -> tuple[str, Any]:
    """Kill the owner of a turn with one delegate done and one running; return the session and the submission."""
    client = owner.client()
    session_id = client.session()
    slow = f"[[hold 2 name={session_id} times=1]][[answer two]] slow"
    submit = owner.submit(session_id, delegate_plan("[[answer one]] done", slow))
    client.ask(submit, Accepted)
    wait_until(lambda: slow in [one["user"] for one in home.provider.requests()], "second delegate's request")
    wait_until(lambda: home.rows("SELECT status FROM receipts") == [("completed",)], "first receipt")
    owner.kill()
    return session_id, submit


def test_done_running_and_queued(owners: Owners, home: Home) -> None:
    """A done child keeps its receipt, a running one is lost, its turn unknown; what was queued elsewhere runs once."""
    owner = owners.start()
    client = owner.client()
    waiting = client.session("r_waiting")
    first = client.ask(owner.submit(waiting, "[[hang]] busy"), Accepted)
    queued = client.ask(owner.submit(waiting, "[[answer later]] queued"), Accepted)
    assert (first.status, queued.status) == ("started", "queued")
    session_id, _ = die_between_children(owner, home)
    assert sorted(home.rows("SELECT status FROM session_admissions")) == [("queued",), ("started",), ("started",)]
    again = owners.start()
    assert home.statuses() == [("completed", ""), ("lost", "owner_lost")]
    assert statuses(home) == ["unknown", "queued", "unknown"]
    done = again.client().ask(ResolveUnknown(request_id="r_d", session_id=waiting, retry=False), Done)
    assert done.request_id == "r_d"
    wait_until(lambda: statuses(home) == ["terminal", "terminal", "unknown"], "run of the queued turn")
    assert [one["user"] for one in home.provider.requests()].count("[[answer later]] queued") == 1
    again.close()
    owners.start()
    assert statuses(home) == ["terminal", "terminal", "unknown"]
    outcome = json.loads(home.rows("SELECT outcome FROM session_admissions ORDER BY seq")[0][0])
    assert (outcome["status"], outcome["reason"]) == ("lost", "owner_lost")
    assert session_id != waiting


def test_a_queued_turn_runs_with_what_was_frozen(owners: Owners, home: Home) -> None:
    """After the restart the turn runs with the model of its session, though the configuration has changed."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session(settings={"model": "frozen-model", "base_url": home.provider.url})
    client.ask(owner.submit(session_id, "[[hang]] busy"), Accepted)
    client.ask(owner.submit(session_id, "[[answer later]] queued"), Accepted)
    owner.kill()
    home.config("model: {base_url: 'http://127.0.0.1:9/v1', model: another}\n")
    client = owners.start().client()
    client.ask(ResolveUnknown(request_id="r_d", session_id=session_id, retry=False), Done)
    wait_until(lambda: statuses(home) == ["terminal", "terminal"], "run of the queued turn")
    assert home.provider.requests()[-1]["model"] == "frozen-model"


@pytest.mark.parametrize("has_key", [False, True])
def test_a_queued_turn_with_a_key_needs_the_owners_own(owners: Owners, home: Home, has_key: bool) -> None:
    """A viewer's key is kept nowhere: the new owner's key for the same URL is used, else the turn ends as auth."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    client.ask(owner.submit(session_id, "[[hang]] busy"), Accepted)
    queued = client.ask(owner.submit(session_id, "[[answer later]]", key="viewers-own-key"), Accepted)
    owner.kill()
    environ = {"OPENAI_BASE_URL": home.provider.url, "OPENAI_API_KEY": "owners-own-key"}
    client = owners.start(environ=environ if has_key else {}).client()
    client.ask(ResolveUnknown(request_id="r_d", session_id=session_id, retry=False), Done)
    wait_until(lambda: statuses(home) == ["terminal", "terminal"], "end of the queued turn")
    outcome = client.ask(PromptReceipt(request_id="r_r", admission_id=queued.admission_id), TurnReceipt).outcome
    assert outcome is not None
    if has_key:
        assert (outcome["status"], outcome["answer"]) == ("completed", "later")
    else:
        assert (outcome["status"], outcome["reason"]) == ("failed", "auth")
        assert session_id in outcome["message"]
        assert "[[answer later]]" not in [one["user"] for one in home.provider.requests()]


def test_an_unknown_turn_holds_its_session(owners: Owners, home: Home) -> None:
    """Chat is refused, naming what decides; a program may wait in the queue, and runs after the decision."""
    session_id, submit = die_between_children(owners.start(daemon=False), home)
    held = home.chat("[[answer hi]]", "--resume", session_id)
    assert held.returncode == 1
    assert f"fanjoin sessions resolve {session_id} --retry" in held.stderr.decode()
    replay = home.other("chat", "-Q", "-q", submit.text, "--resume", session_id, "--input-id", submit.request_id)
    assert (replay.returncode, "sessions resolve" in replay.stderr.decode()) == (1, True)
    client = (owner := owners.start(daemon=False)).client()
    assert client.ask(submit, Refused).reason == "session_busy"
    waiting = client.ask(owner.submit(session_id, "[[answer after]]", wait_if_held=True), Accepted)
    assert waiting.status == "queued"
    client.ask(ResolveUnknown(request_id="r_d", session_id=session_id, retry=False), Done)
    assert client.take(TurnDone).answer == "after"
    nothing = client.ask(ResolveUnknown(request_id="r_e", session_id=session_id, retry=False), Refused)
    assert nothing.reason == "not_found"


def test_a_retry_joins_the_receipts_that_are_there(owners: Owners, home: Home) -> None:
    """The child that had completed is not run again: its receipt is joined; the lost one is run, and the turn ends."""
    session_id, _ = die_between_children(owners.start(daemon=False), home)
    done = home.run(home.command("sessions", "resolve", session_id[:9], "--retry", "-Q"))
    assert done.returncode == 0, done.stderr
    assert b"2 of 2 delegates completed" in done.stdout
    asked = [one["user"] for one in home.provider.requests()]
    slow = f"[[hold 2 name={session_id} times=1]][[answer two]] slow"
    assert (asked.count("[[answer one]] done"), asked.count(slow)) == (1, 2)
    assert [status for status, _ in home.statuses()] == ["completed", "lost", "completed"]
    assert [one["role"] for one in messages(home, session_id)] == ["user", "assistant", "tool", "assistant"]
    (answer,) = [json.loads(one["content"]) for one in messages(home, session_id) if one["role"] == "tool"]
    first, _ = answer["results"]
    assert [(first["receipt_id"],)] == home.rows("SELECT receipt_id FROM receipts ORDER BY rowid LIMIT 1")
    assert statuses(home) == ["terminal"]


def test_a_retry_goes_on_behind_the_last_whole_step(owners: Owners, home: Home) -> None:
    """Killed after every receipt, while the parent goes on: the joined results stand, and no delegate is run again."""
    owner = owners.start(daemon=False)
    client = owner.client()
    session_id = client.session()
    last = {"text": "joined both", "do": f"[[hold 2 name={session_id} times=1]]"}
    text = plan({"delegate": ["[[answer one]]", "[[answer two]]"]}, last)
    client.ask(owner.submit(session_id, text), Accepted)
    wait_until(lambda: len(home.provider.requests()) == 4, "second step")
    owner.kill()
    done = home.run(home.command("sessions", "resolve", "latest", "--retry", "-Q"))
    assert (done.returncode, done.stdout) == (0, b"joined both\n"), done.stderr
    assert len(home.provider.requests()) == 5
    assert home.statuses() == [("completed", "")] * 2
    assert [one["role"] for one in messages(home, session_id)] == ["user", "assistant", "tool", "assistant"]


def test_a_retry_of_a_turn_that_had_its_answer_runs_nothing(owners: Owners, home: Home) -> None:
    """The owner died between the last message and the turn's end: the answer is told, and no model is asked."""
    owner = owners.start(daemon=False)
    client = owner.client()
    session_id = client.session()
    owner.run(client, session_id, "[[answer said]]")
    owner.close()
    write(home, "DROP TRIGGER admissions_end_once")
    write(home, "UPDATE session_admissions SET status = 'unknown', outcome = NULL")
    done = home.run(home.command("sessions", "resolve", "latest", "--retry"))
    assert (done.returncode, done.stdout) == (0, b"said\n")
    assert len(home.provider.requests()) == 1


def test_what_was_not_committed_never_was(owners: Owners, home: Home) -> None:
    """A submission whose owner dies before the commit leaves no row; handed in again it runs, once."""
    owner = owners.start(daemon=False)
    client = owner.client()
    session_id = client.session()
    client.send(submit := owner.submit(session_id, "[[answer once]]"))
    owner.kill()
    again = owners.start(daemon=False)
    client = again.client("w")
    client.send(submit)
    if statuses(home) in ([], ["terminal"]):
        assert client.take(TurnDone).answer == "once"
        assert len(home.provider.requests()) == 1


def test_a_private_supervisors_queued_turn_waits_for_its_session(owners: Owners, home: Home) -> None:
    """Only the next owner of its session runs it: a daemon that starts leaves it alone; resubmitted it is joined."""
    owner = owners.start(daemon=False)
    client = owner.client()
    session_id = client.session()
    client.ask(owner.submit(session_id, "[[hang]] busy"), Accepted)
    queued = owner.submit(session_id, "[[answer later]]")
    accepted = client.ask(queued, Accepted)
    owner.kill()
    client = owners.start().client()
    assert statuses(home) == ["unknown", "queued"]
    assert client.ask(queued, Accepted).admission_id == accepted.admission_id
    client.ask(ResolveUnknown(request_id="r_d", session_id=session_id, retry=False), Done)
    assert client.take(TurnDone).answer == "later"
    assert statuses(home) == ["terminal", "terminal"]
