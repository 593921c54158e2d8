"""The supervisor of one run, as a child: started before anything heavy is imported here, so that both load at once.

Its environment is built from a list; its secrets follow through its standard input, which stays open as the run's
lifeline: when this process ends in whatever way, the supervisor sees the end of that pipe.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from fanjoin.ipc.environment import RUN_TAG, allowed_environment
from fanjoin.ipc.ids import INSTANCE, new_id, new_secret

if TYPE_CHECKING:
    from fanjoin.ipc.bootstrap import CoreBootstrap, CoreReady
    from fanjoin.ipc.endpoints import Endpoints

_CODE = "from fanjoin.supervisor.main import main; main()"
READY_SECONDS = 60.0
"""How long a supervisor may take from its bootstrap to its first word (recovering after a crash included)."""


class CoreProcess:
    """A supervisor process that belongs to this one.

    Args:
        home: the home folder, prepared.
    """

    shared = False
    viewer = "owner"
    """The name under which the supervisor knows whom it belongs to."""

    def __init__(self, home: Path) -> None:
        from fanjoin.ipc.platform import detached_flags

        self.home = home
        self.instance_id = new_id(INSTANCE)
        self.log = home / "logs" / "supervisor.log"
        environment = allowed_environment(os.environ)
        environment |= {"FANJOIN_HOME": str(home), RUN_TAG: new_secret()}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                **detached_flags(),
            )

    @property
    def pid(self) -> int:
        """The supervisor's process number."""
        return self._process.pid

    def begin(self, bootstrap: "CoreBootstrap") -> "CoreReady":
        """Hand over what it needs and return its first word.

        Raises:
            UserError: the turn is too large to be handed over.
            OwnerLostError: it ended or stayed silent.
        """
        from fanjoin.ipc.bootstrap import CoreReady, pack_frame, read_frame
        from fanjoin.ipc.errors import BadFrameError, OwnerLostError, UserError

        try:
            frame = pack_frame(bootstrap)
        except BadFrameError as error:
            raise UserError(f"The turn is too large to be handed over: {error}. Nothing was run.") from error
        watchdog = threading.Timer(READY_SECONDS, self.kill)
        watchdog.daemon = True  # a signal may end the wait at any point
        try:
            watchdog.start()
            stdin = cast(BinaryIO, self._process.stdin)
            stdin.write(frame)
            stdin.flush()
            ready = read_frame(cast(BinaryIO, self._process.stdout), CoreReady)
        except (OSError, BadFrameError):
            ready = None
        finally:
            watchdog.cancel()
        if ready is None:
            raise OwnerLostError(
                f"The supervisor ended before it was ready ({self._end()}). Nothing was run. Its log is {self.log}."
            )
        return ready

    def _end(self) -> str:
        """Wait for the end of a supervisor that says nothing more, and return how it ended."""
        from fanjoin.ipc import platform

        self.close(1)
        code = self._process.wait()
        return f"exit code {code}" if code >= 0 else platform.signal_name(-code)

    def endpoints(self, bootstrap: "CoreBootstrap") -> "Endpoints":
        """Hand over what it needs and return where it listens.

        Raises:
            UserError, RunError: it cannot run here.
            OwnerLostError: it ended or stayed silent.
        """
        from fanjoin.ipc.errors import RunError, StorageError, UserError

        ready = self.begin(bootstrap)
        if ready.error:
            kinds = {kind.reason: kind for kind in (UserError, StorageError)}
            raise kinds.get(ready.reason, RunError)(ready.error)
        return ready.endpoints

    def call_when_gone(self, callback: Callable[[], None]) -> None:
        """Call back, from a thread, when the supervisor has ended."""

        def wait() -> None:
            self._process.wait()
            callback()

        threading.Thread(target=wait, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Say whether the supervisor runs."""
        return self._process.poll() is None

    def release(self) -> None:
        """End the lifeline: the supervisor finishes what it must and ends."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def close(self, seconds: float) -> None:
        """End the lifeline and wait for the supervisor's end; past the time, end it by force."""
        self.release()
        # In a thread: a wait with a timeout would look now and then, and a run would end up to 50 ms later.
        waiting = threading.Thread(target=self._process.wait, daemon=True)
        waiting.start()
        waiting.join(seconds)
        if waiting.is_alive():
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """End the supervisor by force; the zygote ends what it leaves."""
        self._process.kill()
        self._process.wait()
