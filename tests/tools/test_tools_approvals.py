"""What may be done without asking: modes, patterns, and command lines that hide a command in another."""

import contextlib
import fnmatch
import shlex
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.toolsets.approvals import MOST_ASKED, Approvals
from fanjoin.agent_proc.toolsets.shell_words import simple_commands
from fanjoin.ipc.approval_messages import ApprovalDecided
from fanjoin.ipc.settings import ApprovalSettings

posix = pytest.mark.skipif(sys.platform == "win32", reason="these are lines of a POSIX shell")


def runs(line: str, *allow: str, deny: tuple[str, ...] = (), mode: str = "ask") -> bool:
    """Whether a command line may run."""
    approvals = Approvals(ApprovalSettings(mode=mode, allow=allow, deny=deny))  # type: ignore[arg-type]
    with contextlib.suppress(ToolError):
        approvals.check_command(line)
        return True
    return False


def writes(path: str, *allow: str, deny: tuple[str, ...] = (), mode: str = "ask") -> bool:
    """Whether a file may be written."""
    try:
        Approvals(ApprovalSettings(mode=mode, allow=allow, deny=deny)).check_use("write_file", path)  # type: ignore[arg-type]
    except ToolError:
        return False
    return True


@posix
@pytest.mark.parametrize(
    ("line", "allow", "allowed"),
    [
        ("pytest -q", (), False),
        ("pytest -q", ("pytest *",), True),
        ("pytest", ("pytest *",), True),
        ("pytest-evil", ("pytest *",), False),
        ("pytest -q 2>&1", ("pytest *",), True),
        ("pytest -k 'a b' > /dev/null 2>&1", ("pytest *",), True),
        ("pytest -q && ruff check . | head -3", ("pytest *",), False),
        ("pytest -q && ruff check . | head -3", ("pytest *", "ruff *", "head *"), True),
        ("pytest 'a;b'", ("pytest *",), True),
        ("cd src; make > out", ("cd *", "make *"), False),
        ("cd src; make > out", ("cd src; make > out",), True),
        ("anything $(at all)", ("*",), True),
        ("anything $(at all)", ("run_command",), True),
        ("", ("pytest *",), False),
        *(
            (line, ("pytest *",), False)
            for line in (
                "pytest; rm x",
                "pytest & rm x",
                "pytest | rm x",
                "pytest || rm x",
                "pytest\nrm x",
                "pytest $(rm x)",
                "pytest `rm x`",
                'pytest "$(rm x)"',
                'pytest "`rm x`"',
                "pytest <(rm x)",
                "pytest > /etc/x",
                "pytest >| x",
                "pytest ${x:=$(rm x)}",
                "pytest $'\\''; rm x; '",
                "pytest # '\nrm x # '",
                'pytest "\'"; rm x; "\'"',
                "pytest \\'; rm x; \\'",
                "(pytest); rm x",
                "PATH=. pytest",
                "pytest 'unfinished",
            )
        ),
    ],
)
def test_a_command_line_needs_all_of_it_allowed(line: str, allow: tuple[str, ...], allowed: bool) -> None:
    """Every command of a line has to be covered; what could hide one is covered only as a whole, by its own text."""
    assert runs(line, *allow) == allowed


@given(st.text(alphabet="abc ;&|\n'\"\\$`()<>#{}2>&1/", max_size=40))
def test_what_is_taken_apart_hides_no_operator(line: str) -> None:
    """Whatever the line: without quotes and escapes, no simple command holds an operator of the shell."""
    for command in simple_commands(line, "sh") or []:
        if not set("'\"\\") & set(command):
            bare = command.replace("2>&1", "").replace("1>&1", "").replace("1>&2", "").replace("2>&2", "")
            bare = bare.replace(">&1", "").replace(">&2", "").replace("/dev/null", "")
            assert not set(";|\n`()<#") & set(bare)


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        (r"pytest tests\a.py -q", [r"pytest tests\a.py -q"]),
        (r'type "a & b\c.txt"', [r'type "a & b\c.txt"']),
        (r"pytest \& del x", ["pytest \\", "del x"]),
        (r'pytest "\" & del x "', None),
        (r'pytest "a\\" & del x', [r'pytest "a\\"', "del x"]),
        ("pytest 'a & del x'", None),
        ("pytest ^& del x", None),
        ("pytest %x%", None),
    ],
)
def test_a_line_for_cmd_is_read_by_its_rules(line: str, commands: list[str] | None) -> None:
    """There a backslash keeps no operator from being one, and a single quote is a letter."""
    assert simple_commands(line, "cmd") == commands


@pytest.mark.parametrize("mode", ["ask", "allow", "deny"])
def test_the_modes(mode: str) -> None:
    """Only ``allow`` lets through what no pattern names; a pattern allows in every mode, and a deny counts more."""
    free = mode == "allow"
    assert (runs("ls", mode=mode), writes("a", mode=mode)) == (free, free)
    assert (runs("ls", "ls *", mode=mode), writes("a", "write_file a", mode=mode)) == (True, True)
    assert not runs("ls", "ls *", deny=("ls *",), mode=mode)
    assert not writes("a", "write_file", deny=("write_file a",), mode=mode)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "rm x",
            "RM x",
            "rm",
            "rm\tx",
            "true; rm x",
            "true && (rm x)",
            "true\nrm x",
            "true & rm x",
            "yes | rm x",
            "{ rm x; }",
        ),
        *("echo $(rm x)", "echo `rm x`", 'echo "$(rm x)"', "cat <(rm x)", "if true; then rm x; fi", "! rm x"),
        *("'rm' x", '"rm" x', "r'm' x", "\\rm x", "r\\m x", "/bin/rm x", "../rm x", "A=1 rm x", "A='1 2' rm x"),
        *("command rm x", "exec /bin/rm x", "env -i A=1 rm x", "sudo -u me rm x", "timeout 5 rm x", "nohup rm x &"),
        *("ls | xargs -n 1 rm", "find . -exec rm {} +", "sh -c 'rm x'", 'bash -lc "cd /; rm x"', "eval 'rm x'"),
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(line: str) -> None:
    """A deny pattern also meets what is nested, quoted, named by its path, or run by another program."""
    assert not runs(line, mode="allow", deny=("rm *",))


@pytest.mark.parametrize(
    "line", ["true", "git rm x", "echo rm x", "grep rm x", "./farm x", "npm rm x", "rmdir x", "A=rm true"]
)
def test_another_command_is_not_taken_for_a_denied_one(line: str) -> None:
    """A word of that name among the arguments is no such command."""
    assert runs(line, mode="allow", deny=("rm *",))


def test_a_very_long_line_is_judged_at_once() -> None:
    """However many words a line has, its judgement does not take their square."""
    began = time.monotonic()
    assert not runs("sudo " * 50_000 + "rm x", mode="allow", deny=("sudo *",))
    assert runs("env " + "a " * 100_000, mode="allow", deny=("rm *",))
    assert time.monotonic() - began < 5


def test_patterns_for_files() -> None:
    """The tool and the path; the bare name of a tool is everything that it does; reading is free unless denied."""
    assert writes("docs/a.md", "write_file docs/*")
    assert not writes("src/a.py", "write_file docs/*")
    assert writes("src/a.py", "write_file")
    assert not writes("src/a.py", "edit_file")
    reading = Approvals(ApprovalSettings(deny=("read_file *.env",)))
    assert (reading.may_read("a.py"), reading.may_read("x/.env"), reading.may_read("X/.ENV")) == (True, False, False)


@posix
def test_a_refusal_names_the_flag_that_would_allow_it() -> None:
    """The flag in the message, taken as it stands, allows the call."""
    for line in ("pytest -q", "make > out", "it's odd $(x)"):
        with pytest.raises(ToolError) as caught:
            Approvals(ApprovalSettings()).check_command(line)
        words = shlex.split(caught.value.notice.partition("calls: ")[2])
        assert words[0] == "--allow"
        assert runs(line, words[1])


def test_a_pattern_is_a_glob_and_its_own_text() -> None:
    """Brackets in a pattern are a glob's; the very same text is allowed all the same."""
    assert runs("test [a] = b", "test [a] = b")
    assert not fnmatch.fnmatchcase("test [a] = b", "test [a] = b")


def test_a_person_is_asked_about_what_nothing_decides() -> None:
    """Yes holds once, always for its like; what a pattern or the mode decides, or nobody could read, is not asked."""
    asked: list[tuple[str, list[str]]] = []
    answers = iter([(True, False), (False, False), (True, True)])

    def ask(what: str, patterns: list[str]) -> ApprovalDecided:
        asked.append((what, patterns))
        allowed, always = next(answers)
        return ApprovalDecided(approval_id="a", allowed=allowed, always=always)

    approvals = Approvals(ApprovalSettings(allow=("cat *",), deny=("rm *",)), ask)
    approvals.check_command("cat x && make all | sort")
    with pytest.raises(ToolError, match="does not allow this: make all"):
        approvals.check_command("make all")
    approvals.check_command("make all")
    approvals.check_command("make some")
    for refused in ("rm x", "x" * (MOST_ASKED + 1)):
        with pytest.raises(ToolError):
            approvals.check_command(refused)
    with pytest.raises(ToolError, match="nobody can be asked"):
        Approvals(ApprovalSettings(mode="deny"), ask).check_use("write_file", "x")
    assert asked == [
        ("cat x && make all | sort", ["make *", "sort *"]),
        ("make all", ["make *"]),
        ("make all", ["make *"]),
    ]
