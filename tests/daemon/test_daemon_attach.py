"""Runs that attach to the daemon of their home: they use it and never own its life."""

import json
import signal
import subprocess
import sys

import pytest
from daemon_support import DaemonHome, RefusedError
from run_support import delegate_plan, plan, wait_until

if sys.platform == "win32":
    pytest.skip("the tests send signals", allow_module_level=True)

TWO = delegate_plan("count a", "count b")


def run(home: DaemonHome, query: str, *flags: str) -> "subprocess.CompletedProcess[bytes]":
    """Run ``fanjoin chat -Q`` to its end beside a daemon."""
    with home.start(query, *flags) as process:
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_a_run_attaches_and_says_so_in_one_line(daemon: DaemonHome) -> None:
    """The answer is the same, no supervisor of its own is started, and the daemon is there afterwards."""
    done = run(daemon, TWO)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"2 of 2 delegates completed.")
    assert done.stderr.startswith(f"attached to the daemon (process {daemon.descriptor()['pid']})\n".encode())
    assert daemon.rows("SELECT DISTINCT owner_id FROM delegations") == [(daemon.descriptor()["instance_id"],)]
    assert daemon.other("daemon", "status").returncode == 0


def test_never_and_require_decide(home: DaemonHome) -> None:
    """``require`` without a daemon runs nothing and exits 2; ``never`` beside one has a supervisor of its own."""
    done = run(home, "hello", "--daemon", "require")
    assert (done.returncode, home.provider.requests()) == (2, [])
    assert b"fanjoin daemon start" in done.stderr
    home.start_daemon()
    assert run(home, "hello", "--daemon", "require").returncode == 0
    done = run(home, "hello", "--daemon=never")
    assert done.returncode == 0
    assert b"attached" not in done.stderr
    home.stop_daemon()


def test_an_interrupt_ends_the_runs_turn_and_nothing_else(daemon: DaemonHome) -> None:
    """SIGINT: exit 130, receipts say cancelled; a turn of another viewer goes on, and so does the daemon."""
    with daemon.client() as client:
        client.call("prompt.submit", session_id=client.session(), text="[[hold 2 name=gate]] a", finite=True)
        process = daemon.start(delegate_plan("[[hang]] a", "[[hang]] b"))
        wait_until(lambda: len(daemon.provider.requests()) == 4, "requests of all")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 130
        assert daemon.statuses() == [("cancelled", "cancelled")] * 2
        assert run(daemon, "[[hold 2 name=gate]] b").returncode == 0
        assert client.event("message.complete")["payload"]["status"] == "completed"


def test_a_killed_viewer_only_detaches(daemon: DaemonHome) -> None:
    """SIGKILL of the command: its turn is carried through in the daemon, and its delegate completes."""
    process = daemon.start(delegate_plan("[[hold 2 name=gate]] a"))
    wait_until(lambda: len(daemon.provider.requests()) == 2, "request of the delegate")
    process.kill()
    process.communicate()
    assert run(daemon, "[[hold 2 name=gate]] b").returncode == 0
    wait_until(lambda: daemon.rows("SELECT status FROM session_admissions") == [("terminal",)] * 2, "end of both turns")
    assert daemon.statuses() == [("completed", "")]


def test_a_lost_daemon_is_reported_with_the_way_on(home: DaemonHome) -> None:
    """SIGKILL of the daemon while a run follows it: exit 1 naming ``--resume``."""
    home.start_daemon()
    process = home.start("[[hang]] a")
    wait_until(home.provider.requests, "request of the root")
    home.kill_daemon()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert b"fanjoin chat --resume s_" in err


def test_ps_and_cancel_reach_a_daemon_and_a_run_of_its_own(daemon: DaemonHome) -> None:
    """Both are listed together; a delegate, a call and a turn are ended by a beginning of their names."""
    shared = daemon.start(delegate_plan("[[hang]] shared one", "[[hang]] shared two"))
    own = daemon.start(delegate_plan("[[hang]] own"), "--daemon", "never")
    wait_until(lambda: len(daemon.provider.requests()) == 5, "requests of all")
    listed = {one["goal"]: one for one in json.loads(daemon.other("ps", "--format", "json").stdout)}
    assert set(listed) == {"[[hang]] shared one", "[[hang]] shared two", "[[hang]] own"}
    first = listed["[[hang]] shared one"]
    assert daemon.other("cancel", first["receipt_id"]).returncode == 0
    wait_until(lambda: daemon.statuses() == [("cancelled", "cancelled")], "receipt of the cancelled delegate")
    assert daemon.other("cancel", first["delegation_id"]).returncode == 0
    shared.communicate(timeout=20)
    assert shared.returncode == 4
    [(turn,)] = daemon.rows("SELECT admission_id FROM session_admissions WHERE status = 'started'")
    assert daemon.other("cancel", turn[:-1]).returncode == 0
    own.communicate(timeout=20)
    assert own.returncode == 1
    done = daemon.other("cancel", turn)
    assert done.returncode == 2
    assert b"Nothing that is queued or running" in done.stderr


def test_a_finite_turn_resumes_a_session_of_the_daemon(daemon: DaemonHome) -> None:
    """It goes on with the conversation, joins what ran in the background, and leaves no row of its own there."""
    with daemon.client() as client:
        session_id = client.session()
        query = plan({"delegate": ["[[hold 2 name=gate]] a"]}, {"text": "dispatched"})
        client.call("prompt.submit", session_id=session_id, text=query, finite=False)
        assert client.event("message.complete")["payload"]["answer"] == "dispatched"
        process = daemon.start("and now?", "--resume", session_id)
        wait_until(lambda: len(daemon.rows("SELECT 1 FROM session_admissions")) == 2, "the resumed turn")
        assert run(daemon, "[[hold 2 name=gate]] b").returncode == 0
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.strip()
    assert daemon.rows("SELECT state, delivery_state FROM async_delegations") == [("completed", "delivered")]
    told = [row[0] for row in daemon.rows("SELECT message FROM messages ORDER BY seq")]
    assert sum("delegation_id" in message and '"role":"user"' in message for message in told) == 1


def test_what_a_run_submitted_can_be_sent_again_over_the_socket(daemon: DaemonHome) -> None:
    """From what ``session_admissions`` stored: the same is a replay, changed a conflict, a wrong type refused first."""
    cwd = str(daemon.path.parent)
    done = run(daemon, "hello", "--input-id", "in-1", "--max-turns", "7", "--deadline", "60", "-C", cwd)
    assert done.returncode == 0, done.stderr
    [(session_id, input_id, stored)] = daemon.rows(
        "SELECT target_session_id, request_id, payload_json FROM session_admissions"
    )
    payload = json.loads(stored)
    flags = payload.pop("cli_turn_v1")
    assert (flags["max_turns"], flags["cwd"]) == (7, cwd)
    assert not {"session_id", "input_id"} & (set(payload) | set(flags))
    assert not set(payload) & set(flags)
    again = {**payload, **flags, "session_id": session_id, "input_id": input_id}
    with daemon.client() as client:
        told = client.call("prompt.submit", **again)
        assert (told["status"], told["outcome"]["status"]) == ("terminal", "completed")
        for changed in ({"text": "other"}, {"finite": False}, {"max_turns": 8}, {"model": "another"}):
            with pytest.raises(RefusedError, match="admission_conflict"):
                client.call("prompt.submit", **{**again, **changed})
        for name, value in (("finite", "true"), ("text", 1), ("max_turns", "7"), ("deadline", "x"), ("toolsets", "a")):
            with pytest.raises(RefusedError, match="invalid_params") as refused:
                client.call("prompt.submit", **{**again, name: value})
            assert refused.value.data["key"] == name
    assert len(daemon.provider.requests()) == 1
