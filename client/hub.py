"""One supervisor for many turns of one program: a thread that alone holds the connection, whoever calls.

It installs no signal handler and needs no main thread, so it works in notebooks, in threads and beside event loops.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from fanjoin.client.core_process import CoreProcess
from fanjoin.client.run import CLOSE_SECONDS, Told, bootstrap_for
from fanjoin.client.viewer import BEAT_SECONDS, Patience, Viewer
from fanjoin.client.wake import Wake
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.errors import OwnerLostError, RunError
from fanjoin.ipc.messages import Accepted, CancelTurn, Event, Refused, Submit, ToViewer, TurnDone
from fanjoin.ipc.settings import SupervisorSettings


class Call:
    """One turn on its way. ``future`` gets its end, or why there is none."""

    def __init__(self, submit: Submit, told: Callable[[Told], None]) -> None:
        self.submit = submit
        self.future: Future[TurnDone] = Future()
        self.future.set_running_or_notify_cancel()  # its end is the turn's, which a cancel has to reach first
        self.admission_id = ""
        self.cancelled = False
        self.error: Exception | None = None
        self._told = told

    def hear(self, message: Told) -> bool:
        """Hand on what is told; False when the caller's own code failed over it."""
        try:
            self._told(message)
        except Exception as error:  # noqa: BLE001 - it is raised again where the call is awaited
            self.error = self.error or error
            return False
        return True

    def end(self, done: TurnDone) -> None:
        """Say how it ended."""
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(done)


class Hub:
    """A supervisor and the thread that speaks with it.

    Args:
        core: its process.
        settings: its own.

    Raises:
        UserError, RunError: it cannot run here.
    """

    def __init__(self, core: CoreProcess, settings: SupervisorSettings) -> None:
        self._core = core
        self._settings = settings
        self._wake = Wake()
        self._outbox: deque[Submit | CancelTurn] = deque()
        self._calls: dict[str, Call] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._gone: Exception | None = None
        self._patience = Patience(settings.silence_seconds)
        try:
            endpoints = core.endpoints(bootstrap_for(core, settings))
        except BaseException:
            core.close(CLOSE_SECONDS)
            raise
        self._thread = threading.Thread(target=self._run, args=(endpoints,), name="fanjoin-hub", daemon=True)
        self._thread.start()

    def submit(self, submit: Submit, told: Callable[[Told], None]) -> Call:
        """Hand in a turn. ``told`` is called from the hub's thread.

        Raises:
            RunError: the hub is closed, or its supervisor is gone.
        """
        call = Call(submit, told)
        with self._lock:
            if self._closing or self._gone is not None:
                raise self._gone or RunError("This supervisor was closed; open another one.")
            self._calls[submit.request_id] = call
        self._post(submit)
        return call

    def cancel(self, call: Call) -> None:
        """End a turn; its future still gets its end."""
        call.cancelled = True
        if call.admission_id:
            self._post(CancelTurn(admission_id=call.admission_id))

    def close(self) -> None:
        """End everything that runs, then the supervisor; safe to call twice."""
        with self._lock:
            self._closing = True
        self._post(CancelTurn())
        self._thread.join(CLOSE_SECONDS)
        self._core.close(CLOSE_SECONDS)

    def _post(self, message: Submit | CancelTurn) -> None:
        self._outbox.append(message)
        self._wake.set()

    # --- everything below runs in the hub's thread ---

    def _run(self, endpoints: Endpoints) -> None:
        viewer = Viewer(endpoints, self._core.viewer)
        error: Exception = RunError("This supervisor was closed before the turn had an end.")
        try:
            with self._wake:
                viewer.also_watch(self._wake.fileno())
                self._core.call_when_gone(self._wake.set)
                self._serve(viewer)
        except Exception as problem:  # noqa: BLE001 - whoever waits has to hear of it
            error = problem
        finally:
            viewer.close()
            self._abandon(error)

    def _abandon(self, error: Exception) -> None:
        with self._lock:
            self._gone = error
            calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.future.set_exception(call.error or error)

    def _serve(self, viewer: Viewer) -> None:
        while self._calls or not self._closing:
            self._wake.clear()
            while self._outbox:
                viewer.send(self._outbox.popleft())
            alive = self._core.alive
            while (message := viewer.receive()) is not None:
                self._patience.heard()
                self._hear(message)
            if not alive:
                raise OwnerLostError(
                    "The supervisor died; what ran has no result. Receipts of tasks that had ended are kept, and "
                    f"resume=True runs the rest. The supervisor's log is {self._core.log}."
                )
            if not viewer.wait(BEAT_SECONDS) and self._patience.is_over(viewer):
                self._core.kill()

    def _hear(self, message: ToViewer) -> None:
        match message:
            case Accepted(request_id=request_id, admission_id=admission_id):
                call = self._calls.get(request_id)
                if call is not None:
                    call.admission_id = admission_id
                    self._tell(call, message)
            case Refused(request_id=request_id, reason=reason, message=text):
                call = self._calls.pop(request_id, None)
                if call is not None:
                    call.future.set_exception(RunError(f"The turn was refused ({reason}): {text}"))
            case Event(admission_id=admission_id):
                call = self._of(admission_id)
                if call is not None:
                    self._tell(call, message)
            case TurnDone(admission_id=admission_id):
                call = self._of(admission_id)
                if call is not None:
                    del self._calls[call.submit.request_id]
                    call.end(message)

    def _tell(self, call: Call, message: Told) -> None:
        if not call.hear(message) or (call.cancelled and isinstance(message, Accepted)):
            self.cancel(call)

    def _of(self, admission_id: str) -> Call | None:
        return next((call for call in self._calls.values() if call.admission_id == admission_id), None)
