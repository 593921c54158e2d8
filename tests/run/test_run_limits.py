"""What the machine and the caller impose: few descriptors, a locked database, proxies, inherited settings, nesting."""

import sqlite3
import sys
import time
from contextlib import closing

import pytest
from run_support import DEADLINE, Home, delegate_plan, plan, wait_until

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")


def after(home: Home, script: str, query: str, env: dict[str, str] | None = None) -> bytes:
    """Run ``chat -Q`` after some shell commands; returns its standard output, having checked that it succeeded."""
    command = home.command("chat", "-Q", *home.model(), "-q", query)
    done = home.run(["/bin/sh", "-c", f'{script}; exec "$@"', "sh", *command], env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@posix_only
def test_few_descriptors_mean_fewer_at_once_and_no_loss(home: Home) -> None:
    """40 descriptors for 24 delegates, one after the other where need be: all complete, none leaks."""
    out = after(home, "ulimit -n 40", delegate_plan(*["[[answer x]]"] * 24))
    assert out.startswith(b"24 of 24 delegates completed.")
    assert home.rows("SELECT COUNT(*), MAX(attempts) FROM receipts") == [(24, 1)]


@posix_only
def test_too_few_descriptors_are_a_clear_failure(home: Home) -> None:
    """24 descriptors hold no agent: exit 1, reason spawn_failed, nothing left."""
    command = home.command("chat", "-Q", *home.model(), "-q", "x")
    done = home.run(["/bin/sh", "-c", 'ulimit -n 24; exec "$@"', "sh", *command])
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"spawn_failed" in done.stderr
    assert b"Too many open files" in done.stderr


@posix_only
def test_inherited_settings_do_no_harm(home: Home) -> None:
    """Ignored SIGCHLD and SIGPIPE, an open umask, a bare environment, proxies: crashes keep their cause, runs go on."""
    assert after(home, 'trap "" CHLD PIPE; umask 000', plan({"delegate": ["[[answer a]]"]}))
    dead = "http://127.0.0.1:9"
    proxies = {"HTTP_PROXY": dead, "http_proxy": dead, "HTTPS_PROXY": dead, "ALL_PROXY": dead}
    assert after(home, ":", plan({"text": "ok"}), env=proxies) == b"ok\n"
    bare = home.command("chat", "-Q", *home.model(), "-q", plan({"text": "ok"}))
    assert home.run(["/usr/bin/env", "-i", f"FANJOIN_HOME={home.path}", *bare]).stdout == b"ok\n"


def test_a_database_that_is_locked_for_a_while_delays_and_loses_nothing(home: Home) -> None:
    """Another program holds the write lock while results arrive: they are committed afterwards, then told."""
    process = home.start(delegate_plan("[[sleep 0.2]] a", "[[sleep 0.2]] b"))
    wait_until(lambda: len(home.provider.requests()) == 3, "requests of the delegates")
    with closing(sqlite3.connect(home.path / "state.db", timeout=DEADLINE)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(1.5)  # the length of the lock is the point
        assert process.poll() is None
        connection.rollback()
    out, _ = process.communicate(timeout=20)
    home.check_nothing_left()
    assert process.returncode == 0
    assert out.startswith(b"2 of 2 delegates completed.")
    assert home.statuses() == [("completed", "")] * 2


def test_our_own_command_below_an_agent_keeps_the_depth_limit(home: Home) -> None:
    """An agent's shell cannot start a deeper run than ``max_spawn_depth`` allows; one level more may."""
    done = home.chat(plan({"text": "ok"}), env={"FANJOIN_DEPTH": "1"})
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"max_spawn_depth" in done.stderr
    home.config("delegation: {max_spawn_depth: 2}")
    assert home.chat(plan({"text": "ok"}), env={"FANJOIN_DEPTH": "1"}).returncode == 0
    assert len(home.provider.requests()) == 1


@posix_only
def test_a_current_folder_that_is_gone_is_named(home: Home) -> None:
    """Exit 2 with what to do; with -C the run goes on."""
    folder = home.path.parent / "gone"
    script = f'mkdir "{folder}"; cd "{folder}"; rmdir "{folder}"; exec "$@"'
    command = home.command("chat", "-Q", *home.model(), "-q", plan({"text": "ok"}))
    done = home.run(["/bin/sh", "-c", script, "sh", *command])
    assert (done.returncode, b"-C" in done.stderr, b"Traceback" in done.stderr) == (2, True, False)
    assert home.run(["/bin/sh", "-c", script, "sh", *command, "-C", str(home.path)]).stdout == b"ok\n"


def test_toolsets_decide_whether_the_root_may_delegate(home: Home) -> None:
    """``--toolsets`` without delegation, or empty: the tool is not offered and a call of it is refused."""
    query = delegate_plan("[[answer a]]")
    for toolsets in ("files", ""):
        assert b"unknown_tool" in home.chat(query, "--toolsets", toolsets).stdout
    offered = [set(request["tools"]) for request in home.provider.requests()]
    assert "delegate_task" not in offered[0]
    assert offered[-1] == set()
    assert home.statuses() == []
    assert home.chat(query, "--toolsets", "delegation").stdout.startswith(b"1 of 1 delegate completed.")
