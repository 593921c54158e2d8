"""Commands as real processes: output, limits, what they leave behind, and the process table as seen from outside."""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from run_support import wait_until
from tools_support import Tools

from fanjoin.agent_proc.toolsets.commands import TERM_SECONDS
from fanjoin.agent_proc.toolsets.output import HEAD_BYTES, TAIL_BYTES, Output
from fanjoin.ipc.settings import ApprovalSettings

if sys.platform == "win32":
    pytest.skip("these are commands of a POSIX shell", allow_module_level=True)


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Tools]:
    """Return a terminal; what still runs in it at the end of the test is ended."""
    terminal = Tools(tmp_path, toolset="terminal", timeout=30)
    yield terminal
    terminal.commands.end()


def pids_in(folder: Path) -> list[int]:
    """Return the living processes of which a command wrote the number into files of a folder."""
    found = []
    for path in folder.glob("pid-*"):
        pid = int(path.read_text(encoding="utf-8").strip() or 0)
        if pid and psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            found.append(pid)
    return found


def no_child_left() -> bool:
    """Whether no shell is a child of this process any more, not even as a zombie."""
    return not [child for child in psutil.Process().children() if child.name() in {"sh", "dash", "bash", "sleep"}]


def test_exit_code_and_output_are_told(tools: Tools, tmp_path: Path) -> None:
    """Both streams in their order, the exit code, the folder; nothing to read on standard input."""
    answer = tools.call("run_command", command="echo out; echo err >&2; cat; pwd; exit 3")
    head, _, output = answer.partition("\n")
    assert head.startswith("exit code 3 after 0.")
    assert output == f"out\nerr\n{tmp_path}\n"
    assert tools.call("run_command", command="kill -9 $$").startswith("ended by SIGKILL")
    assert tools.refusal("run_command", command="  ") == "invalid_arguments"
    assert no_child_left()


def test_a_flood_of_output_is_cut_in_the_middle(tools: Tools) -> None:
    """A hundred megabytes take no memory: beginning and end are shown, and how much is missing."""
    answer = tools.call("run_command", command="echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert answer.splitlines()[1] == "first"
    assert answer.endswith("last\n")
    assert f"[... {100_000_012 - HEAD_BYTES - TAIL_BYTES} bytes left out ...]" in answer
    assert len(answer) < HEAD_BYTES + TAIL_BYTES + 200


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    """Broken UTF-8 becomes U+FFFD; a character across two reads does not."""
    output = Output()
    for data in ("ü".encode()[:1], "ü".encode()[1:], b"\xff"):
        output.add(data)
    assert output.text() == "ü\ufffd"


DEAF = "trap '' TERM; echo $$ > pid-deaf; while :; do sleep 0.05; done"


TREES = {
    "obedient": "echo $$ > pid-shell; sleep 300",
    "deaf grandchild": f"({DEAF}) & echo $$ > pid-shell; wait",
    "deaf": DEAF,
    "deaf with a tree": f"sh -c \"sh -c 'echo \\$\\$ > pid-inner; sleep 300'; true\" & {DEAF}",
}


def test_the_whole_group_ends_with_its_time(tmp_path: Path) -> None:
    """At the limit everything that a command started is ended, deaf to SIGTERM or not, and told as such."""

    def told(name: str) -> tuple[str, float]:
        began = time.monotonic()
        answer = Tools(tmp_path / name, toolset="terminal").call("run_command", command=TREES[name], timeout_seconds=1)
        return answer, time.monotonic() - began

    for name in TREES:
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor() as pool:  # they share the wait
        answers = dict(zip(TREES, pool.map(told, TREES), strict=True))
    for name, (answer, seconds) in answers.items():
        assert answer.startswith("ended after 1 s, its time limit; ended by SIG"), name
        assert seconds < 1 + TERM_SECONDS + 2, name
        assert list((tmp_path / name).glob("pid-*")), name
        assert pids_in(tmp_path / name) == [], name
    wait_until(no_child_left, "end of all children", 1)


def test_what_a_command_leaves_in_the_background_ends_with_it(tools: Tools, tmp_path: Path) -> None:
    """A process left behind holds the output open: the call returns at once all the same, and the process is gone."""
    began = time.monotonic()
    answer = tools.call("run_command", command=f"({DEAF}) & echo started; sleep 0.2")
    assert time.monotonic() - began < 2
    assert answer.endswith("started\n")
    wait_until(lambda: not pids_in(tmp_path), "end of what was left", 1)


def test_a_daemon_that_keeps_the_output_open_does_not_hold_the_call(tools: Tools, tmp_path: Path) -> None:
    """Out of its group by setsid: the call returns; that process is for the supervisor's sweep."""
    began = time.monotonic()
    answer = tools.call(
        "run_command", command="setsid sh -c 'echo $$ > pid-daemon; exec sleep 300' & sleep 0.3; echo ok"
    )
    assert time.monotonic() - began < 3
    assert answer.endswith("ok\n")
    (pid,) = wait_until(lambda: pids_in(tmp_path), "daemon")
    psutil.Process(pid).kill()


def test_a_command_in_the_background_is_followed_and_ended(tools: Tools) -> None:
    """It has a name, shows its output so far, can be waited for and stopped."""
    assert tools.call("run_command", command="echo a; sleep 300", background=True) == "b1 runs in the background"
    wait_until(lambda: "a\n" in tools.call("check_command", name="b1"), "output")
    assert tools.call("check_command", name="b1", wait_seconds=0).startswith("still running")
    assert tools.call("check_command", name="b1", stop=True).startswith("ended by SIGTERM")
    tools.call("run_command", command="sleep 0.2; exit 4", background=True)
    assert tools.call("check_command", name="b2", wait_seconds=20).startswith("exit code 4")
    assert tools.refusal("check_command", name="b9") == "not_found"
    assert tools.box.news() == []


def test_the_end_of_a_background_command_is_told_once(tools: Tools) -> None:
    """With ``notify`` the model hears of it without asking; having asked, it does not hear it again."""
    tools.call("run_command", command="echo done", background=True, notify=True)
    assert wait_until(tools.box.news, "notice")[0].startswith("The background command b1 has ended.\nexit code 0")
    assert tools.box.news() == []
    tools.call("run_command", command="true", background=True, notify=True)
    tools.call("check_command", name="b2", wait_seconds=20)
    assert tools.box.news() == []


def test_an_agent_with_its_answer_waits_a_while_for_what_it_was_promised(tmp_path: Path) -> None:
    """For commands with a notice, as long as the setting says, said to the user; for others not at all."""
    tools = Tools(tmp_path, toolset="terminal", completion_wait=0.5)
    tools.call("run_command", command="sleep 300", background=True)
    began = time.monotonic()
    assert tools.box.last_news() == []
    assert time.monotonic() - began < 0.4
    tools.call("run_command", command="sleep 0.1; echo soon", background=True, notify=True)
    assert "soon" in tools.box.last_news()[0]
    tools.call("run_command", command="sleep 299", background=True, notify=True)
    assert tools.box.last_news() == []
    assert [notice.partition(":")[0] for notice in tools.notices] == [
        *["waiting up to 0.5 s for background commands"] * 2,
        "background commands that did not end in time are ended",
    ]
    tools.commands.end()
    wait_until(no_child_left, "end of all children", 1)


def test_nothing_begins_once_the_agent_is_to_end(tools: Tools, tmp_path: Path) -> None:
    """A cancel ends what runs; the call that waited for it goes no further, and no other begins."""
    waiting = threading.Thread(target=tools.call, args=("run_command",), kwargs={"command": DEAF}, daemon=True)
    waiting.start()
    wait_until(lambda: pids_in(tmp_path), "command")
    tools.commands.end()
    assert pids_in(tmp_path) == []
    late = threading.Thread(target=tools.call, args=("run_command",), kwargs={"command": "touch late"}, daemon=True)
    late.start()
    late.join(0.3)
    assert late.is_alive()
    assert not (tmp_path / "late").exists()


def test_a_command_that_is_not_allowed_does_not_run(tmp_path: Path) -> None:
    """The model is told of the flag, the user once."""
    tools = Tools(tmp_path, ApprovalSettings(allow=("echo *",)), toolset="terminal")
    assert tools.call("run_command", command="echo a").endswith("a\n")
    for _ in range(2):
        assert tools.refusal("run_command", command="echo a; touch b") == "not_allowed"
    assert not (tmp_path / "b").exists()
    assert tools.notices == [
        "a tool call was denied, since nobody is asked in this run; to allow such calls: --allow 'touch *'"
    ]


def test_commands_see_what_is_listed_and_our_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is built from the settings, never merged from the agent's own."""
    marks = {"FANJOIN_HOME": str(tmp_path), "FANJOIN_RUN": "r", "FANJOIN_ATTEMPT": "d.1", "FANJOIN_DEPTH": "1"}
    for name, value in {**marks, "FOO_SECRET": "s", "FANJOIN_OTHER": "o"}.items():
        monkeypatch.setenv(name, value)
    answer = Tools(tmp_path, toolset="terminal").call("run_command", command="env")
    seen = dict(line.split("=", 1) for line in answer.splitlines()[1:])
    of_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {name: seen[name] for name in seen.keys() - of_the_shell} == {**marks, "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize("folder", ["gone", "file"])
def test_a_command_that_cannot_start_is_told(tmp_path: Path, folder: str) -> None:
    """The working directory is gone: an error for the model, not the end of the agent."""
    (tmp_path / "file").touch()
    assert Tools(tmp_path / folder, toolset="terminal").refusal("run_command", command="true") == "command_error"


def test_descriptors_and_threads_stay_flat(tools: Tools) -> None:
    """Fifty commands leave no descriptor and no thread behind."""

    def held() -> tuple[int, int]:
        return psutil.Process().num_fds(), threading.active_count()

    tools.call("run_command", command="true")
    before: Any = held()
    for _ in range(50):
        tools.call("run_command", command="true")
    wait_until(lambda: held() <= before, "end of threads", 5)
