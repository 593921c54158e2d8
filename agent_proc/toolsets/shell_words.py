"""A command line taken apart (pure), as far as that is safe: which simple commands a shell would run for it.

No shell is imitated. Whatever could hide another command (a substitution, a redirection into a file, a group, a
comment) makes a line opaque, and an opaque line is judged as a whole.
"""

import re
import sys

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
    return [part.strip(" \t\"'{}") for part in [line, *_BOUNDARY.split(line)] if part.strip()]
