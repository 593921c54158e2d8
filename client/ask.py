"""One question or wish to a supervisor: the daemon, or one that is started for it alone."""

from fanjoin.client.core import Core
from fanjoin.client.run import CLOSE_SECONDS, bootstrap_for, raise_if_refused
from fanjoin.client.viewer import BEAT_SECONDS, Patience, Viewer
from fanjoin.ipc.errors import OwnerLostError
from fanjoin.ipc.messages import Pong, ToViewer
from fanjoin.ipc.session_messages import DeleteSession, ResolveUnknown
from fanjoin.ipc.settings import SupervisorSettings


def ask(core: Core, request: DeleteSession | ResolveUnknown, settings: SupervisorSettings) -> ToViewer:
    """Have something done and return the answer; one that was started for it has ended when this returns.

    Raises:
        UserError, RunError: it cannot run here, or refused.
        OwnerLostError: it died, or does not answer.
    """
    try:
        viewer = Viewer(core.endpoints(bootstrap_for(core, settings)), core.viewer)
        try:
            viewer.send(request)
            return _answer(core, viewer, settings.silence_seconds)
        finally:
            viewer.close()
    finally:
        core.close(CLOSE_SECONDS)


def _answer(core: Core, viewer: Viewer, seconds: float) -> ToViewer:
    patience = Patience(seconds)
    while True:
        alive = core.alive
        silent = not viewer.wait(BEAT_SECONDS)
        while (message := viewer.receive()) is not None:
            patience.heard()
            if not isinstance(message, Pong):
                raise_if_refused(message)
                return message
        if not alive:
            raise OwnerLostError(f"The supervisor died before it answered. Its log is {core.log}.")
        if silent and patience.is_over(viewer):
            raise OwnerLostError(
                f"The supervisor (process {core.pid}) did not answer for {seconds:g} s (supervisor.silence_seconds); "
                f"whether it does what it was asked for is open. Its log is {core.log}."
            )
