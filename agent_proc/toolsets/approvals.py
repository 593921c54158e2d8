"""What a tool may do without asking (pure): the mode, and patterns that allow and deny.

A pattern is a glob over what is asked for. For a command that is the command line: ``pytest *`` allows ``pytest`` with
any arguments, and a line of several commands needs each of them allowed. For files and pages it is the tool and the
path or URL: ``write_file docs/*``. The bare name of a tool means everything that it does. A pattern that denies counts
more than any that allows; it cannot know what a program does that is allowed to run. In a conversation the user decides
about what no pattern does.
"""

import fnmatch
import shlex
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.toolsets.shell_words import fragments, simple_commands
from fanjoin.ipc.approval_messages import ApprovalDecided
from fanjoin.ipc.settings import ApprovalSettings

READ = "read_file"
RUN = "run_command"


MOST_ASKED = 10_000
"""Characters of what a person is asked about; nobody reads more before saying yes."""

Ask = Callable[[str, list[str]], ApprovalDecided]
"""Asks the user about something, with the patterns that would allow its like."""


class Approvals:
    """Decides by the user's settings.

    Args:
        settings: the mode and the patterns.
        ask: asks the user where they do not decide; without it, what is not allowed is denied.
    """

    def __init__(self, settings: ApprovalSettings, ask: Ask | None = None) -> None:
        self._settings = settings
        self._ask = ask if settings.mode == "ask" else None

    def may_read(self, path: str) -> bool:
        """Whether a file may be read: unless a pattern denies it."""
        return not self._denies([READ, f"{READ} {path}"])

    def check_reading(self, path: str) -> None:
        """Let a file be read.

        Raises:
            ToolError: ``not_allowed``: a pattern denies it.
        """
        if not self.may_read(path):
            raise _denied(f"{READ} {path}")

    def check_use(self, tool: str, thing: str, pattern: str = "") -> None:
        """Let a tool do what it does to a file or a URL when that is allowed.

        Args:
            tool: its name.
            thing: the path or the URL.
            pattern: what would allow it and the like; empty for the bare name of the tool.

        Raises:
            ToolError: ``not_allowed``: it is not.
        """
        what = f"{tool} {thing}"
        self._refuse_denied([tool, what], what)
        if self._settings.mode != "allow" and not _any(self._settings.allow, [tool, what]):
            self._decide(what, what, [pattern or tool])

    def check_command(self, line: str) -> None:
        """Let a command line run when all of it is allowed.

        Raises:
            ToolError: ``not_allowed``: some of it is not.
        """
        self._refuse_denied([RUN, *fragments(line)], line)
        allow = self._settings.allow
        if self._settings.mode == "allow" or _any(allow, [RUN]) or "*" in allow or line.strip() in allow:
            return
        commands = simple_commands(line)
        if not commands:
            self._decide(line, line, [line.strip()])
            return
        refused = [command for command in commands if not _any(allow, [command])]
        if refused:
            self._decide(line, refused[0], [f"{command.split()[0]} *" for command in refused])

    def _decide(self, whole: str, what: str, patterns: list[str]) -> None:
        """Let the user decide about the ``whole`` of something, of which ``what`` is not allowed.

        Raises:
            ToolError: ``not_allowed``: the user says no, or nobody can be asked.
        """
        if self._ask is None or len(whole) > MOST_ASKED:
            raise _not_allowed(what, patterns[0])
        decided = self._ask(whole, patterns)
        if not decided.allowed:
            raise ToolError(
                "not_allowed", f"The user does not allow this: {whole}. Go on without it, or ask what to do."
            )
        if decided.always:
            self._settings = replace(self._settings, allow=(*self._settings.allow, *patterns))

    def _refuse_denied(self, subjects: list[str], what: str) -> None:
        if self._denies(subjects):
            raise _denied(what)

    def _denies(self, subjects: Iterable[str]) -> bool:
        """Whether a pattern denies any of this, in upper or lower case: to many systems they are the same file."""
        return _any(map(str.casefold, self._settings.deny), list(map(str.casefold, subjects)))


def _any(patterns: Iterable[str], subjects: Iterable[str]) -> bool:
    return any(_matches(pattern, subject) for pattern in patterns for subject in subjects)


def _matches(pattern: str, subject: str) -> bool:
    """Say whether a pattern covers a subject; one that ends in `` *`` covers a command without arguments, too."""
    return subject in (pattern, pattern.removesuffix(" *")) or fnmatch.fnmatchcase(subject, pattern)


def _denied(what: str) -> ToolError:
    return ToolError("not_allowed", f"A rule of the user denies this: {what}. Go on without it.")


def _not_allowed(what: str, pattern: str) -> ToolError:
    flag = f"--allow {shlex.quote(pattern)}"
    text = f"This is not allowed in this run, and nobody can be asked: {what}. The user may allow it with {flag}."
    notice = f"a tool call was denied, since nobody is asked in this run; to allow such calls: {flag}"
    return ToolError("not_allowed", f"{text} Go on without it, and say so in your answer.", notice)
