"""The object that machine formats end with, however a run ends."""

import json
import signal
import sys
from typing import Any

import pytest
from run_support import GONE_SECONDS, Home, delegate_plan, plan, wait_until

KEYS = [
    *("ok", "exit_code", "retryable", "answer", "session_id", "admission_id", "status", "error", "usage", "results"),
]
HANGING = delegate_plan("[[answer done]]", "[[hang]] b")


def last_object(out: bytes) -> dict[str, Any]:
    """Return the last line of a stream, having checked that every line is an object and only the last a result."""
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["type"] == "result" for event in events] == [False] * (len(events) - 1) + [True]
    assert out.endswith(b"\n")
    result: dict[str, Any] = events[-1]
    assert sorted(result) == sorted(["type", *KEYS])
    return result


def test_the_object_has_the_same_members_however_a_run_ends(home: Home) -> None:
    """Completed, failed, refused by us: the same keys in the same order."""
    ends = [
        home.chat(plan({"text": "ok"}), "--format", "json"),
        home.chat("[[status 400]] x", "--format", "json"),
        home.chat("", "--format", "json"),
        home.chat("x", "--format=json", "--no-such-flag"),
        home.run(home.command("run", "--format", "json", "-C", "/no/such/folder", *home.model(), "x")),
    ]
    objects = [json.loads(done.stdout) for done in ends]
    assert all(list(one) == KEYS for one in objects)
    assert [one["exit_code"] for one in objects] == [done.returncode for done in ends] == [0, 1, 2, 2, 2]
    assert [(one["error"] or {}).get("reason") for one in objects] == [None, "bad_request", "usage", "usage", "usage"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals between processes on Windows")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_still_ends_the_stream_with_its_result(home: Home, number: signal.Signals, code: int) -> None:
    """The result names the code and both delegates: the one that had completed, and the one that was cancelled."""
    home.config("delegation: {cancel_grace_seconds: 1}")
    process = home.start(HANGING, "--format", "stream-json")
    wait_until(lambda: len(home.provider.requests()) == 3, "requests of the delegates")
    wait_until(home.statuses, "first receipt")
    process.send_signal(number)
    out, _ = process.communicate(timeout=GONE_SECONDS)
    result = last_object(out)
    assert (process.returncode, result["exit_code"], result["ok"]) == (code, code, False)
    assert [entry["status"] for entry in result["results"]] == ["completed", "cancelled"]
    assert result["error"]["reason"] == "cancelled"
    home.check_nothing_left()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals between processes on Windows")
def test_a_killed_supervisor_still_ends_the_stream_with_a_result(home: Home) -> None:
    """Status lost, reason owner_lost, worth another try, and the session to resume."""
    process = home.start(HANGING, "--format", "stream-json")
    wait_until(lambda: len(home.provider.requests()) == 3, "requests of the delegates")
    next(one for one in home.processes() if "supervisor.main" in " ".join(one.cmdline())).kill()
    out, _ = process.communicate(timeout=GONE_SECONDS)
    result = last_object(out)
    assert (process.returncode, result["status"], result["error"]["reason"]) == (1, "lost", "owner_lost")
    assert result["retryable"] is True
    ids = home.rows("SELECT target_session_id, admission_id FROM session_admissions")
    assert ids == [(result["session_id"], result["admission_id"])]
    assert result["session_id"] in result["error"]["message"]
    home.check_no_process()
