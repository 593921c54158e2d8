"""A daemon from outside: whether one serves a home, how it is started and stopped, and a viewer's way in."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, cast

from fanjoin.ipc.environment import RUN_TAG, allowed_environment
from fanjoin.ipc.errors import OwnerLostError, RunError, UserError
from fanjoin.ipc.ids import INSTANCE, REQUEST, new_id, new_secret
from fanjoin.ipc.paths import daemon_file, endpoints_file, instance_folder
from fanjoin.ipc.version import VERSION

if TYPE_CHECKING:
    from fanjoin.client.viewer import Viewer
    from fanjoin.ipc.bootstrap import CoreBootstrap
    from fanjoin.ipc.daemon_file import DaemonDescriptor
    from fanjoin.ipc.endpoints import Endpoints

READY_SECONDS = 60.0
"""How long a daemon may take from its bootstrap to its first word, recovery after a crash included."""
LOOK_SECONDS = 0.02
_ANSWER_SECONDS = 20.0
_MODULE = "fanjoin.supervisor.daemon"
_VIEWER = "v_"


def find_daemon(home: Path) -> "DaemonDescriptor | None":
    """Return the daemon that serves a home, whatever its version; None when none does.

    Neither a descriptor that was left behind nor its pid counts: the lock of its instance does.
    """
    if not daemon_file(home).exists():
        return None
    from fanjoin.ipc.daemon_file import read_descriptor

    descriptor = read_descriptor(home)
    return descriptor if descriptor is not None and lives(home, descriptor) else None


def lives(home: Path, descriptor: "DaemonDescriptor") -> bool:
    """Say whether the process that wrote a descriptor lives."""
    from fanjoin.ipc.platform import is_locked

    return is_locked(instance_folder(home, descriptor.instance_id) / "lock")


def explain_unready(home: Path) -> str:
    """Return what to know of a daemon that holds a home without a descriptor; nothing when there is none."""
    from fanjoin.client.records import open_readonly
    from fanjoin.ipc.paths import daemon_lock
    from fanjoin.ipc.platform import is_locked

    if not is_locked(daemon_lock(home)):
        return ""
    sql = "SELECT pid, lock_path FROM owners WHERE kind = 'daemon' AND ended_at IS NULL"
    with open_readonly(home) as connection:
        rows = connection.execute(sql).fetchall() if connection is not None else []
    pids = [f"process {pid}" for pid, lock_path in rows if is_locked(Path(lock_path))]
    return (
        f"A daemon holds {home} and is not ready ({', '.join(pids) or 'not registered yet'}): it starts or ends just "
        "now. If that lasts, somebody has removed its run/daemon.json: end that process by SIGTERM and start it again."
    )


def require_same_version(descriptor: "DaemonDescriptor") -> None:
    """Refuse to speak with a daemon of another version.

    Raises:
        UserError: it is one.
    """
    if descriptor.version != VERSION:
        raise UserError(
            f"The daemon that serves this home (process {descriptor.pid}) is fanjoin {descriptor.version}; this "
            f"command is {VERSION}. Nothing was run.\nEnd it with `fanjoin daemon stop` and start it again with "
            "`fanjoin daemon start`: turns that wait in it are taken over."
        )


def endpoints_of(home: Path, descriptor: "DaemonDescriptor") -> "Endpoints":
    """Return where a daemon's private socket is.

    Raises:
        OwnerLostError: it has ended meanwhile.
    """
    import msgspec

    from fanjoin.ipc.endpoints import Endpoints

    try:
        data = endpoints_file(instance_folder(home, descriptor.instance_id)).read_bytes()
        return msgspec.json.decode(data, type=Endpoints)
    except (OSError, msgspec.MsgspecError) as error:
        raise OwnerLostError(f"The daemon of {home} has just ended. Nothing was run; try again.") from error


class DaemonCore:
    """A daemon as the supervisor of a run: it was there before, and stays whatever happens to us.

    Args:
        home: the home folder.
        descriptor: the daemon that serves it.
    """

    shared = True

    def __init__(self, home: Path, descriptor: "DaemonDescriptor") -> None:
        self.home = home
        self.descriptor = descriptor
        self.instance_id = descriptor.instance_id
        self.viewer = new_id(_VIEWER)
        self.log = daemon_log(home)

    @property
    def pid(self) -> int:
        """The daemon's process number."""
        return self.descriptor.pid

    def endpoints(self, bootstrap: "CoreBootstrap") -> "Endpoints":
        """Return where it listens; it needs nothing of us.

        Raises:
            UserError: it is of another version.
            OwnerLostError: it has ended meanwhile.
        """
        del bootstrap
        require_same_version(self.descriptor)
        return endpoints_of(self.home, self.descriptor)

    @property
    def alive(self) -> bool:
        """Say whether the daemon runs."""
        return lives(self.home, self.descriptor)

    def call_when_gone(self, callback: Callable[[], None]) -> None:
        """Do nothing: nobody tells us of the end of a process that is not our child, so ``alive`` has to be asked."""

    def release(self) -> None:
        """Do nothing: it is not ours to end."""

    def close(self, seconds: float) -> None:
        """Do nothing: it is not ours to end."""

    def kill(self) -> None:
        """Do nothing: it is not ours to end."""


# --- start and stop ------------------------------------------------------------------------------------------------


def daemon_log(home: Path) -> Path:
    """Return the file that takes what a daemon in the background prints."""
    return home / "logs" / "daemon.log"


def start_daemon(home: Path) -> "tuple[DaemonDescriptor, bool]":
    """Start a daemon in the background, unless one serves the home, and return it once it is ready.

    Returns:
        The daemon, and whether it was started by this call.

    Raises:
        UserError, RunError: it cannot run here.
    """
    found = find_daemon(home)
    if found is not None:
        return found, False
    bootstrap = _bootstrap(home)
    process = _spawn(home, bootstrap)
    problem = _first_word(process, bootstrap)
    if not problem:
        found = find_daemon(home)
        if found is not None:
            return found, found.instance_id == bootstrap.instance_id
        raise RunError(f"The daemon ended as soon as it was ready. Its log is {daemon_log(home)}.")
    found = _another(home)
    if found is None:
        raise (UserError if process.returncode == UserError.exit_code else RunError)(problem)
    return found, False


def _bootstrap(home: Path) -> "CoreBootstrap":
    from fanjoin.client.run import AGENT_ENTRY, WORKER_ENTRY
    from fanjoin.ipc.bootstrap import CoreBootstrap
    from fanjoin.ipc.config import load_config, supervisor_settings
    from fanjoin.ipc.config_session import environment_for

    config = load_config(home)
    return CoreBootstrap(
        home=str(home),
        instance_id=new_id(INSTANCE),
        owned=False,
        agent_entry=AGENT_ENTRY,
        worker_entry=WORKER_ENTRY,
        settings=supervisor_settings(config, os.environ),
        environ=environment_for(config, os.environ),
        daemon=True,
    )


def _environment(home: Path) -> dict[str, str]:
    return allowed_environment(os.environ) | {"FANJOIN_HOME": str(home), RUN_TAG: new_secret()}


def _spawn(home: Path, bootstrap: "CoreBootstrap") -> "subprocess.Popen[bytes]":
    from fanjoin.ipc.bootstrap import write_frame
    from fanjoin.ipc.platform import detached_flags

    with daemon_log(home).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {_MODULE} import background; background()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(home),
            **detached_flags(),
        )
    with cast(BinaryIO, process.stdin) as stream:
        write_frame(stream, bootstrap)
    return process


def _first_word(process: "subprocess.Popen[bytes]", bootstrap: "CoreBootstrap") -> str:
    """Return what keeps a daemon from being ready, nothing when it is; then it goes on without us."""
    from fanjoin.ipc.bootstrap import CoreReady, read_frame
    from fanjoin.ipc.errors import BadFrameError

    watchdog = threading.Timer(READY_SECONDS, process.kill)
    watchdog.start()
    try:
        with cast(BinaryIO, process.stdout) as stream:
            ready = read_frame(stream, CoreReady)
    except (OSError, BadFrameError):
        ready = None
    finally:
        watchdog.cancel()
    if ready is not None and not ready.error:
        process.returncode = 0  # it outlives us, and nobody has to wait for it
        return ""
    process.wait()
    log = daemon_log(Path(bootstrap.home))
    return ready.error if ready is not None else f"The daemon ended before it was ready. Its log is {log}."


def _another(home: Path) -> "DaemonDescriptor | None":
    """Return the daemon that was faster, once it is ready."""
    from fanjoin.ipc.paths import daemon_lock
    from fanjoin.ipc.platform import is_locked

    deadline = time.monotonic() + READY_SECONDS
    while (found := find_daemon(home)) is None:
        if time.monotonic() > deadline or not is_locked(daemon_lock(home)):
            return None
        time.sleep(LOOK_SECONDS)
    return found


def become_daemon(home: Path) -> NoReturn:
    """Go on as the daemon, in this process.

    Raises:
        UserError, RunError: it cannot run here.
    """
    from fanjoin.ipc.bootstrap import AGENT_LIMIT, pack_frame
    from fanjoin.ipc.platform import become

    found = find_daemon(home)
    if found is not None:
        raise RunError(f"A daemon serves {home} already: process {found.pid} at {found.url}.")
    frame = pack_frame(_bootstrap(home), AGENT_LIMIT)  # a pipe holds that much before anybody reads
    become(f"{_MODULE}:foreground", _environment(home), frame)


def stop_daemon(home: Path, *, now: bool, told: Callable[["DaemonDescriptor"], None]) -> "DaemonDescriptor | None":
    """Ask the daemon of a home to end and wait until it has; None when there is none.

    Args:
        home: the home folder.
        now: do not wait for what runs in it.
        told: called once it has been asked.

    Raises:
        RunError: it does not obey, or cannot be reached.
    """
    from fanjoin.client.viewer import Viewer
    from fanjoin.ipc.messages import Drain

    found = find_daemon(home)
    if found is None:
        if unready := explain_unready(home):
            raise RunError(unready)
        return None
    try:
        viewer = Viewer(endpoints_of(home, found), new_id(_VIEWER))
    except OwnerLostError:
        return found
    try:
        viewer.send(Drain(request_id=new_id(REQUEST), now=now))
        _await_answer(home, found, viewer)
        told(found)
        _await_end(home, found)
    except KeyboardInterrupt:
        viewer.send(Drain(request_id=new_id(REQUEST), now=True))
        raise
    finally:
        viewer.close()
    return found


def _await_end(home: Path, found: "DaemonDescriptor") -> None:
    """Wait until a daemon has ended; the lock of the home goes with its process, unless the next one has it."""
    from fanjoin.ipc.paths import daemon_lock
    from fanjoin.ipc.platform import is_locked

    while lives(home, found) or (is_locked(daemon_lock(home)) and find_daemon(home) is None):
        time.sleep(LOOK_SECONDS)


def _await_answer(home: Path, found: "DaemonDescriptor", viewer: "Viewer") -> None:
    deadline = time.monotonic() + _ANSWER_SECONDS
    while viewer.receive() is None and lives(home, found):
        if time.monotonic() > deadline:
            raise RunError(
                f"The daemon (process {found.pid}) has not answered for {_ANSWER_SECONDS:g} s. It was not ended.\n"
                f"When it hangs, end process {found.pid} by force: the next start recovers what it held."
            )
        viewer.wait(LOOK_SECONDS)
