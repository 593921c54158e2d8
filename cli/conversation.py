"""``fanjoin chat`` on a terminal: turn after turn, delegates in the background, their results when they come."""

import signal
from contextlib import ExitStack, suppress

from msgspec.structs import replace

from fanjoin.cli import streams
from fanjoin.cli.app import Start
from fanjoin.cli.output import TextOutput
from fanjoin.cli.signals import InterruptedRunError
from fanjoin.cli.submission import Opening, opening, pictures_of, submission
from fanjoin.cli.terminal import HELP, Left, Prompt, shown
from fanjoin.cli.turn import TurnOptions
from fanjoin.client.conversation import Heard, Line, Lost, Signalled
from fanjoin.client.core import Core
from fanjoin.ipc.approval_messages import ApprovalAsked, DecideApproval
from fanjoin.ipc.errors import OwnerLostError, UserError
from fanjoin.ipc.ids import REQUEST, new_id
from fanjoin.ipc.messages import (
    Accepted,
    CancelDelegate,
    CancelTurn,
    Done,
    Event,
    JsonObject,
    Refused,
    TurnDone,
)
from fanjoin.ipc.session_messages import DelegateLine, DelegationList, Delegations, Gap, Subscribe

_PATIENCE = 20.0
_GOAL_CHARS = 60
_SILENT = ("turn.started", "message.delta", "tool.started")


def converse(start: Start, text: str, options: TurnOptions) -> int:
    """Hold a conversation whose first turn is ``text`` (and the images), if there is one; return the exit code."""
    if start.core is None:
        raise UserError("A conversation needs its own process: use the fanjoin command, or python -m fanjoin.cli.")
    core = start.core
    if core.shared:
        streams.complain(f"attached to the daemon (process {core.pid})")
    elif options.daemon == "require":
        raise UserError("No daemon serves this home, and --daemon require asks for one: `fanjoin daemon start`.")
    with ExitStack() as stack:
        try:
            with start.interrupts.raising():
                pictures = pictures_of(options)
                conversation = _Conversation(core, opening(core.home, options, stack), options)
        except InterruptedRunError as error:
            streams.complain(str(error))
            return start.interrupts.exit_code()
        return conversation.run(text, pictures)


class _Conversation:
    """The conversation of one terminal. Everything is shown by the main thread, also while it waits for a line."""

    def __init__(self, core: Core, opened: Opening, options: TurnOptions) -> None:
        self._core = core
        self._opened = opened
        self._options = options
        self._output = TextOutput(quiet=options.quiet, given_up=lambda: False)
        self._prompt = Prompt(core.home / "history", self._show_arrived, lambda: self._line.skip(_is_silent))
        self._line = Line(core, opened.resolved.supervisor, opened.environ, self._prompt.wake)
        self._session_id = opened.session.session_id if opened.session else ""
        self._turn = ""
        self._submitted = self._told_session = ""
        self._at_line_start = True
        self._running = self._cancelling = self._end_shown = False
        self._said = ""
        self._answers: dict[str, Heard] = {}

    def run(self, text: str, pictures: list[JsonObject]) -> int:
        """Go on until the user leaves."""
        code = 0
        self._prompt.listen(lambda number: self._line.hear(Signalled(number)))
        try:
            if self._session_id:
                self._follow()
            if text.strip() or pictures:
                self._say(text, pictures, self._options.input_id or "")
            while True:
                self._obey(self._prompt.ask())
        except Left as left:
            code = left.exit_code
            with suppress(Left):
                self._farewell()
        finally:
            self._line.close()
        return code

    def _obey(self, text: str) -> None:
        word, _, rest = text.strip().partition(" ")
        match word:
            case "":
                return
            case "/help":
                streams.write_line(HELP)
            case "/quit" | "/exit":
                raise Left(0)
            case "/delegations":
                self._list_delegates()
            case "/cancel":
                self._cancel_delegate(rest.strip())
            case _ if word.startswith("/") and word[1:].isalpha():
                streams.complain(f"There is no command {word}. {HELP}")
            case _:
                self._say(text, [], "")

    # --- a turn ---------------------------------------------------------------------------------------------------

    def _say(self, text: str, pictures: list[JsonObject], input_id: str) -> None:
        """Submit a turn and show it to its end; Ctrl-C ends it, the second one the conversation, too."""
        submit = replace(submission(self._opened, text, pictures, input_id, finite=False), asks=True)
        if self._session_id:
            submit = replace(submit, session_id=self._session_id, create=None)
        self._turn, self._submitted = "", submit.request_id
        self._running, self._cancelling, self._end_shown, self._said = True, False, False, ""
        self._line.send(submit)
        while self._running:
            self._show(self._take())
        if self._session_id and not submit.session_id:
            self._follow()

    def _signalled(self, number: int) -> None:
        """Cancel the turn at the first Ctrl-C; leave at the second, and at once when the end is asked for."""
        if number == signal.SIGINT and self._running and not self._cancelling:
            self._cancelling = True
            self._line.send(CancelTurn(admission_id=self._turn))
            streams.complain("\ncancelling the turn; Ctrl-C again leaves")
        elif number != signal.SIGINT:
            raise Left(128 + number)
        elif self._running:
            self._line.send(CancelTurn(admission_id=self._turn, now=True))
            raise Left(130)

    def _approve(self, asked: ApprovalAsked) -> None:
        """Let the user decide about what the root wants to do."""
        self._new_line()
        decision = self._prompt.choose(f"The agent wants: {shown(asked.what)}\n[y]es, [n]o, [a]lways? ")
        if not decision:
            return  # the signal says what becomes of the turn
        if decision == "a":
            settings = self._opened.settings
            kept = replace(settings, allow=(*settings.allow, *asked.patterns))
            self._opened = replace(self._opened, settings=kept)
        self._line.send(
            DecideApproval(
                admission_id=asked.admission_id,
                approval_id=asked.approval_id,
                allowed=decision != "n",
                always=decision == "a",
            )
        )

    def _lost(self, what: str) -> OwnerLostError:
        resume = f" Go on with: fanjoin chat --resume {self._session_id}" if self._session_id else ""
        return OwnerLostError(f"{what}. What had ended is recorded.{resume}\nIts log: {self._core.log}")

    def _refused(self, refused: Refused) -> None:
        self._running = False
        streams.complain(f"The turn was refused ({refused.reason}): {shown(refused.message)}")

    def _end(self, done: TurnDone) -> None:
        if done.admission_id != self._turn:
            return
        self._running = False
        if not self._end_shown:  # it had ended before, and was only asked for again
            end = {"answer": done.answer, "status": done.status, "reason": done.reason, "message": done.message}
            self._show_end(end, mine=True)
        if done.reason == "auth" and self._opened.resolved.auth_hint:
            streams.complain(self._opened.resolved.auth_hint)

    def _follow(self) -> None:
        """Hear what happens in the session by itself, too."""
        request = Subscribe(request_id=new_id(REQUEST), session_id=self._session_id, settings=self._opened.settings)
        answer = self._ask(request, request.request_id)
        if isinstance(answer, Refused):
            raise UserError(f"The session cannot be followed ({answer.reason}): {answer.message}")

    def _take(self) -> Heard:
        while (heard := self._line.take(_PATIENCE)) is None:
            continue
        return heard

    def _ask(self, request: Subscribe | DelegationList | CancelDelegate, request_id: str) -> Heard:
        """Send a request and return its answer, showing what happens meanwhile."""
        self._line.send(request)
        while request_id not in self._answers:
            self._show(self._take())
        return self._answers.pop(request_id)

    # --- what is shown --------------------------------------------------------------------------------------------

    def _show_arrived(self) -> None:
        while (heard := self._line.take()) is not None:
            self._show(heard)

    def _show(self, heard: Heard) -> None:
        match heard:
            case Lost():
                raise self._lost(heard.what)
            case Accepted():
                if heard.session_id != self._told_session:
                    self._output.told(heard)
                self._session_id = self._told_session = heard.session_id
                self._turn = heard.admission_id
            case Event():
                self._show_event(heard)
            case Signalled():
                self._signalled(heard.number)
            case ApprovalAsked():
                self._approve(heard)
            case TurnDone():
                self._end(heard)
            case Refused() if heard.request_id == self._submitted:
                self._refused(heard)
            case Gap():
                streams.complain("(some events were left out)")
            case _:
                self._answers[heard.request_id] = heard

    def _show_event(self, event: Event) -> None:
        mine = event.admission_id == self._turn and self._running
        match event.name:
            case "message.delta" if mine:
                self._said += str(event.data["text"])
                self._write(str(event.data["text"]))
            case "message.complete":
                self._show_end(event.data, mine=mine)
            case "delegation.joined":
                self._new_line()
                streams.complain(f"{event.data['delegation_id']}: all its delegates have ended; the result is told now")
            case _ if not _is_silent(event):
                self._new_line()
                self._output.told(event)

    def _show_end(self, end: JsonObject, *, mine: bool) -> None:
        """Show how a turn ended, with its answer where that was not said whole while it ran."""
        self._end_shown |= mine
        answer = str(end["answer"])
        if not mine or not self._said.rstrip().endswith(answer.rstrip()):
            self._new_line()
            self._write(answer)
        self._new_line()
        if end["status"] != "completed":
            streams.complain(f"{end['status']} ({end['reason']}): {shown(str(end['message']))}")

    def _write(self, text: str) -> None:
        if text:
            streams.write_text(shown(text))
            self._at_line_start = text.endswith("\n")

    def _new_line(self) -> None:
        if not self._at_line_start:
            streams.write_text("\n")
            self._at_line_start = True

    # --- delegates ------------------------------------------------------------------------------------------------

    def _delegates(self) -> list[DelegateLine]:
        if not self._session_id:
            return []
        request = DelegationList(request_id=new_id(REQUEST), session_id=self._session_id)
        answer = self._ask(request, request.request_id)
        return answer.delegates if isinstance(answer, Delegations) else []

    def _list_delegates(self) -> None:
        lines = [_one_line(delegate) for delegate in self._delegates()]
        streams.write_line("\n".join(lines) or "No delegate of this session is queued or running.")

    def _cancel_delegate(self, prefix: str) -> None:
        names = {name for one in self._delegates() for name in (one.receipt_id, one.delegation_id)}
        found = sorted(name for name in names if prefix and name.startswith(prefix))
        if prefix not in found and len(found) != 1:
            streams.complain(f"{prefix!r} names {len(found)} of what runs; /delegations lists it. Nothing was done.")
            return
        target = prefix if prefix in found else found[0]
        request = CancelDelegate(request_id=new_id(REQUEST), target_id=target)
        answer = self._ask(request, request.request_id)
        streams.complain(f"{target} is being cancelled." if isinstance(answer, Done) else f"{target} has ended.")

    def _farewell(self) -> None:
        """Say what still runs, and what becomes of it."""
        running = self._delegates()
        if not self._session_id:
            return
        if self._running and not self._cancelling and self._core.shared:
            streams.complain("The daemon goes on with the turn; its answer waits in the session.")
        if running:
            streams.complain(f"{len(running)} delegates have not ended:")
            for delegate in running:
                streams.complain(f"  {_one_line(delegate)}")
            streams.complain(
                "The daemon goes on with them (fanjoin ps); their result waits in the session."
                if self._core.shared
                else "They are cancelled now, since no daemon serves this home; fanjoin receipts list shows their ends."
            )
        streams.complain(f"Go on later with: fanjoin chat --resume {self._session_id}")


def _is_silent(heard: Heard) -> bool:
    """Say whether something is not shown while a line is written; answers are shown whole, at their end."""
    return isinstance(heard, Event) and heard.name in _SILENT


def _one_line(delegate: DelegateLine) -> str:
    goal = " ".join(shown(delegate.goal).split())[:_GOAL_CHARS]
    return f"{delegate.receipt_id} of {delegate.delegation_id}, {delegate.status}: {goal}"
