"""``delegate`` and ``adelegate`` from a program: threads, event loops, exceptions; one supervisor for many calls."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delegate_support import WORKER, times_run
from run_support import Home, wait_until

from fanjoin.client import Delegator, Result, Results, Task, adelegate, delegate
from fanjoin.ipc.errors import OwnerLostError, UserError
from fanjoin.ipc.messages import Usage


@pytest.fixture(autouse=True)
def surroundings(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let calls find the home by its variable, and check that they leave nothing."""
    home.config("delegation: {cancel_grace_seconds: 0.5}")
    monkeypatch.setenv("FANJOIN_HOME", str(home.path))
    yield
    home.check_no_process()
    if (home.path / "state.db").exists():
        home.check_records()


def test_a_call_returns_typed_results_in_the_order_of_the_tasks(home: Home) -> None:
    """Goals, structs and mappings; each result has types, the whole entry stays at hand."""
    handlers = signal.getsignal(signal.SIGINT)
    results = delegate(["plain", Task(goal="exit3", id="x"), {"goal": "third", "timeout": 20}], worker=WORKER)
    assert isinstance(results, Results)
    assert [(one.id, one.status) for one in results] == [("1", "completed"), ("x", "crashed"), ("3", "completed")]
    assert (results[0].summary, results[0].ok, results[0].usage_total) == ("done plain", True, Usage())
    assert results[1].error is not None
    assert (results[1].error.reason, results[1].exit and results[1].exit.code) == ("exit_code", 3)
    assert [one.id for one in results[1:]] == ["x", "3"]
    assert results[2].entry["receipt_id"] == results[2].receipt_id
    assert (len(results), results.ok, results.error) == (3, False, None)
    assert signal.getsignal(signal.SIGINT) is handlers
    assert home.rows("SELECT session_id FROM sessions") == [(results.session_id,)]


def test_our_own_agent_answers(home: Home) -> None:
    """Without a worker the delegates are agents with a model."""
    results = delegate(["[[answer yes]]"], base_url=home.provider.url, model="synthetic")
    assert [one.summary for one in results] == ["yes"]
    assert results.ok


def test_one_supervisor_serves_many_calls_from_threads(home: Home) -> None:
    """Calls at the same time each get their own results, through one owner."""
    found: dict[int, list[str | None]] = {}
    with Delegator(worker=WORKER) as delegator:

        def call(number: int) -> None:
            found[number] = [one.summary for one in delegator.delegate([f"{number} a", f"{number} b"])]

        threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert found == {number: [f"done {number} a", f"done {number} b"] for number in range(4)}
    assert home.rows("SELECT COUNT(*) FROM owners") == [(1,)]
    assert home.rows("SELECT COUNT(*) FROM session_admissions WHERE status = 'terminal'") == [(4,)]


def test_an_event_loop_goes_on_meanwhile() -> None:
    """``adelegate`` blocks nothing, and several of them run side by side."""

    async def main() -> list[Results]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        async with Delegator(worker=WORKER) as delegator:
            both = await asyncio.gather(delegator.adelegate(["close one"]), delegator.adelegate(["close two"]))
        ticking.cancel()
        assert ticks > 10
        return list(both)

    assert [one.summary for results in asyncio.run(main()) for one in results] == ["early close one", "early close two"]


def test_a_blocking_call_works_inside_a_running_loop() -> None:
    """As in a notebook's cell."""

    async def cell() -> Results:
        return delegate("plain", worker=WORKER)

    assert asyncio.run(cell()).ok


def test_a_cancelled_task_ends_what_runs(home: Home) -> None:
    """Cancelling the awaiting task cancels the delegates; they have their receipts."""

    async def main() -> None:
        call = asyncio.create_task(adelegate(["hang"], worker=WORKER))
        await asyncio.to_thread(wait_until, lambda: times_run(home, "hang"), "a task that hangs")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(main())
    assert home.statuses() == [("cancelled", "cancelled")]


def test_an_exception_in_the_block_ends_what_runs(home: Home) -> None:
    """The caller's own exception comes out, and nothing goes on behind it."""
    threads: list[threading.Thread] = []

    def block() -> None:
        with Delegator(worker=WORKER) as delegator:
            threads.append(threading.Thread(target=lambda: delegator.delegate(["hang"]), daemon=True))
            threads[0].start()
            wait_until(lambda: times_run(home, "hang"), "a task that hangs")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    threads[0].join(10)
    assert not threads[0].is_alive()
    assert home.statuses() == [("cancelled", "cancelled")]


def test_results_are_told_as_they_come_and_an_exception_there_ends_all(home: Home) -> None:
    """``on_result`` sees each; what it raises cancels the rest and comes out of the call."""
    seen: list[Result] = []
    assert delegate(["a", "b"], worker=WORKER, on_result=seen.append).ok
    assert {one.summary for one in seen} == {"done a", "done b"}

    def fail(result: Result) -> None:
        raise LookupError(result.id)

    with pytest.raises(LookupError, match="1"):
        delegate(["a", "hang"], worker=WORKER, on_result=fail)
    assert home.statuses()[2:] == [("completed", ""), ("cancelled", "cancelled")]


def test_limits_and_resume(home: Home) -> None:
    """A deadline is no exception: the results say it; resume runs what did not complete."""
    results = delegate(["plain", "hang"], worker=WORKER, deadline=1.5)
    assert results.error is not None
    assert (results.error.reason, [one.status for one in results]) == ("budget", ["completed", "cancelled"])
    again = delegate(["plain", "exit3"], worker=WORKER, resume=True, max_failures=1)
    assert [(one.status, one.resumed) for one in again] == [("completed", True), ("crashed", False)]
    assert delegate(["plain"], worker=WORKER, resume=True).ok
    assert times_run(home, "plain") == 1


def test_a_program_of_an_agent_may_not_fan_out_by_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The depth limit holds here, too."""
    monkeypatch.setenv("FANJOIN_DEPTH", "1")
    with pytest.raises(UserError, match="may not start a run of its own"):
        delegate(["x"], worker=WORKER)


@pytest.mark.parametrize(
    "option",
    [
        {"deadline": "soon"},
        {"deadline": float("nan")},
        {"max_failures": -1},
        {"concurrency": 0},
        {"timeout": "1"},
        {"result_key": 5},
        {"worker": (sys.executable, 5)},
        {"worker_env": "HOME"},
        {"ignore_rules": "yes"},
    ],
)
def test_a_value_of_a_wrong_type_is_an_exception(option: Any) -> None:
    """Nothing in Python checked it, and a supervisor would not understand it: the call must not wait for that."""
    with pytest.raises(UserError):
        delegate(["x"], **({"worker": WORKER} | option))


def test_members_of_a_task_are_checked_like_those_of_a_file() -> None:
    """A struct that was made with wrong types is refused as well."""
    for task in (Task(goal=5), Task(goal="x", context=5), Task(goal="x", env={"A": 1})):  # type: ignore[arg-type, dict-item]
        with pytest.raises(UserError, match="task 1: Expected `str`, got `int`"):
            delegate([task], worker=WORKER)


def test_mistakes_are_exceptions_before_anything_runs(home: Home) -> None:
    """A wrong task, a wrong option, a call outside the block."""
    with pytest.raises(UserError, match="task 1: unknown key 'gaol'"):
        delegate([{"gaol": "x"}], worker=WORKER)
    with pytest.raises(UserError, match="There is no task"):
        delegate([], worker=WORKER)
    with pytest.raises(TypeError, match="'wroker' is no option"):
        delegate(["x"], wroker=WORKER)  # type: ignore[call-arg]
    with pytest.raises(RuntimeError, match="inside its block"):
        Delegator(worker=WORKER).delegate(["x"])
    assert home.statuses() == []


def test_a_lost_supervisor_is_an_exception(home: Home) -> None:
    """SIGKILL of the supervisor: everybody who waits hears of it, also later callers."""
    with Delegator(worker=WORKER) as delegator:
        process = next(one for one in home.processes() if "supervisor.main" in " ".join(one.cmdline()))
        timer = threading.Timer(0.5, process.kill)
        timer.start()
        with pytest.raises(OwnerLostError, match="The supervisor died"):
            delegator.delegate(["hang"])
        with pytest.raises(OwnerLostError):
            delegator.delegate(["plain"])
        timer.join()
    assert delegate(["plain"], worker=WORKER).ok


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process on Windows")
def test_ctrl_c_in_a_script_ends_what_runs(home: Home, tmp_path: Path) -> None:
    """KeyboardInterrupt comes out of the call after the delegates were cancelled."""
    script = tmp_path / "script.py"
    text = f"from fanjoin.client import delegate\ndelegate(['hang'], worker={WORKER!r})\n"
    script.write_text(text, encoding="utf-8")
    process = subprocess.Popen([sys.executable, "-P", str(script)], env=home.env, stderr=subprocess.PIPE)
    wait_until(lambda: times_run(home, "hang"), "a task that hangs")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert err.decode().splitlines()[-1] == "KeyboardInterrupt"
    assert home.statuses() == [("cancelled", "cancelled")]


def test_importing_the_library_imports_nothing_heavy() -> None:
    """A command that starts a supervisor first does not pay for the library."""
    code = "import sys, fanjoin.client; print([name for name in ('zmq', 'asyncio', 'msgspec') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
