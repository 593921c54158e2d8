"""A command line taken apart (pure), as far as that is safe: which simple commands a shell would run for it.

No shell is imitated, but ``cmd`` has other quotes and escapes than ``sh``. Whatever could hide another command (a
substitution, a redirection into a file, a group, a comment) makes a line opaque, and such a line is judged as a whole.
"""

import re
import sys
from collections.abc import Iterator

SHELL = "cmd" if sys.platform == "win32" else "sh"
_UNREAD = {"sh": frozenset(""), "cmd": frozenset("'^%!")}
"""Letters that mean something else to the shell than what is read here."""
_BACKSLASH = {"sh": r"\\.", "cmd": r"\\"}
"""To ``cmd`` it is a letter: it keeps no quote and no operator from being one."""
_DOLLAR = r"""\$(?!['"({\[])"""
_TOKENS = {
    shell: re.compile(
        rf"""
        (?P<separator> [;&|\n] )
        | ' [^']* '
        | " (?: [^"\\`$] | {backslash} | {_DOLLAR} )* "
        | {backslash}
        | (?<!\S) \d?> (?: &\d | [ ]*/dev/null ) (?= \s | $ | [;&|] )  # it writes no file
        | {_DOLLAR}
        | [^'"\\`$;&|\n()<>\#\r\0]
        """,
        re.VERBOSE | re.DOTALL,
    )
    for shell, backslash in _BACKSLASH.items()
}
_BOUNDARY = re.compile(r"[;&|\n()`<>]+|\$\(")
_QUOTES = str.maketrans("\\", "/", "'\"^") if sys.platform == "win32" else str.maketrans("", "", "'\"\\")
_ASSIGNMENT = re.compile(r"\w+=")
_WRAPPERS = frozenset(
    (
        *("!", "{", "if", "then", "elif", "else", "while", "until", "do", "time", "command", "builtin", "exec", "eval"),
        *("env", "sudo", "doas", "nohup", "nice", "ionice", "setsid", "stdbuf", "timeout", "xargs", "find", "busybox"),
        *("sh", "bash", "dash", "zsh", "ksh", "cmd", "cmd.exe", "powershell", "pwsh", "call", "start"),
    )
)
"""Words after which another command may stand, sooner or later."""
_WORDS_IN = 32
"""So many words into a wrapped command are looked at: more would cost the square of their number."""


def simple_commands(line: str, shell: str = SHELL) -> list[str] | None:
    """Return the simple commands that a line consists of, or None when it is opaque.

    Args:
        line: the command line.
        shell: ``sh`` or ``cmd``.
    """
    if _UNREAD[shell].intersection(line):
        return None
    tokens = _TOKENS[shell]
    commands, at = [""], 0
    while at < len(line):
        token = tokens.match(line, at)
        if token is None:
            return None
        if token["separator"]:
            commands.append("")
        else:
            commands[-1] += token[0]
        at = token.end()
    return [command.strip() for command in commands if command.strip()]


def fragments(line: str) -> list[str]:
    """Return everything in a line that may be a command, quoted or not: too many rather than too few."""
    parts = [part.strip(" \t\"'{}") for part in [line, *_BOUNDARY.split(line)]]
    return [text for part in parts if part for text in (part, *_unwrapped(part))]


def _unwrapped(part: str) -> Iterator[str]:
    """Yield what a part runs: without quotes, a path, variables set before it, and programs that run others."""
    words = part.translate(_QUOTES).split()
    wrapped = False
    for at, word in enumerate(words[:_WORDS_IN]):
        name = word.rpartition("/")[2]
        yield " ".join([name, *words[at + 1 :]])
        wrapped = wrapped or name in _WRAPPERS or bool(_ASSIGNMENT.match(word))
        if not wrapped:
            return
