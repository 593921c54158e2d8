"""One daemon a home, however it is started, stopped or killed."""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psutil
import pytest
from daemon_support import DaemonHome
from run_support import delegate_plan, wait_until

if sys.platform == "win32":
    pytest.skip("the tests send signals", allow_module_level=True)


def test_ten_starts_at_once_make_one_daemon(home: DaemonHome) -> None:
    """On an empty home one of them becomes the owner, all ten say so and exit 0, and no second one is left."""
    starts = [
        subprocess.Popen(
            home.command("daemon", "start", "--json"), env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(10)
    ]
    told = [start.communicate(timeout=60) for start in starts]
    assert [start.returncode for start in starts] == [0] * 10, told
    facts = [json.loads(out) for out, _ in told]
    assert len({one["instance_id"] for one in facts}) == 1
    assert sum(one["started"] for one in facts) == 1
    pid = home.descriptor()["pid"]
    wait_until(lambda: len(daemons(home)) == 1, "end of the starts that lost")
    assert daemons(home) == [pid]
    home.stop_daemon()


def daemons(home: DaemonHome) -> list[int]:
    """Return the processes that run a daemon's code and are no zygote or agent of one."""
    found = [one for one in home.processes() if "supervisor.daemon" in " ".join(one.cmdline())]
    pids = {one.pid for one in found}
    return [one.pid for one in found if one.ppid() not in pids]


def test_the_descriptor_is_private_and_names_what_answers(daemon: DaemonHome) -> None:
    """It has mode 0600 and exactly the members that are promised; the URL answers, on the loopback interface only."""
    path = daemon.path / "run" / "daemon.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = daemon.descriptor()
    assert set(told) == {"pid", "url", "token", "instance_id", "started_at", "version"}
    with daemon.client() as client:
        about = client.call("runtime.describe")
    assert about["instance_id"] == told["instance_id"]
    assert about["pid"] == told["pid"]
    listening = [one.laddr.ip for one in daemon.process().net_connections("inet") if one.status == "LISTEN"]
    assert listening == ["127.0.0.1"]


def test_no_secret_of_the_caller_is_in_the_daemons_environment(home: DaemonHome) -> None:
    """The key that a daemon was started with reaches its turns, and stands in no environment and no argument list."""
    home.config("model: {model: synthetic}")
    home.daemon_env = {
        **home.env,
        "OPENAI_BASE_URL": home.provider.url,
        "OPENAI_API_KEY": "sk-secret-1",
        "OTHER_SECRET": "hidden-2",
    }
    home.start_daemon()
    for process in home.processes():
        seen = " ".join([*process.environ().values(), *process.cmdline()])
        assert "sk-secret-1" not in seen
        assert "hidden-2" not in seen
    with home.client() as client:
        client.turn(client.session(), "hello")
    assert home.provider.requests()[-1]["key_sha256"] == hashlib.sha256(b"sk-secret-1").hexdigest()
    home.stop_daemon()


def test_what_a_killed_daemon_left_does_not_block_the_next(home: DaemonHome) -> None:
    """Neither its descriptor, nor its pid in the hands of another process, nor its lock file."""
    home.start_daemon()
    home.kill_daemon()
    stale = home.descriptor() | {"pid": os.getpid()}
    (home.path / "run" / "daemon.json").write_text(json.dumps(stale))
    assert home.other("daemon", "status").returncode == 3
    assert home.other("daemon", "stop").returncode == 0
    assert home.start_daemon()["instance_id"] != stale["instance_id"]
    home.stop_daemon()


def test_a_foreign_pid_in_the_descriptor_is_never_signalled(daemon: DaemonHome) -> None:
    """Stopping goes through the daemon's own socket: a pid that belongs to somebody else stays alone."""
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    real = daemon.descriptor()
    (daemon.path / "run" / "daemon.json").write_text(json.dumps(real | {"pid": stranger.pid}))
    assert daemon.other("daemon", "stop").returncode == 0
    wait_until(lambda: not psutil.pid_exists(real["pid"]), "end of the daemon")
    assert stranger.poll() is None
    stranger.communicate(timeout=10)
    daemon.start_daemon()


def test_a_daemon_whose_descriptor_was_removed_is_named(daemon: DaemonHome) -> None:
    """It serves nobody who comes, and it blocks the next: ``status`` and ``stop`` name its process."""
    path = daemon.path / "run" / "daemon.json"
    kept = path.read_bytes()
    path.unlink()
    pid = json.loads(kept)["pid"]
    status, stop = daemon.other("daemon", "status"), daemon.other("daemon", "stop")
    assert (status.returncode, stop.returncode) == (3, 1)
    assert f"process {pid}".encode() in status.stdout
    assert f"process {pid}".encode() in stop.stderr
    path.write_bytes(kept)


def test_a_start_that_is_given_up_leaves_no_daemon(home: DaemonHome) -> None:
    """Ctrl-C before it is ready: it ends in good order, there is no traceback, and the next start goes well."""
    with closing(sqlite3.connect(home.path / "state.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        start = subprocess.Popen(home.command("daemon", "start"), env=home.env, stderr=subprocess.PIPE)
        wait_until(lambda: [*home.path.glob("run/i_*")], "daemon that waits for the database")
        start.send_signal(signal.SIGINT)
        _, err = start.communicate(timeout=20)
    assert start.returncode == 130
    assert b"not started" in err
    home.check_daemon_gone()
    assert b"Traceback" not in err + (home.path / "logs" / "daemon.log").read_bytes()
    home.start_daemon()
    home.stop_daemon()


def test_a_daemon_that_stands_still_is_named(home: DaemonHome) -> None:
    """SIGSTOP: a command that wants something of it ends with a message after ``supervisor.silence_seconds``."""
    home.configure("supervisor: {silence_seconds: 1}")
    home.start_daemon()
    with home.client() as client:
        session_id = client.session()
    home.process().suspend()
    done = home.other("sessions", "delete", session_id)
    assert done.returncode == 1
    assert b"did not answer for 1 s" in done.stderr
    home.process().resume()
    home.stop_daemon()


def test_a_second_daemon_is_refused(daemon: DaemonHome) -> None:
    """``daemon run`` beside a daemon exits 1 and names it."""
    done = daemon.other("daemon", "run")
    assert done.returncode == 1
    assert f"process {daemon.descriptor()['pid']}".encode() in done.stderr


def test_status_says_who_serves(home: DaemonHome) -> None:
    """Exit code 3 without a daemon, 0 with one; no output shows the token."""
    assert home.other("daemon", "status").returncode == 3
    told = home.start_daemon()
    done = home.other("daemon", "status", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) | {"token": told["token"]} == told | {"running": True}
    assert told["token"].encode() not in done.stdout
    home.stop_daemon()


def test_another_version_is_named_and_refused(daemon: DaemonHome) -> None:
    """A command of another version than the daemon runs nothing and says how to go on."""
    real = daemon.descriptor()
    path = daemon.path / "run" / "daemon.json"
    path.write_text(json.dumps(real | {"version": "0.0.9"}))
    done = daemon.other("chat", "-Q", "-q", "hello")
    assert done.returncode == 2
    assert b"0.0.9" in done.stderr
    assert b"fanjoin daemon stop" in done.stderr
    path.write_text(json.dumps(real))


def test_the_foreground_daemon_is_the_owner_itself(home: DaemonHome) -> None:
    """The process that was started holds the home: there is no wrapper, and SIGTERM ends it with 0."""
    process = home.run_daemon(stderr=subprocess.PIPE)
    assert home.descriptor()["pid"] == process.pid
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert home.descriptor_gone()
    assert f"fanjoin daemon {process.pid} serves".encode() in err
    home.check_daemon_gone()


def test_an_end_lets_running_turns_finish_and_begins_none(home: DaemonHome) -> None:
    """While it drains a new turn is refused as ``draining``, a replay answered; the turn that ran completes; exit 0."""
    process = home.run_daemon(stderr=subprocess.PIPE)
    with home.client() as client:
        session_id = client.session()
        said = {"session_id": session_id, "input_id": "one", "text": "[[hold 2 name=drain]] a", "finite": True}
        running = client.call("prompt.submit", **said)
        client.event("turn.started")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: refused_as_draining(home), "refusal of new turns")
        assert client.call("prompt.submit", **said)["admission_id"] == running["admission_id"]
        assert home.other("chat", "-Q", "--daemon", "never", "-q", "[[hold 2 name=drain]] b").returncode == 0
        assert client.event("message.complete")["payload"]["status"] == "completed"
    process.communicate(timeout=20)
    assert process.returncode == 0
    turns = home.rows("SELECT admission_id, status FROM session_admissions ORDER BY seq")
    assert (turns[0], len(turns)) == ((running["admission_id"], "terminal"), 2)
    home.check_daemon_gone()


def refused_as_draining(home: DaemonHome) -> bool:
    """Say whether a new turn is refused because the daemon ends."""
    done = home.other("chat", "-Q", "-q", "hello")
    return done.returncode == 1 and b"draining" in done.stderr


def test_a_second_signal_cuts_the_end_short(home: DaemonHome) -> None:
    """Delegates that hang are cancelled with receipts, long before the drain time is over; still exit 0."""
    home.configure("daemon: {drain_seconds: 100}\ndelegation: {cancel_grace_seconds: 0.5}")
    process = home.run_daemon(stderr=subprocess.PIPE)
    with home.client() as client:
        query = delegate_plan("[[hang]] a", "[[hang]] b")
        client.call("prompt.submit", session_id=client.session(), text=query, finite=True)
        wait_until(lambda: len(home.provider.requests()) == 3, "requests of the root and both delegates")
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two signals of one kind at once would be one
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0
    home.check_daemon_gone()
    home.check_records()
    assert home.statuses() == [("cancelled", "cancelled")] * 2


def test_the_drain_time_is_an_end_too(home: DaemonHome) -> None:
    """What does not finish within ``daemon.drain_seconds`` is cancelled."""
    home.configure("daemon: {drain_seconds: 0.5}\ndelegation: {cancel_grace_seconds: 0.5}")
    home.start_daemon()
    with home.client() as client:
        client.call("prompt.submit", session_id=client.session(), text="[[hang]] a", finite=True)
        wait_until(home.provider.requests, "request of the root")
        assert home.other("daemon", "stop").returncode == 0
    home.check_daemon_gone()
    home.check_records()


def test_several_homes_at_once_over_tcp_and_spawned_agents(home: DaemonHome) -> None:
    """As where there is neither ``ipc://`` nor fork: each binds before it says where, and nobody else can reach it."""
    homes = [DaemonHome(home.path.parent / f"home {number}", home.provider) for number in range(4)]
    for one in homes:
        one.configure("supervisor: {transport: tcp}\ndelegation: {launcher: spawn}")
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(DaemonHome.start_daemon, homes))
    assert len({one["url"] for one in told}) == 4
    for one in homes:
        done = one.other("chat", "-Q", "--daemon", "require", "-q", delegate_plan("count a"))
        assert done.returncode == 0, done.stderr
        listening = [at.laddr.ip for at in one.process().net_connections("inet") if at.status == "LISTEN"]
        assert listening == ["127.0.0.1"] * 3
        one.stop_daemon()


def test_a_daemon_ends_when_its_home_is_gone(home: DaemonHome) -> None:
    """Removed with all that is in it, by a script that knows of no daemon: neither it nor what it runs is left."""
    home.start_daemon()
    with home.client() as client:
        client.call("prompt.submit", session_id=client.session(), text="[[hang]] never", finite=True)
        client.event("turn.started")
        shutil.rmtree(home.path)
        wait_until(lambda: not home.processes(), "end of all processes")
    assert not home.path.exists()
