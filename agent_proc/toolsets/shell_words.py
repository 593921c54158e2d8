"""A command line taken apart (pure), as far as that is safe: which simple commands a shell would run for it.

No shell is imitated. Whatever could hide another command (a substitution, a redirection into a file, a group, a
comment) makes a line opaque, and an opaque line is judged as a whole.
"""

import re
import sys
from collections.abc import Iterator

_UNREAD = frozenset("'^%!") if sys.platform == "win32" else frozenset()
"""Letters that mean something else to the system's shell than what is read here."""
_DOLLAR = r"""\$(?!['"({\[])"""
_TOKEN = re.compile(
    rf"""
    (?P<separator> [;&|\n] )
    | ' [^']* '
    | " (?: [^"\\`$] | \\. | {_DOLLAR} )* "
    | \\.
    | (?<!\S) \d?> (?: &\d | [ ]*/dev/null ) (?= \s | $ | [;&|] )  # it writes no file
    | {_DOLLAR}
    | [^'"\\`$;&|\n()<>\#\r\0]
    """,
    re.VERBOSE | re.DOTALL,
)
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


def simple_commands(line: str) -> list[str] | None:
    """Return the simple commands that a line consists of, or None when it is opaque."""
    if _UNREAD.intersection(line):
        return None
    commands, at = [""], 0
    while at < len(line):
        token = _TOKEN.match(line, at)
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
