"""The environment that our processes get: built from a list of names, never merged from the caller's.

Two variables of ours mark a process: ``FANJOIN_RUN`` names the run (in the supervisor and everything below it),
``FANJOIN_ATTEMPT`` the agent process whose tools started it, ``FANJOIN_DEPTH`` how deep that agent is.
"""

import fnmatch
from collections.abc import Iterable, Mapping

RUN_TAG = "FANJOIN_RUN"
ATTEMPT_TAG = "FANJOIN_ATTEMPT"
DEPTH = "FANJOIN_DEPTH"

_ALLOWED = (
    *("PATH", "HOME", "USER", "SHELL", "LANG", "TZ", "TERM", "TMPDIR"),
    *("SYSTEMROOT", "WINDIR", "COMSPEC", "TEMP", "TMP", "LOCALAPPDATA", "APPDATA", "USERPROFILE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
_ALLOWED_GLOBS = ("LC_*", "XDG_*")


_SECRETIVE = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
"""Parts of names that say that the value is a secret: no glob lets such a variable through, only its whole name."""
_OURS = "FANJOIN_"
MARKS = ("FANJOIN_HOME", RUN_TAG, ATTEMPT_TAG, DEPTH)
"""The variables of ours that every process below an agent has."""


def allowed_environment(environ: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of the caller's environment that our processes may see.

    Args:
        environ: the caller's environment.
        extra: names or globs that the user allows in addition (``terminal.env_passthrough``).
    """
    globs = (*_ALLOWED_GLOBS, *extra)
    return {
        name: value
        for name, value in environ.items()
        if name.upper() in _ALLOWED or any(fnmatch.fnmatchcase(name, glob) for glob in globs)
    }


def tool_environment(
    environ: Mapping[str, str], passthrough: Iterable[str], key_names: Iterable[str], keys: Iterable[str]
) -> dict[str, str]:
    """Return what commands of tools see of the caller's environment.

    Args:
        environ: the caller's environment.
        passthrough: names or globs that the user allows in addition (``terminal.env_passthrough``).
        key_names: variables that hold providers' keys; these never pass.
        keys: providers' keys; a variable that holds one never passes, whatever its name.
    """
    names, never, secrets = tuple(passthrough), frozenset(map(str.upper, key_names)), frozenset(filter(None, keys))

    def passes(name: str, value: str) -> bool:
        if name.upper() in never or value.strip() in secrets or name.startswith(_OURS):
            return False
        return name in names or not any(part in name.upper() for part in _SECRETIVE)

    return {name: value for name, value in allowed_environment(environ, names).items() if passes(name, value)}
