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
