"""The event loop: sources, posts from other threads, and one wait."""

import os
import threading
import time

import zmq
from supervisor_support import until

from fanjoin.supervisor.loop import Loop


def test_a_readable_source_is_called_back_until_it_is_unwatched(loop: Loop) -> None:
    """Descriptors as well as ZeroMQ sockets; what is not read calls again."""
    read, write = os.pipe()
    context = zmq.Context()
    left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    left.bind("inproc://pair")
    right.connect("inproc://pair")
    calls: list[str] = []
    loop.watch(read, lambda: calls.append("pipe"))
    loop.watch(left, lambda: calls.append(left.recv().decode()))
    loop.run_once(0)
    assert calls == []
    os.write(write, b"x")
    right.send(b"socket")
    until(loop, lambda: calls.count("pipe") > 1 and "socket" in calls)
    loop.unwatch(read)
    loop.unwatch(read)
    seen = calls.count("pipe")
    loop.run_once(0)
    assert calls.count("pipe") == seen
    loop.unwatch(left)
    for socket in (left, right):
        socket.close()
    context.term()
    os.close(read)
    os.close(write)


def test_the_end_of_a_pipe_calls_back(loop: Loop) -> None:
    """A closed writer is news, too."""
    read, write = os.pipe()
    ends: list[bytes] = []
    loop.watch(read, lambda: ends.append(os.read(read, 1)))
    os.close(write)
    until(loop, lambda: ends)
    assert ends == [b""]
    loop.unwatch(read)
    os.close(read)


def test_another_thread_wakes_a_waiting_loop(loop: Loop) -> None:
    """A post is run at once, not at the end of the wait, on the loop's own thread."""
    ran: list[int] = []
    threading.Timer(0.05, loop.post, (lambda: ran.append(threading.get_ident()),)).start()
    began = time.monotonic()
    while not ran:
        loop.run_once(10)
    assert time.monotonic() - began < 5
    assert ran == [threading.get_ident()]


def test_more_posts_than_wakes_fit_are_all_run_in_order(loop: Loop) -> None:
    """A full wake pipe loses nothing."""
    ran: list[int] = []
    for number in range(50_000):
        loop.post(lambda number=number: ran.append(number))  # type: ignore[misc]
    until(loop, lambda: len(ran) == 50_000)
    assert ran == sorted(ran)


def test_a_callback_may_unwatch_a_source_that_is_ready_as_well(loop: Loop) -> None:
    """Whoever was unwatched meanwhile is not called any more."""
    pipes = [os.pipe() for _ in range(2)]
    calls: list[int] = []

    def called(read: int) -> None:
        calls.append(read)
        for one, _ in pipes:
            loop.unwatch(one)

    for read, write in pipes:
        os.write(write, b"x")
        loop.watch(read, lambda read=read: called(read))  # type: ignore[misc]
    loop.run_once(1)
    assert len(calls) == 1
    for read, write in pipes:
        os.close(read)
        os.close(write)
