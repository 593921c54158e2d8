"""What turns of a session run with: its settings, the keys that were handed in for it, the daemon's configuration."""

from collections.abc import Mapping
from pathlib import Path

from fanjoin.ipc.config import Flags, NotConfiguredError, load_config, resolve
from fanjoin.ipc.config_session import frozen
from fanjoin.ipc.errors import FanjoinError
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.payload import TurnFlags
from fanjoin.ipc.settings import Endpoint, TurnSettings
from fanjoin.supervisor.gateway import rpc
from fanjoin.supervisor.resolver import Resolver

NOWHERE = TurnSettings(endpoint=Endpoint(base_url="", model=""), delegate_endpoint=Endpoint(base_url="", model=""))
"""What goes with a submission that was admitted before and will not run by being sent again."""
_KEPT_SESSIONS = 200


class Book:
    """Settings of sessions, which never change, and their keys, which are nowhere else.

    Args:
        home: holds the configuration, which is read anew each time.
        environ: what counts as the environment.
    """

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ
        self._resolver = Resolver(home, environ)
        self._settings: dict[str, JsonObject] = {}
        self._keys: dict[str, str] = {}

    def note(self, session_id: str, settings: JsonObject, api_key: str = "") -> None:
        """Remember a session, and the key that came with it."""
        self._settings[session_id] = settings
        if len(self._settings) > _KEPT_SESSIONS:
            del self._settings[next(iter(self._settings))]
        if api_key:
            self._keys[session_id] = api_key

    def known(self, session_id: str) -> JsonObject | None:
        """Return the settings of a session, if they are remembered."""
        return self._settings.get(session_id)

    def frozen(self, given: JsonObject, api_key: str) -> JsonObject:
        """Return what a new session keeps: all that it runs with, or what was given while there is no model yet.

        Raises:
            Refused: a value cannot be.
        """
        session = given | ({"api_key": api_key} if api_key else {})
        try:
            return frozen(resolve(load_config(self._home), self._environ, Flags(), session))
        except NotConfiguredError:
            return given
        except FanjoinError as error:
            raise rpc.Refused("invalid_params", str(error)) from error

    def settings(self, session_id: str, settings: JsonObject, flags: TurnFlags) -> TurnSettings:
        """Return what a turn runs with.

        Raises:
            Refused: nothing can be run with these flags.
        """
        key = self._keys.get(session_id)
        try:
            return self._resolver.settings(settings | ({"api_key": key} if key else {}), flags, keyed=False)
        except FanjoinError as error:
            raise rpc.Refused("invalid_params", str(error)) from error

    def own_settings(self, session_id: str, settings: JsonObject) -> TurnSettings | None:
        """Return what turns run with that the session begins by itself; None when its key is not known here."""
        if session_id not in self._keys:
            return None
        return self.settings(session_id, settings, TurnFlags())
