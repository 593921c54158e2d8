"""One finite run: its own supervisor, one turn, everything that is told of it, its end."""

from collections.abc import Callable

from fanjoin.client.core_process import CoreProcess
from fanjoin.client.viewer import Viewer
from fanjoin.client.wake import Wake
from fanjoin.ipc.bootstrap import CoreBootstrap, CoreReady
from fanjoin.ipc.errors import FanjoinError, OwnerLostError, RunError, UserError
from fanjoin.ipc.messages import Accepted, CancelTurn, Event, Ping, Refused, Submit, ToViewer, TurnDone
from fanjoin.ipc.settings import SupervisorSettings

AGENT_ENTRY = "fanjoin.agent_proc.main:run"
WORKER_ENTRY = "fanjoin.agent_proc.worker:run"
OWNER = "owner"
BEAT_SECONDS = 1.0
CLOSE_SECONDS = 20.0

Told = Accepted | Event


def begin(core: CoreProcess, settings: SupervisorSettings, submit: Submit | None = None) -> CoreReady:
    """Let a supervisor serve, and say where it listens.

    Args:
        core: its process.
        settings: its own.
        submit: its one turn, or None when turns will be submitted.

    Raises:
        UserError, RunError: it cannot run here.
        OwnerLostError: it died.
    """
    bootstrap = CoreBootstrap(
        home=str(core.home),
        instance_id=core.instance_id,
        owned=True,
        agent_entry=AGENT_ENTRY,
        worker_entry=WORKER_ENTRY,
        settings=settings,
        submit=submit,
    )
    ready = core.begin(bootstrap)
    if ready.error:
        raise (UserError if ready.exit_code == UserError.exit_code else RunError)(ready.error)
    return ready


class Run:
    """A turn on a supervisor that lives for it alone.

    Args:
        core: the supervisor's process, started early.
        submit: the turn.
        settings: the supervisor's own.
        told: called with everything that is said of the turn before its end.
        interrupted: asked after every wait; returns a cancel to send, once each.
    """

    def __init__(
        self,
        core: CoreProcess,
        submit: Submit,
        settings: SupervisorSettings,
        told: Callable[[Told], None],
        interrupted: Callable[[], CancelTurn | None],
    ) -> None:
        self._core = core
        self._submit = submit
        self._settings = settings
        self._told = told
        self._interrupted = interrupted
        self._silent_beats = 0
        self.session_id = ""
        self.admission_id = ""

    def follow(self) -> TurnDone:
        """Run the turn and return its end; the supervisor is on its way out when this returns.

        Raises:
            UserError, RunError: the supervisor cannot run here, or refused the turn.
            OwnerLostError: it died or stopped answering.
        """
        ready = begin(self._core, self._settings, self._submit)
        viewer = Viewer(ready.endpoints, OWNER)
        try:
            with Wake() as wake:
                viewer.also_watch(wake.fileno())
                self._core.call_when_gone(wake.set)
                done = self._listen(viewer, wake)
        finally:
            viewer.close()
        self._core.release()
        return done

    def _listen(self, viewer: Viewer, wake: Wake) -> TurnDone:
        while True:
            alive = self._core.alive
            while (message := viewer.receive()) is not None:
                self._silent_beats = 0
                if isinstance(message, TurnDone):
                    return message
                self._hear(message)
            if not alive:
                raise self._lost("The supervisor died")
            self._pass_on_interrupts(viewer)
            if not viewer.wait(BEAT_SECONDS):
                self._expect_life(viewer)
            wake.clear()

    def _hear(self, message: ToViewer) -> None:
        match message:
            case Refused(reason=reason, message=text):
                raise RunError(f"The turn was refused ({reason}): {text}")
            case Accepted():
                self.session_id, self.admission_id = message.session_id, message.admission_id
                self._told(message)
            case Event():
                self._told(message)

    def _pass_on_interrupts(self, viewer: Viewer) -> None:
        while (cancel := self._interrupted()) is not None:
            viewer.send(cancel)

    def _expect_life(self, viewer: Viewer) -> None:
        """Ask for a sign of life after each silent beat.

        Beats of ours are counted, not seconds: we may have been stopped too.
        """
        self._silent_beats += 1
        if self._silent_beats * BEAT_SECONDS > self._settings.silence_seconds:
            self._core.kill()
            raise self._lost(
                f"The supervisor did not answer for {self._settings.silence_seconds:g} s "
                "(supervisor.silence_seconds) and was ended"
            )
        viewer.send(Ping(request_id="beat"))

    def _lost(self, what: str) -> FanjoinError:
        resume = f"fanjoin chat --resume {self.session_id}" if self.session_id else "the same command"
        return OwnerLostError(
            f"{what}; this run has no answer. Receipts of delegates that had ended are kept "
            f"(fanjoin receipts list). Go on with: {resume}\nThe supervisor's log is {self._core.log}."
        )

    def close(self) -> None:
        """Wait until the supervisor and everything below it is gone."""
        self._core.close(CLOSE_SECONDS)
