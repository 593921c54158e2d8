"""A program as a worker: the first word of the goal on its standard input says what it does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


def say(text: str) -> None:
    """Print the result."""
    sys.stdout.write(text)
    sys.stdout.flush()


def mark(name: str) -> None:
    """Note, for a test, that something was reached; each time adds a line."""
    with (Path(os.environ["FANJOIN_HOME"]) / f"mark-{name}").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


def hang(goal: str) -> None:
    """Say something, and never come to an end."""
    say(f"so far of {goal}")
    mark("hang")
    time.sleep(300)


def ignore_sigterm(goal: str) -> None:
    """Be asked to end, and stay."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(goal)


def complete_when_asked_to_end(goal: str) -> None:
    """Take SIGTERM as a reason to print something and to exit as if all were well."""
    signal.signal(signal.SIGTERM, lambda *_: (say(f"interrupted {goal}"), os._exit(0)))
    hang(goal)


def leave_a_detached_process(goal: str) -> None:
    """Complete, while a process in a session of its own holds the standard output."""
    subprocess.Popen(SLEEP, start_new_session=True)
    say(f"left something at {goal}")


def print_50_mb(_: str) -> None:
    """Print far more than anybody keeps."""
    block = b"x" * (1 << 20)
    say("begin ")
    for _number in range(50):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()
    say(" end")


def print_invalid_utf8(_: str) -> None:
    """Print bytes that are no text."""
    sys.stdout.buffer.write(b"caf\xe9 \xff\xfe done")


def close_stdout_and_live_on(goal: str) -> None:
    """Say the result, close the pipe, and go on for a while."""
    say(f"early {goal}")
    os.close(1)
    time.sleep(0.3)
    os._exit(0)


def fail(_: str) -> None:
    """Say why on standard error, and exit with a code."""
    sys.stderr.write("the reason of it all\n")
    sys.exit(3)


def show_surroundings(_: str) -> None:
    """Print the arguments and the environment."""
    names = sorted(name for name in os.environ if not name.startswith("LC_"))
    say("\n".join([repr(sys.argv[1:]), os.getcwd(), *(f"{name}={os.environ[name]}" for name in names)]))


def kill_own_agent(goal: str) -> None:
    """SIGKILL the process that supervises this one, the first time only."""
    if not (Path(os.environ["FANJOIN_HOME"]) / "mark-kill-agent").exists():
        mark("kill-agent")
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(300)
    say(f"done {goal}")


def wait_for_word(goal: str) -> None:
    """Complete at once when the home has a file named ``go``; else wait for it."""
    while not (Path(os.environ["FANJOIN_HOME"]) / "go").exists():
        mark("waits")
        time.sleep(0.02)
    say(f"done {goal}")


DEEDS: dict[str, Callable[[str], None]] = {
    "exit3": fail,
    "segfault": lambda _: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": hang,
    "stubborn": ignore_sigterm,
    "polite": complete_when_asked_to_end,
    "detached": leave_a_detached_process,
    "flood": print_50_mb,
    "bytes": print_invalid_utf8,
    "close": close_stdout_and_live_on,
    "nothing": lambda _: None,
    "show": show_surroundings,
    "kill-agent": kill_own_agent,
    "wait": wait_for_word,
}


def main() -> None:
    """Do what the goal says; any other goal is done at once."""
    goal = sys.stdin.read()
    word = goal.split(maxsplit=1)[0]
    mark(f"ran-{goal.replace(' ', '-')[:40]}")
    DEEDS.get(word, lambda text: say(f"done {text}"))(goal)


if __name__ == "__main__":
    main()
