"""The dumb half of the supervisor: turns messages, exits, commits and time into events, and effects into acts."""

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from fanjoin.ipc import images, platform
from fanjoin.ipc.approval_messages import DecideApproval
from fanjoin.ipc.bootstrap import AGENT_LIMIT, AgentBootstrap, CoreBootstrap, pack_frame
from fanjoin.ipc.codec import back_side, front_side
from fanjoin.ipc.errors import BadFrameError
from fanjoin.ipc.ids import new_secret
from fanjoin.ipc.messages import (
    AgentTask,
    CancelDelegate,
    CancelTurn,
    Done,
    Drain,
    FromAgent,
    FromViewer,
    Ping,
    Pong,
    Refused,
    Submit,
    ToViewer,
    Welcome,
)
from fanjoin.ipc.paths import images_folder
from fanjoin.ipc.session_messages import (
    CreateSession,
    DelegationList,
    DeleteSession,
    ListSessions,
    PromptReceipt,
    ReadMessages,
    ResolveUnknown,
    SessionInfo,
    Subscribe,
    Unsubscribe,
)
from fanjoin.ipc.text import clean, mask_in
from fanjoin.supervisor.back import BackDoor
from fanjoin.supervisor.core.effects import Ask, Effect, Launch, Persist, Send, Snapshot, Stop, Tell
from fanjoin.supervisor.core.events import (
    AgentSaid,
    CoreEvent,
    DelegateCancelled,
    Died,
    Gone,
    Launched,
    LaunchFailed,
    Misbehaved,
    Recorded,
    SessionAsked,
    Submitted,
    Tick,
    TurnCancelled,
    ViewerLeft,
)
from fanjoin.supervisor.core.machine import Core
from fanjoin.supervisor.desk import Desk
from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.front import FrontDoor
from fanjoin.supervisor.launch.base import LOG_LIMIT_BYTES, LOG_TAIL_BYTES, Launcher, Order
from fanjoin.supervisor.loop import Loop
from fanjoin.supervisor.sockets import Sockets
from fanjoin.supervisor.store.writer import Committed, StoreWriter
from fanjoin.supervisor.tree import Undertaker

BEAT_SECONDS = 1.0
"""The longest wait of the loop."""
PROBE_SECONDS = 5.0
"""How often a daemon looks around: a removed home leaves no daemon for longer."""
LATE_RESULT_SECONDS = 0.002
"""How long a dead process's last message may take through the socket: the exit can overtake it."""


class _Process(Struct, eq=False):
    """What the driver knows of a process beyond the core."""

    secret: str
    pid: int = 0
    doomed: bool = False


class Driver:
    """Carries out what the core decides.

    Args:
        core: decides.
        loop: waits.
        sockets: both doors, bound.
        folder: where processes' output goes.
        bootstrap: names the instance and the agents' entry.
    """

    def __init__(self, *, core: Core, loop: Loop, sockets: Sockets, folder: Path, bootstrap: CoreBootstrap) -> None:
        self.core = core
        self._loop = loop
        self._sockets = sockets
        self._run_id = bootstrap.instance_id
        self._folder = folder
        self._entry = bootstrap.agent_entry
        self._worker_entry = bootstrap.worker_entry
        self._events: deque[CoreEvent] = deque()
        self._busy = False
        self._processes: dict[str, _Process] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._last_beat = 0.0
        spool = Path(sockets.endpoints.spool)
        self._back = BackDoor(sockets.back, back_side(spool), self._run_id, self._agent_said, self._misbehaved)
        self._front = FrontDoor(sockets.front, front_side(spool), self.viewer_said)
        self._undertaker = Undertaker(self._known_pids, self._gone)
        self.launcher: Launcher
        self.store: StoreWriter
        self.desk: Desk
        self._end: Callable[[bool], None] | None = None
        self._next_probe = 0.0
        self._images = images_folder(Path(bootstrap.home))
        loop.watch(sockets.back, self._back.drain)
        loop.watch(sockets.front, self._front.drain)

    # --- time -------------------------------------------------------------------------------------------------

    def run_until(self, finished: Callable[[], bool]) -> None:
        """Serve until ``finished`` says so; it is asked after every wait."""
        while not finished():
            self._loop.run_once(self._patience())
            now = time.monotonic()
            self._run_later(now)
            self._undertaker.step(now)
            if now - self._last_beat >= BEAT_SECONDS or now >= (self.core.next_deadline() or now + 1):
                self._beat(now)

    def _patience(self) -> float:
        dues = [self.core.next_deadline(), self._undertaker.due(), *(when for when, _ in self._later)]
        known = [due for due in dues if due is not None]
        wait = min(known, default=BEAT_SECONDS + time.monotonic()) - time.monotonic()
        return min(BEAT_SECONDS, max(0.001, wait))

    def _beat(self, now: float) -> None:
        if now - self._last_beat >= BEAT_SECONDS:
            self._last_beat = now
            self._front.flush()
            self.launcher.beat(now)
            self._cap_logs()
            if self._end is not None and now >= self._next_probe:
                self._next_probe = now + PROBE_SECONDS
                self._look_around(self._end)
        self.feed(Tick())

    def _look_around(self, end: Callable[[bool], None]) -> None:
        """Find out what nobody tells a daemon: which viewers left without a word, and whether its home is gone."""
        for name in self._front.probe():
            self.viewer_left(name)
        if not self._folder.is_dir():
            end(True)

    def _run_later(self, now: float) -> None:
        due = [callback for when, callback in self._later if when <= now]
        self._later = [(when, callback) for when, callback in self._later if when > now]
        for callback in due:
            callback()

    # --- events in --------------------------------------------------------------------------------------------

    def feed(self, event: CoreEvent) -> None:
        """Hand one event to the core and carry out what it decides; events that this causes come after it."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for effect in self.core.handle(self._events.popleft(), time.monotonic(), time.time()):
                    self._carry_out(effect)
        finally:
            self._busy = False

    def committed(self, committed: list[Committed]) -> None:
        """Take the store's word, from its thread."""
        self._loop.post(lambda: self._recorded(committed))

    def _recorded(self, committed: list[Committed]) -> None:
        for one in committed:
            self.feed(Recorded(ticket=one.ticket, error=one.error, sequences=one.sequences))

    def _agent_said(self, message: FromAgent) -> None:
        self.feed(AgentSaid(message=message))

    def _misbehaved(self, attempt_id: str, what: str) -> None:
        self.feed(Misbehaved(attempt_id=attempt_id, what=what))

    def viewer_said(self, viewer: str, message: FromViewer) -> None:
        """Take a message of a viewer, through whichever door it came; answers go to the door that knows the name."""
        match message:
            case Submit():
                self._submitted(viewer, message)
            case CancelTurn(admission_id=admission_id, reason=reason, now=now):
                self.feed(TurnCancelled(viewer=viewer, admission_id=admission_id, reason=reason, now=now))
            case CancelDelegate(request_id=request_id, target_id=target_id):
                self.feed(DelegateCancelled(viewer=viewer, request_id=request_id, target_id=target_id))
            case Ping(request_id=request_id):
                self.tell(viewer, Pong(request_id=request_id))
            case Drain():
                self._drain(viewer, message)
            case PromptReceipt() | ListSessions() | SessionInfo() | ReadMessages() | DelegationList():
                self.desk.read(viewer, message)
            case CreateSession() | Subscribe() | Unsubscribe() | ResolveUnknown() | DeleteSession() | DecideApproval():
                self.feed(SessionAsked(viewer=viewer, request=message))

    def _submitted(self, viewer: str, submit: Submit) -> None:
        """Put the images of a submission into files, which it then only names."""
        try:
            named = [images.keep(self._images, image) for image in submit.images]
        except (ValueError, OSError) as error:
            reason = "invalid_params" if isinstance(error, ValueError) else "storage_unavailable"
            self.tell(viewer, Refused(request_id=submit.request_id, reason=reason, message=f"images: {error}."))
            return
        self.feed(Submitted(viewer=viewer, submit=replace(submit, images=named) if named else submit))

    def _drain(self, viewer: str, message: Drain) -> None:
        if self._end is None:
            told = "This supervisor belongs to one run and ends with it."
            self.tell(viewer, Refused(request_id=message.request_id, reason="permission_denied", message=told))
            return
        self._end(message.now)
        self.tell(viewer, Done(request_id=message.request_id))

    def outlive_viewers(self, end: Callable[[bool], None]) -> None:
        """Be a daemon's: what viewers that are gone were owed is dropped, and ``end`` is called for one that asks."""
        self._end = end
        self._front.awaits_viewers = False

    def viewer_joined(self, viewer: str, tell: Callable[[ToViewer], None]) -> None:
        """Note a viewer that comes through no socket."""
        self._front.join(viewer, tell)

    def tell(self, viewer: str, message: ToViewer) -> None:
        """Send a message to a viewer."""
        self._front.tell(viewer, message)

    def viewer_left(self, viewer: str) -> None:
        """Note that a viewer is gone for good: nothing is kept for it, and its turns go on."""
        self._front.forget(viewer)
        self.feed(ViewerLeft(viewer=viewer))

    # --- the launcher's report --------------------------------------------------------------------------------

    def launched(self, attempt_id: str, pid: int) -> None:
        """Note a new process; end it at once when it is not wanted any more."""
        process = self._processes[attempt_id]
        process.pid = pid
        self.feed(Launched(attempt_id=attempt_id, pid=pid, process_start=platform.process_start(pid)))
        if process.doomed:
            platform.end_process(pid)

    def failed(self, attempt_id: str, message: str) -> None:
        """Note a process that could not be started."""
        self._forget(attempt_id)
        self.feed(LaunchFailed(attempt_id=attempt_id, message=message))

    def exited(self, attempt_id: str, end: Exit) -> None:
        """Note a death, after the dead process's last messages have had time to arrive."""
        self._back.drain()
        peer = self._back.peers.get(attempt_id)
        wait = 0.0 if peer is None or peer.result_seen else LATE_RESULT_SECONDS
        self._later.append((time.monotonic() + wait, lambda: self._believe(attempt_id, end)))

    def _believe(self, attempt_id: str, end: Exit) -> None:
        self._back.drain()
        process = self._processes[attempt_id]
        self.feed(Died(attempt_id=attempt_id, end=end, log_tail=self._log_tail(attempt_id, process.secret)))
        self.launcher.release(attempt_id)
        peer = self._back.peers.get(attempt_id)
        childless = peer is not None and peer.childless
        self._undertaker.add(attempt_id, process.pid, childless=childless, now=time.monotonic())

    def _gone(self, attempt_id: str) -> None:
        self._forget(attempt_id)
        self.feed(Gone(attempt_id=attempt_id))

    def _forget(self, attempt_id: str) -> None:
        self._back.forget(attempt_id)
        self._processes.pop(attempt_id, None)
        try:
            self._log(attempt_id).unlink(missing_ok=True)
        except OSError:
            return  # its folder goes with the run

    def _known_pids(self) -> set[int]:
        return self.launcher.pids()

    # --- effects out ------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Persist(ticket=ticket, records=records):
                self.store.submit(ticket, records)
            case Launch():
                self._launch(effect)
            case Send(attempt_id=attempt_id, message=Welcome(task=task)):
                self._back.send(attempt_id, Welcome(task=self._with_images(task)))
            case Send(attempt_id=attempt_id, message=message):
                self._back.send(attempt_id, message)
            case Stop(attempt_id=attempt_id, hard=hard):
                self._stop(attempt_id, hard=hard)
            case Tell(viewer=viewer, message=told):
                self.tell(viewer, told)
            case Ask():
                self.desk.ask(effect)
            case Snapshot():
                self.desk.snapshot(effect)

    def _with_images(self, task: AgentTask) -> AgentTask:
        """Return a task with the bytes of the images that it and its history name; one that is gone becomes a note."""
        if task.depth:
            return task
        history = [images.filled_in(self._images, message) for message in task.history]
        found = [images.with_data(self._images, one) for one in task.images]
        text = "\n".join(filter(None, [task.text, *(images.GONE for image in found if image is None)]))
        return replace(task, text=text, history=history, images=[image for image in found if image is not None])

    def _launch(self, effect: Launch) -> None:
        nonce = new_secret()
        self._processes[effect.attempt_id] = _Process(effect.endpoint.api_key)
        self._back.expect(effect.attempt_id, nonce)
        bootstrap = AgentBootstrap(
            run_id=self._run_id,
            attempt_id=effect.attempt_id,
            nonce=nonce,
            entry=self._worker_entry if effect.worker else self._entry,
            depth=effect.depth,
            endpoints=self._sockets.endpoints,
            endpoint=effect.endpoint,
            memory_limit_mb=effect.memory_limit_mb,
            backstop=self.launcher.backstop,
        )
        try:
            frame = pack_frame(bootstrap, AGENT_LIMIT)
        except BadFrameError as error:
            self.failed(effect.attempt_id, f"Its settings are too large for a pipe: {error}")
            return
        tls = effect.endpoint.base_url.startswith("https:")
        log = self._log(effect.attempt_id)
        self.launcher.launch(Order(attempt_id=effect.attempt_id, bootstrap=frame, log=log, tls=tls))

    def _stop(self, attempt_id: str, *, hard: bool) -> None:
        process = self._processes.get(attempt_id)
        if process is None:
            return
        if not process.pid:
            process.doomed = True
        elif process.pid in self.launcher.pids():
            (platform.end_process if hard else platform.polite_stop)(process.pid)

    # --- what processes print ---------------------------------------------------------------------------------

    def _log(self, attempt_id: str) -> Path:
        return self._folder / f"{attempt_id}.log"

    def _log_tail(self, attempt_id: str, secret: str) -> str:
        try:
            with self._log(attempt_id).open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
                return mask_in(clean(file.read().decode("utf-8", "replace")).strip(), secret)
        except OSError:
            return ""

    def _cap_logs(self) -> None:
        """Empty the output of a process that floods it: it is opened for appending, so it goes on from nothing."""
        for attempt_id in self._processes:
            path = self._log(attempt_id)
            try:
                if path.stat().st_size > LOG_LIMIT_BYTES:
                    os.truncate(path, 0)
            except OSError:
                continue
