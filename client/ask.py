"""One question or wish to a supervisor: the daemon, or one that is started for it alone."""

from fanjoin.client.core import Core
from fanjoin.client.run import AGENT_ENTRY, BEAT_SECONDS, CLOSE_SECONDS, raise_if_refused
from fanjoin.client.viewer import Viewer
from fanjoin.ipc.bootstrap import CoreBootstrap
from fanjoin.ipc.errors import OwnerLostError
from fanjoin.ipc.messages import ToViewer
from fanjoin.ipc.session_messages import DeleteSession, ResolveUnknown
from fanjoin.ipc.settings import SupervisorSettings


def ask(core: Core, request: DeleteSession | ResolveUnknown, settings: SupervisorSettings) -> ToViewer:
    """Have something done and return the answer; one that was started for it has ended when this returns.

    Raises:
        UserError, RunError: it cannot run here, or refused.
        OwnerLostError: it died.
    """
    bootstrap = CoreBootstrap(
        home=str(core.home), instance_id=core.instance_id, owned=True, agent_entry=AGENT_ENTRY, settings=settings
    )
    try:
        viewer = Viewer(core.endpoints(bootstrap), core.viewer)
        try:
            viewer.send(request)
            return _answer(core, viewer)
        finally:
            viewer.close()
    finally:
        core.close(CLOSE_SECONDS)


def _answer(core: Core, viewer: Viewer) -> ToViewer:
    while True:
        alive = core.alive
        viewer.wait(BEAT_SECONDS)
        message = viewer.receive()
        if message is not None:
            raise_if_refused(message)
            return message
        if not alive:
            raise OwnerLostError(f"The supervisor died before it answered. Its log is {core.log}.")
