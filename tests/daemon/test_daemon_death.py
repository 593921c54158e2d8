"""SIGKILL of the daemon: what had ended is kept, what ran is named, what waited runs once."""

import sys
from typing import Any

import pytest
from daemon_support import Client, DaemonHome
from run_support import delegate_plan, plan, wait_until

if sys.platform == "win32":
    pytest.skip("the tests send signals", allow_module_level=True)


def texts(home: DaemonHome) -> list[str]:
    """Return the user's text of every request that the provider got."""
    return [str(request["user"]) for request in home.provider.requests()]


def kill_in_the_middle(home: DaemonHome, slow: str) -> dict[str, Any]:
    """Kill a daemon with one delegate done, one running and a turn queued in another session; return the names."""
    home.configure("supervisor: {max_processes: 3}")
    home.start_daemon()
    with home.client() as client:
        first, second = client.session(), client.session(max_turns=3)
        query = delegate_plan("count these words", slow)
        ran = client.call("prompt.submit", session_id=first, input_id="one", text=query, finite=True)
        client.event("delegation.completed")
        wait_until(lambda: len(home.provider.requests()) == 3, "request of the slow delegate")
        blocker = client.call("prompt.submit", session_id=client.session(), text="[[hang]] b", finite=True)
        wait_until(lambda: len(home.provider.requests()) == 4, "request of the third process")
        waits = client.call("prompt.submit", session_id=second, text="waited for its turn", finite=True)
        assert waits["status"] == "queued"
        home.kill_daemon()
    names = {"query": query, "first": first, "ran": ran["admission_id"], "blocker": blocker["admission_id"]}
    return names | {"second": second, "waits": waits["admission_id"]}


def test_a_killed_daemon_loses_nothing_and_repeats_nothing(home: DaemonHome) -> None:
    """Receipts: one completed, one lost. The started turn is unknown; the queued one runs exactly once by itself."""
    names = kill_in_the_middle(home, "[[hang]] slow")
    home.start_daemon()
    wait_until(lambda: status(home, names["waits"]) == "terminal", "end of the queued turn")
    assert home.statuses() == [("completed", ""), ("lost", "owner_lost")]
    assert status(home, names["ran"]) == status(home, names["blocker"]) == "unknown"
    assert sum("waited for its turn" in text for text in texts(home)) == 1
    with home.client() as client:
        told = client.call("prompt.submit", session_id=names["first"], input_id="one", text=names["query"], finite=True)
        assert (told["admission_id"], told["status"]) == (names["ran"], "unknown")
        held = client.call("prompt.submit", session_id=names["first"], text=plan({"text": "Decided."}), finite=True)
        assert held["status"] == "queued"
        done = home.other("chat", "-Q", "--resume", names["first"], "-q", "and now?")
        assert done.returncode == 1
        assert f"fanjoin sessions resolve {names['first']}".encode() in done.stderr
        client.call("prompt.resolve_unknown", session_id=names["first"], action="discard")
        assert client.event("message.complete", admission_id=held["admission_id"])["payload"]["status"] == "completed"
        client.call("prompt.resolve_unknown", session_id=session_of(home, names["blocker"]), action="discard")
    home.stop_daemon()


def test_a_retry_joins_the_receipt_that_is_there(home: DaemonHome) -> None:
    """``fanjoin sessions resolve --retry`` through the daemon: the delegate that completed is not run again."""
    names = kill_in_the_middle(home, "[[hang times=1]] slow")
    home.start_daemon()
    wait_until(lambda: status(home, names["waits"]) == "terminal", "end of the queued turn")
    done = home.other("sessions", "resolve", names["first"], "--retry")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"2 of 2 delegates completed")
    assert sum(text == "count these words" for text in texts(home)) == 1
    assert home.other("sessions", "resolve", session_of(home, names["blocker"]), "--discard").returncode == 0
    home.stop_daemon()


def test_results_of_lost_delegates_are_told_once_after_the_restart(home: DaemonHome) -> None:
    """A call that ran in the background when its owner died becomes one user turn of its session, by itself."""
    home.start_daemon()
    with home.client() as client:
        session_id = client.session()
        dispatch(client, session_id, "[[hang]] a")
        wait_until(lambda: len(home.provider.requests()) == 3, "request of the delegate")
        home.kill_daemon()
    home.start_daemon()
    told = "SELECT state, delivery_state FROM async_delegations"
    wait_until(lambda: home.rows(told) == [("completed", "delivered")], "delivery")
    with home.client() as client:
        wait_until(lambda: not client.call("session.info", session_id=session_id)["turns"], "end of the turn")
        users = [
            str(one["content"])
            for one in client.call("session.info", session_id=session_id)["messages"]
            if one["role"] == "user"
        ]
    assert sum("owner_lost" in text for text in users) == 1
    home.stop_daemon()


def dispatch(client: Client, session_id: str, goal: str) -> None:
    """Dispatch a delegate into the background of a session."""
    query = plan({"delegate": [goal]}, {"text": "dispatched"})
    client.call("prompt.submit", session_id=session_id, text=query, finite=False)
    assert client.event("message.complete")["payload"]["answer"] == "dispatched"


def status(home: DaemonHome, admission_id: str) -> str:
    """Return the stored status of a turn."""
    [(found,)] = home.rows(f"SELECT status FROM session_admissions WHERE admission_id = '{admission_id}'")  # noqa: S608
    return str(found)


def session_of(home: DaemonHome, admission_id: str) -> str:
    """Return the session of a turn."""
    sql = f"SELECT target_session_id FROM session_admissions WHERE admission_id = '{admission_id}'"  # noqa: S608
    return str(home.rows(sql)[0][0])
