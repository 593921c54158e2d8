"""When fan-outs are started, and from when they are measured."""

import random
import threading
import time
from concurrent.futures import Future

from fanjoin.client.load_drive import drive, fates, sizes, tasks_of
from fanjoin.client.load_scenario import Scenario
from fanjoin.client.load_stats import FanOut
from fanjoin.ipc.messages import TurnDone

DONE = TurnDone(session_id="s", admission_id="t", status="completed")


def fan_outs(count: int) -> list[FanOut]:
    """Return fan-outs of one delegate."""
    return [FanOut(number=number, due=0.0, size=1) for number in range(count)]


def test_an_open_arrival_is_measured_from_when_it_was_due() -> None:
    """A load test that is late itself does not hide the wait: each fan-out keeps the moment at which it was due."""
    todo = fan_outs(3)

    def slow_start(_fan_out: FanOut) -> "Future[TurnDone]":
        time.sleep(0.2)
        future: Future[TurnDone] = Future()
        future.set_result(DONE)
        return future

    drive(todo, [0.0, 0.01, 0.02], 1, slow_start)
    assert [round(one.due - todo[0].due, 3) for one in todo] == [0.0, 0.01, 0.02]
    assert todo[2].joined - todo[2].due > 0.5


def test_a_closed_arrival_keeps_to_its_slots() -> None:
    """No more fan-outs are on their way than there are slots, and all of them are joined."""
    todo, running, most = fan_outs(7), 0, 0
    lock = threading.Lock()

    def start(_fan_out: FanOut) -> "Future[TurnDone]":
        nonlocal running, most
        future: Future[TurnDone] = Future()
        with lock:
            running += 1
            most = max(most, running)

        def end() -> None:
            nonlocal running
            with lock:
                running -= 1
            future.set_result(DONE)

        threading.Timer(0.02, end).start()
        return future

    drive(todo, [], 2, start)
    assert most == 2
    assert all(one.joined for one in todo)


def test_a_lost_fan_out_is_told() -> None:
    """A fan-out whose turn failed has its error and no join."""
    todo = fan_outs(1)
    future: Future[TurnDone] = Future()
    future.set_exception(OSError("gone"))
    drive(todo, [], 1, lambda _: future)
    assert (todo[0].error, todo[0].joined) == ("gone", 0.0)


def test_fan_outs_add_up_to_the_delegations() -> None:
    """The last fan-out gets what is left."""
    assert sizes(10, 4) == [4, 4, 2]
    assert sizes(3, 8) == [3]


def test_all_prompts_of_a_scenario_share_their_prefix() -> None:
    """The context is the same for all, of the length that was asked for, and each goal has a mark of its own."""
    tasks = tasks_of(FanOut(number=3, due=0.0, size=2), Scenario(shared_prefix=50, steps=3))
    assert len({task.context for task in tasks}) == 1
    assert len(tasks[0].context) == 200
    assert [task.goal.split()[0] for task in tasks] == ["load-3-0.", "load-3-1."]
    assert "part-1.txt part-2.txt" in tasks[0].goal


def test_fates_follow_their_shares() -> None:
    """A share of one is everybody, a share of zero nobody, and nobody has two fates."""
    marks = [f"1-{index}" for index in range(1000)]
    found = fates(iter(marks), {"crash": 0.2, "hang": 1.0}, random.Random(3))
    assert len(found) == 1000
    assert 150 < sum(fate == "crash" for fate in found.values()) < 250
    assert fates(iter(marks), {}, random.Random(3)) == {}
