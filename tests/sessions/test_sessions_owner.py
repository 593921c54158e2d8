"""Sessions as their owner keeps them: identities, order, one owner, events."""

import shutil
from itertools import pairwise

from run_support import Home, delegate_plan, plan, wait_until
from sessions_support import Owners, messages
from test_sessions_command import PNG

from fanjoin.ipc.images import GONE, as_submitted
from fanjoin.ipc.messages import Accepted, CancelTurn, Done, Event, Refused, TurnDone
from fanjoin.ipc.paths import images_folder
from fanjoin.ipc.session_messages import (
    CreateSession,
    DelegationList,
    Delegations,
    DeleteSession,
    Gap,
    ListSessions,
    MessagePage,
    PromptReceipt,
    ReadMessages,
    SessionInfo,
    SessionList,
    SessionSnapshot,
    Subscribe,
    TurnReceipt,
    Unsubscribe,
)


def test_the_same_request_makes_one_session(owners: Owners) -> None:
    """``create_session`` again is the same session; with other fields it is refused, and nothing is made."""
    client = owners.start().client()
    create = CreateSession(request_id="r_1", fields={"model": "m"}, settings={"model": "m", "cwd": "/w"}, title="T")
    first = client.ask(create, SessionSnapshot)
    again = client.ask(create, SessionSnapshot)
    assert (first.created, again.created, first.session_id) == (True, False, again.session_id)
    assert (first.settings, first.title) == ({"model": "m", "cwd": "/w"}, "T")
    refused = client.ask(CreateSession(request_id="r_1", fields={"model": "n"}), Refused)
    assert refused.reason == "invalid_params"
    assert len(client.ask(ListSessions(request_id="r_2"), SessionList).sessions) == 1


def test_a_later_turn_goes_on_where_the_session_was(owners: Owners, home: Home) -> None:
    """The next turn's model sees all earlier messages, tool messages included."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    assert owner.run(client, session_id, delegate_plan("[[answer one]]", "[[answer two]]")).status == "completed"
    done = owner.run(client, session_id, "And now?")
    transcript = (home.path / "transcripts" / f"{done.admission_id}.jsonl").read_text(encoding="utf-8")
    for part in ("[[answer one]]", '"tool_calls"', '"results"', "And now?"):
        assert part in transcript.replace('\\"', '"')
    assert [one["role"] for one in messages(home, session_id)] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]


def test_a_replay_answers_and_a_changed_payload_conflicts(owners: Owners, home: Home) -> None:
    """The same identity runs once, whoever asks again and when; changed it is a conflict, and another restart later."""
    owner = owners.start()
    client, other = owner.client("a"), owner.client("b")
    session_id = client.session()
    submit = owner.submit(session_id, "[[answer yes]]", request_id="r_same")
    first = client.ask(submit, Accepted)
    done = client.take(TurnDone)
    replay = other.ask(submit, Accepted)
    assert (replay.status, replay.admission_id, replay.outcome and replay.outcome["answer"]) == (
        "terminal",
        first.admission_id,
        "yes",
    )
    assert other.take(TurnDone) == done
    changed = owner.submit(session_id, "[[answer no]]", request_id="r_same")
    assert other.ask(changed, Refused).reason == "admission_conflict"
    owner.close()
    again = owners.start()
    assert again.client().ask(submit, Accepted).status == "terminal"
    assert len(home.provider.requests()) == 1


def test_twenty_at_once_run_one_turn(owners: Owners, home: Home) -> None:
    """Twenty viewers hand in the same identity before any is answered: one turn, one answer for all."""
    owner = owners.start()
    session_id = owner.client("maker").session()
    clients = [owner.client(f"v{number}") for number in range(20)]
    for client in clients:
        client.send(owner.submit(session_id, "[[answer once]]", request_id="r_race"))
    ends = {client.take(TurnDone).admission_id for client in clients}
    assert len(ends) == 1
    assert {client.take(Accepted).admission_id for client in clients} == ends
    assert len(home.provider.requests()) == 1
    assert home.rows("SELECT COUNT(*) FROM session_admissions") == [(1,)]


def test_turns_of_a_session_run_in_their_order(owners: Owners, home: Home) -> None:
    """First in, first out, one at a time; turns of other sessions do not wait for them."""
    owner = owners.start()
    client = owner.client()
    one, two = client.session("r_one"), client.session("r_two")
    texts = [f"[[sleep 0.2]][[answer {number}]]" for number in range(3)]
    for text in texts:
        client.send(owner.submit(one, text))
    client.send(owner.submit(two, "[[answer other]]"))
    ends = [client.take(TurnDone) for _ in range(4)]
    assert [done.answer for done in ends if done.session_id == one] == ["0", "1", "2"]
    assert ends[0].answer == "other"
    rows = home.rows("SELECT started_at, ended_at FROM session_admissions ORDER BY seq")
    for (_, ended), (started, _) in pairwise(rows[:3]):
        assert ended <= started


def test_a_living_owner_keeps_its_session(owners: Owners, home: Home) -> None:
    """Another supervisor is refused at once, told who owns the session, and runs nothing."""
    owner, other = owners.start(), owners.start(daemon=False)
    session_id = owner.client().session()
    refused = other.client().ask(other.submit(session_id, "hi"), Refused)
    assert refused.reason == "session_busy"
    assert f"daemon {owner.core.instance_id} (pid {owner.core.pid})" in refused.message
    assert home.provider.requests() == []
    owner.close()
    client = other.client("w")
    assert other.run(client, session_id, "[[answer mine now]]").answer == "mine now"


def test_events_since_a_number(owners: Owners) -> None:
    """A viewer that comes back gets the events that it missed, in order; what is not kept any more is a gap."""
    owner = owners.start()
    client = owner.client("first")
    session_id = client.session()
    owner.run(client, session_id, "[[answer yes]]")
    client.read()
    events = [one for one in client.told if isinstance(one, Event)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [events[0].name, events[-1].name] == ["turn.started", "message.complete"]
    back = owner.client("back")
    snapshot = back.ask(
        Subscribe(request_id="r_b", session_id=session_id, since=1, instance_id=owner.core.instance_id), SessionSnapshot
    )
    assert snapshot.sequence == len(events)
    assert [back.take(Event) for _ in events[1:]] == events[1:]
    stranger = owner.client("stranger")
    stranger.send(Subscribe(request_id="r_s", session_id="latest", since=9, instance_id="i_another"))
    assert stranger.take(Gap) == Gap(session_id=session_id, first=0, last=len(events))


def test_more_events_than_are_kept_leave_a_gap(owners: Owners) -> None:
    """The newest 500 events of a session are kept; what came before is told of by its numbers."""
    owner = owners.start()
    client = owner.client("first")
    session_id = client.session()
    for number in range(170):
        owner.run(client, session_id, f"[[answer {number}]]")
    back = owner.client("back")
    back.send(Subscribe(request_id="r", session_id=session_id, since=2, instance_id=owner.core.instance_id))
    snapshot = back.take(SessionSnapshot)
    gap = back.take(Gap)
    assert (gap.first, gap.last) == (3, snapshot.sequence - 500)
    assert back.take(Event).sequence == gap.last + 1


def test_what_viewers_ask_of_the_records(owners: Owners) -> None:
    """Listings, pages of the conversation, receipts of turns: they own nothing and change nothing."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session(title="A title")
    done = owner.run(client, session_id, delegate_plan("[[answer one]]"), request_id="r_turn")
    info = client.ask(SessionInfo(request_id="r_1", session_id="latest"), SessionSnapshot)
    assert (info.session_id, info.title, info.message_count, info.first, info.turns) == (
        session_id,
        "A title",
        4,
        0,
        [],
    )
    page = client.ask(ReadMessages(request_id="r_2", session_id=session_id, before=2), MessagePage)
    assert ([one["role"] for one in page.messages], page.first, page.message_count) == (["user", "assistant"], 0, 4)
    by_identity = PromptReceipt(request_id="r_3", session_id=session_id, input_id="r_turn")
    receipt = client.ask(by_identity, TurnReceipt)
    assert (receipt.admission_id, receipt.status, receipt.results) == (done.admission_id, "terminal", done.results)
    by_name = PromptReceipt(request_id="r_4", admission_id=done.admission_id)
    assert client.ask(by_name, TurnReceipt).input_id == "r_turn"
    assert client.ask(PromptReceipt(request_id="r_5", admission_id="t_no"), Refused).reason == "not_found"
    assert client.ask(SessionInfo(request_id="r_6", session_id="s_no"), Refused).reason == "not_found"
    assert client.ask(Subscribe(request_id="r_7", session_id="s_no"), Refused).reason == "not_found"
    assert client.ask(DelegationList(request_id="r_8"), Delegations).delegates == []
    client.ask(Unsubscribe(request_id="r_9", session_id=session_id), Done)
    client.ask(DeleteSession(request_id="r_10", session_id=session_id), Done)
    assert client.ask(ListSessions(request_id="r_11"), SessionList).sessions == []
    assert client.ask(owner.submit(session_id, "hi"), Refused).reason == "not_found"


def test_a_cancel_reaches_a_turn_that_is_only_about_to_be_admitted(owners: Owners) -> None:
    """Sent right behind the submission, before it is known that nobody submitted it earlier: the turn is cancelled."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    client.send(owner.submit(session_id, plan({"text": "late", "do": "[[sleep 20]]"})))
    client.send(CancelTurn())
    assert client.take(TurnDone).status == "cancelled"


def test_delegates_that_run_are_listed(owners: Owners) -> None:
    """Queued and running delegates of a session, with their goal; afterwards none."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    client.send(owner.submit(session_id, delegate_plan("[[hold 2 name=list]] one", "[[hold 2 name=list]] two")))

    def listed() -> bool:
        found = client.ask(DelegationList(request_id="r_l", session_id=session_id), Delegations)
        return [one.goal[-3:] for one in found.delegates] == ["one", "two"]

    wait_until(listed, "listing of both")
    client.take(TurnDone)


def test_a_session_that_is_submitted_to_is_not_deleted(owners: Owners) -> None:
    """Asked for right behind a submission, before that is admitted: the deletion is refused, the turn runs."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    client.send(owner.submit(session_id, "hello"))
    client.send(DeleteSession(request_id="r_delete", session_id=session_id))
    assert client.take(Refused).reason == "session_busy"
    assert client.take(TurnDone).status == "completed"
    client.ask(DeleteSession(request_id="r_again", session_id=session_id), Done)
    assert client.ask(owner.submit(session_id, "more"), Refused).reason == "not_found"


def test_a_turn_whose_image_is_gone_runs_without_it(owners: Owners, home: Home) -> None:
    """Its file was removed while the turn waited: the model is told so, and the supervisor lives on."""
    owner = owners.start()
    client = owner.client()
    session_id = client.session()
    first = client.ask(owner.submit(session_id, "[[hang]] first"), Accepted)
    client.ask(owner.submit(session_id, "look", images=[as_submitted(PNG)]), Accepted)
    shutil.rmtree(images_folder(home.path))
    client.send(CancelTurn(admission_id=first.admission_id))
    assert client.take(TurnDone, lambda done: done.admission_id != first.admission_id).status == "completed"
    assert home.provider.requests()[-1]["user"] == f"look\n{GONE}"
