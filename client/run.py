"""One finite run: its own supervisor, one turn, everything that is told of it, its end."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from msgspec import Struct

from fanjoin.client.core import Core
from fanjoin.client.viewer import BEAT_SECONDS, Patience, Viewer
from fanjoin.client.wake import Wake
from fanjoin.ipc.bootstrap import CoreBootstrap
from fanjoin.ipc.errors import FanjoinError, OwnerLostError, RunError, UserError
from fanjoin.ipc.messages import Accepted, CancelTurn, Event, Refused, Submit, ToViewer, TurnDone
from fanjoin.ipc.session_messages import ResolveUnknown
from fanjoin.ipc.settings import SupervisorSettings

AGENT_ENTRY = "fanjoin.agent_proc.main:run"
WORKER_ENTRY = "fanjoin.agent_proc.worker:run"
CLOSE_SECONDS = 20.0
_OWN_FAULTS = ("invalid_params", "not_found")

Told = Accepted | Event


def bootstrap_for(
    core: Core,
    settings: SupervisorSettings,
    submit: Submit | None = None,
    environ: dict[str, str] | None = None,
) -> CoreBootstrap:
    """Return what a supervisor that belongs to this process needs.

    Args:
        core: its process.
        settings: its own.
        submit: its one turn, or None when turns will be submitted.
        environ: what turns need of the environment that nobody brings settings for.
    """
    return CoreBootstrap(
        home=str(core.home),
        instance_id=core.instance_id,
        owned=True,
        agent_entry=AGENT_ENTRY,
        worker_entry=WORKER_ENTRY,
        settings=settings,
        submit=submit,
        environ=environ or {},
    )


def raise_if_refused(message: ToViewer) -> None:
    """Raise what a refusal means to whoever asked.

    Raises:
        UserError: the request itself cannot be.
        RunError: it cannot be carried out, at least now.
    """
    if isinstance(message, Refused):
        kind = UserError if message.reason in _OWN_FAULTS else RunError
        raise kind(f"The request was refused ({message.reason}): {message.message}")


class Job(Struct, frozen=True, kw_only=True):
    """What a supervisor is started for: a turn, or the wish to run one again; ``settings`` are the supervisor's own.

    ``environ`` is what other turns of the same session, which nobody brings settings for, need of the environment.
    """

    request: Submit | ResolveUnknown
    settings: SupervisorSettings
    environ: dict[str, str] = {}


class Run:
    """A turn on a supervisor that lives for it alone.

    Args:
        core: the supervisor's process, started early.
        job: what it is to do.
        told: called with everything that is said of the turn before its end.
        interrupted: asked after every wait; returns a cancel to send, once each.
    """

    def __init__(
        self,
        core: Core,
        job: Job,
        told: Callable[[Told], None],
        interrupted: Callable[[], CancelTurn | None],
    ) -> None:
        self._core = core
        self._request = job.request
        self._environ = job.environ
        self._settings = job.settings
        self._patience = Patience(job.settings.silence_seconds)
        self._told = told
        self._interrupted = interrupted
        self.session_id = job.request.session_id
        self.admission_id = ""

    def follow(self, starting: AbstractContextManager[None] | None = None) -> TurnDone:
        """Run the turn and return its end; the supervisor is on its way out when this returns.

        Args:
            starting: entered while the supervisor starts, which takes as long as its database is locked.

        Raises:
            UserError, RunError: the supervisor cannot run here, or refused the turn.
            OwnerLostError: it died or stopped answering.
        """
        first = self._request if isinstance(self._request, Submit) else None
        bootstrap = bootstrap_for(self._core, self._settings, first, self._environ)
        with starting or nullcontext():
            endpoints = self._core.endpoints(bootstrap)
        viewer = Viewer(endpoints, self._core.viewer)
        try:
            with Wake() as wake:
                viewer.also_watch(wake.fileno())
                self._core.call_when_gone(wake.set)
                if self._core.shared or not isinstance(self._request, Submit):
                    viewer.send(self._request)
                done = self._listen(viewer, wake)
        finally:
            viewer.close()
        self._core.release()
        return done

    def _listen(self, viewer: Viewer, wake: Wake) -> TurnDone:
        while True:
            alive = self._core.alive
            while (message := viewer.receive()) is not None:
                self._patience.heard()
                if isinstance(message, TurnDone) and message.admission_id == self.admission_id:
                    return message
                self._hear(message)
            if not alive:
                raise self._lost("The supervisor died")
            self._pass_on_interrupts(viewer)
            if not viewer.wait(BEAT_SECONDS) and self._patience.is_over(viewer):
                raise self._silent()
            wake.clear()

    def _hear(self, message: ToViewer) -> None:
        raise_if_refused(message)
        match message:
            case Accepted():
                self.session_id, self.admission_id = message.session_id, message.admission_id
                self._told(message)
            case Event():
                self._told(message)

    def _pass_on_interrupts(self, viewer: Viewer) -> None:
        while (cancel := self._interrupted()) is not None:
            viewer.send(cancel)

    def _silent(self) -> FanjoinError:
        """End a supervisor of our own that does not answer, and return what to say."""
        self._core.kill()
        return self._lost(
            f"The supervisor did not answer for {self._settings.silence_seconds:g} s "
            f"(supervisor.silence_seconds){'' if self._core.shared else ' and was ended'}"
        )

    def _lost(self, what: str) -> FanjoinError:
        resume = f"fanjoin chat --resume {self.session_id}" if self.session_id else "the same command"
        if isinstance(self._request, Submit) and self._request.tasks:
            resume = "the same command with --resume, which runs what did not complete"
        return OwnerLostError(
            f"{what}; this run has no answer. Receipts of delegates that had ended are kept "
            f"(fanjoin receipts list). Go on with: {resume}\nThe supervisor's log is {self._core.log}."
        )

    def close(self) -> None:
        """Wait until the supervisor and everything below it is gone."""
        self._core.close(CLOSE_SECONDS)
