"""The line that a person types: history, more than one line, and what arrives shown above it meanwhile."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from fanjoin.cli import streams

HELP = """\
/delegations lists what runs in the background, /cancel ID ends a delegate or a call, /quit leaves.
Alt-Enter, or a backslash at the end, begins a new line. Ctrl-C ends the turn; twice, or Ctrl-D, leaves."""
_CHOICES = ("y", "yes", "n", "no", "a", "always")
HUNG_UP = 129
"""The exit code of a process whose terminal is gone: that of SIGHUP, which comes with it."""
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


class Left(Exception):  # noqa: N818 - not an error: the user has had enough
    """The conversation is over."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


def shown(text: str) -> str:
    """Return a text without anything that a terminal would obey."""
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")


class Prompt:
    """Asks for lines.

    Args:
        history: the file that keeps them.
        show: shows what has arrived; called in the main thread only.
        wanted: says whether anything of that is to be seen.
    """

    def __init__(self, history: Path, show: Callable[[], None], wanted: Callable[[], bool]) -> None:
        self._show = show
        self._wanted = wanted
        self._showing: asyncio.Future[None] | None = None
        self._session: PromptSession[str] = PromptSession(
            "> ", history=_history(history), key_bindings=_keys(), multiline=True, prompt_continuation="  "
        )
        self._question: PromptSession[str] | None = None
        self._failure: BaseException | None = None
        self._ending = 0
        self._signalled: Callable[[int], None] = lambda _: None

    def listen(self, signalled: Callable[[int], None]) -> None:
        """Take the signals over; one that was inherited as ignored stays ignored.

        Args:
            signalled: called from the handler with the number of one that arrives while no line is written.
        """
        self._signalled = signalled
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def ask(self) -> str:
        """Return what the user wrote.

        Raises:
            Left: the user wants no more, or a signal asks for the end.
        """
        for last in (False, True):
            try:
                text = self._session.prompt(pre_run=self._look, handle_sigint=False)
            except KeyboardInterrupt:
                if last:
                    raise Left(130) from None
                streams.complain("Ctrl-C again leaves")
            except EOFError:
                self._raise_failure()
                break
            except OSError:  # the terminal itself is gone
                raise Left(HUNG_UP) from None
            else:
                if not self._ending:
                    return text
                break
        raise Left(128 + self._ending if self._ending else 0)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def choose(self, question: str) -> str:
        """Return y, n (also for Ctrl-D) or a (always); nothing when a signal came instead of an answer."""
        self._question = PromptSession(history=InMemoryHistory())
        try:
            while True:
                word = self._question.prompt(question, handle_sigint=False).strip().lower()
                if word in _CHOICES:
                    return word[0]
        except KeyboardInterrupt:
            self._signalled(signal.SIGINT)
        except EOFError:
            if not self._ending:
                return "n"
            self._signalled(self._ending)
        except OSError:
            raise Left(HUNG_UP) from None
        finally:
            self._question = None
        return ""

    def wake(self) -> None:
        """Have what arrived shown above the line, if one is being written; from any thread."""
        app = self._session.app
        loop = app.loop
        if app.is_running and loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self._wanted():
            self._showing = asyncio.ensure_future(run_in_terminal(self._show_safely))

    def _show_safely(self) -> None:
        """Show it; what goes wrong ends the wait for a line, and is raised there."""
        try:
            self._show()
        except Exception as error:  # noqa: BLE001 - raised again by ask()
            self._failure = error
            self._leave_line(EOFError)

    def _leave_line(self, how: type[BaseException]) -> None:
        with contextlib.suppress(Exception):  # it has ended by itself meanwhile
            self._written.app.exit(exception=how)

    @property
    def _written(self) -> PromptSession[str]:
        """Return what is being answered, if anything is."""
        return self._question or self._session

    def _note(self, number: int, _: FrameType | None) -> None:
        """Note a signal; the second one that asks for the end is obeyed at once, and the lifelines do the rest."""
        if number != signal.SIGINT:
            if self._ending:
                os._exit(128 + number)
            self._ending = number
        if self._written.app.is_running:
            self._leave_line(KeyboardInterrupt if number == signal.SIGINT else EOFError)
        else:
            self._signalled(number)


def _history(path: Path) -> History:
    """Return the history of a file that only we can read; without one, of this conversation alone."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _keys() -> KeyBindings:
    """Enter hands the text in; Alt-Enter, or Enter after a backslash, begins a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
