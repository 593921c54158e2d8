"""Settings for turns that no viewer brings any: made from the session's own, the turn's flags and our configuration."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fanjoin.ipc.errors import FanjoinError, UserError
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.payload import TurnFlags, read_payload
from fanjoin.ipc.settings import Endpoint, TurnSettings
from fanjoin.supervisor.questions import SessionOpened, StoredTurn, submission_of


class Resolver:
    """Makes settings for the turns of this home.

    Args:
        home: holds the configuration, which is read anew each time.
        environ: what counts as the environment: it may hold keys, and the process's own does not.
    """

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ

    def settings(self, session: JsonObject, flags: TurnFlags, *, keyed: bool) -> TurnSettings:
        """Return what a turn runs with.

        Args:
            session: the settings of the session, as they were frozen when it was made.
            flags: those of the turn.
            keyed: it was to run with a key: then it runs neither without one nor with the key for another place.

        Raises:
            UserError: there are no such settings, or no such key.
        """
        from fanjoin.ipc.config import Flags, load_config, resolve
        from fanjoin.ipc.config_session import taken_up

        config = load_config(self._home)
        resolved = resolve(config, self._environ, Flags(**flags.as_flags()), taken_up(session, config, self._environ))
        if resolved.needs_local_server:
            raise UserError("The local model runs only for a turn that is followed.")
        if keyed and not flags.api_key_env:
            own = resolve(config, self._environ, Flags(model=resolved.turn.endpoint.model)).turn.endpoint
            _require_same_place(resolved.turn.endpoint, own)
        return resolved.turn

    def prepared(self, opened: SessionOpened) -> SessionOpened:
        """Return what was read of a session, with settings for what it may run by itself."""
        return replace(
            opened,
            turn_settings=self._for_results(opened) if opened.ready else None,
            queued=[self._prepared_turn(opened, turn) for turn in opened.queued],
            unknown=[self._prepared_turn(opened, turn) for turn in opened.unknown],
        )

    def _for_results(self, opened: SessionOpened) -> TurnSettings | None:
        """Return what results are told with; without settings they wait for a viewer that brings some."""
        try:
            return self.settings(opened.settings, TurnFlags(), keyed=any(call.keyed for call in opened.ready))
        except FanjoinError:
            return None

    def _prepared_turn(self, opened: SessionOpened, turn: StoredTurn) -> StoredTurn:
        try:
            flags = read_payload(turn.payload_json).cli_turn_v1
            settings = self.settings(opened.settings, flags, keyed=turn.keyed)
            return replace(turn, submit=submission_of(turn, settings))
        except (FanjoinError, msgspec.MsgspecError) as error:
            problem = (
                f"Turn {turn.admission_id} of session {turn.session_id} cannot run after the death of the supervisor "
                f"that it was given to (a key that it was given is kept nowhere): {error}"
            )
            return replace(turn, problem=problem)


def _require_same_place(wanted: Endpoint, own: Endpoint) -> None:
    if wanted.base_url != own.base_url or not own.api_key:
        raise UserError(f"This supervisor has no key of its own for {wanted.base_url}.")
