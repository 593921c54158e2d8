"""A supervisor put together: its folder and lock, store, doors, launcher, core; and its orderly end."""

import os
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fanjoin.ipc import platform
from fanjoin.ipc.bootstrap import CoreBootstrap
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.errors import FanjoinError, RunError, StorageError, UserError
from fanjoin.ipc.messages import FromViewer, ToViewer
from fanjoin.ipc.paths import database_file, instance_folder, socket_folder
from fanjoin.ipc.platform.lockfile import LockFile
from fanjoin.ipc.state_file import explain
from fanjoin.supervisor.core.events import CoreEvent, Draining, EndAsked, SessionsLeft, ViewersLost
from fanjoin.supervisor.core.machine import Core
from fanjoin.supervisor.desk import Desk
from fanjoin.supervisor.driver import Driver
from fanjoin.supervisor.launch.base import Launcher
from fanjoin.supervisor.leftovers import LeftoverRuns
from fanjoin.supervisor.loop import Loop
from fanjoin.supervisor.questions import Answer, Question, SessionOpened
from fanjoin.supervisor.resolver import Resolver
from fanjoin.supervisor.sockets import Sockets
from fanjoin.supervisor.store.owners import Owner, register_owner
from fanjoin.supervisor.store.recovery import recover_dead_owners
from fanjoin.supervisor.store.sessions import answer, left_sessions
from fanjoin.supervisor.store.writer import StoreWriter, open_database

if TYPE_CHECKING:
    from fanjoin.supervisor.launch.zygote import ZygoteHandle

OWNING_VIEWER = "owner"
LAST_WORD_SECONDS = 15.0
"""How long the end may take once nobody waits; past it the process just exits, and the zygote sweeps what is left."""
_DESCRIPTORS_PER_AGENT = 6
_DESCRIPTORS_OF_OUR_OWN = 64
_DESCRIPTORS_OF_A_GATEWAY = 600


class Service:
    """One supervisor.

    Raises:
        UserError, RunError: it cannot run here; nothing was started.
    """

    def __init__(self, bootstrap: CoreBootstrap, zygote: "ZygoteHandle | None", run_tag: str) -> None:
        self._bootstrap = bootstrap
        self._home = Path(bootstrap.home)
        self._folder = instance_folder(self._home, bootstrap.instance_id)
        self._lock = self._claim_folder()
        self._ending = False
        self._draining = False
        self._left_sessions: list[str] = []
        try:
            self._assemble(zygote, run_tag)
        except FanjoinError:
            self._remove_folders()
            raise

    def _assemble(self, zygote: "ZygoteHandle | None", run_tag: str) -> None:
        bootstrap = self._bootstrap
        descriptors = platform.raise_descriptor_limit()
        self._loop = Loop()
        connection = self._open_database(run_tag)
        self._sockets = Sockets(self._folder, bootstrap.settings.transport, self._loop)
        self.endpoints: Endpoints = self._sockets.endpoints
        reserved = _DESCRIPTORS_OF_OUR_OWN + (_DESCRIPTORS_OF_A_GATEWAY if bootstrap.daemon else 0)
        affordable = (descriptors - reserved) // _DESCRIPTORS_PER_AGENT
        self._core = Core(
            home=self._home,
            max_processes=max(1, min(bootstrap.settings.max_processes, affordable)),
            instance_id=bootstrap.instance_id,
        )
        self._driver = Driver(
            core=self._core,
            loop=self._loop,
            sockets=self._sockets,
            folder=self._folder,
            bootstrap=bootstrap,
        )
        self._driver.store = self._store = StoreWriter(
            connection, database_file(self._home), bootstrap.instance_id, self._driver.committed
        )
        self._resolver = Resolver(self._home, bootstrap.environ)
        self._driver.desk = Desk(self._store, self._loop, self._driver, self._answer, bootstrap.instance_id)
        self._driver.launcher = self._launcher = self._choose_launcher(zygote)
        self._publish()

    def _claim_folder(self) -> LockFile:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = platform.try_lock(self._folder / "lock")
        except OSError as error:
            raise UserError(f"The folder {self._folder} cannot be used: {error}. Nothing was started.") from error
        if lock is None:
            raise RunError(f"Another process holds {self._folder}. Nothing was started; try again.")
        return lock

    def _open_database(self, run_tag: str) -> sqlite3.Connection:
        """Open the database, put right what dead supervisors left, and register."""
        connection = open_database(self._home)
        owner = Owner(
            instance_id=self._bootstrap.instance_id,
            run_tag=run_tag,
            pid=os.getpid(),
            process_start=platform.process_start(os.getpid()),
            boot_id=platform.boot_id(),
            lock_path=str(self._folder / "lock"),
            kind="daemon" if self._bootstrap.daemon else "private",
        )
        try:
            register_owner(connection, owner, time.time())
            self._recover(connection)
            LeftoverRuns(self._home).remove_unregistered(connection)
            if self._bootstrap.daemon:
                self._left_sessions = left_sessions(connection, owner.instance_id)
        except sqlite3.Error as error:
            connection.close()
            raise StorageError(explain(error, database_file(self._home))) from error
        return connection

    def _recover(self, connection: sqlite3.Connection) -> None:
        """Put right what dead supervisors left; those that live are left alone."""
        left = LeftoverRuns(self._home)
        own_id = self._bootstrap.instance_id
        for recovered in recover_dead_owners(connection, own_id, platform.try_lock, time.time(), left.end_process):
            left.remove_folder(recovered)

    def _answer(self, connection: sqlite3.Connection, question: Question) -> Answer:
        """Answer a question of the core, in the store's thread."""
        found = answer(connection, question, self._bootstrap.instance_id, self._recover)
        return self._resolver.prepared(found) if isinstance(found, SessionOpened) else found

    def _choose_launcher(self, zygote: "ZygoteHandle | None") -> Launcher:
        choice = self._bootstrap.settings.launcher
        if sys.platform == "linux" and zygote is not None:
            from fanjoin.supervisor.launch.zygote import ZygoteLauncher

            forking = ZygoteLauncher(zygote, self._loop, self._driver)
            if choice != "spawn":
                return forking
            forking.close()
        if choice == "zygote":
            raise UserError("delegation.launcher is zygote, which needs Linux. Use auto or spawn.")
        from fanjoin.supervisor.launch.spawn import SpawnLauncher

        submit = self._bootstrap.submit
        cap = submit.settings.limits.max_concurrent_children if submit else 1
        backstop = zygote.backstop if zygote is not None else None
        return SpawnLauncher(self._loop, self._driver, self._folder, min(cap, 4), backstop)

    def _publish(self) -> None:
        """Let other commands of this user find the front door."""
        path = self._folder / "endpoints.json"
        whole = path.with_suffix(".new")
        with open(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(self.endpoints))
        os.replace(whole, path)  # whoever looks finds all of it or nothing

    def viewers_lost(self) -> None:
        """End what runs: nobody waits for it. Safe to call from a signal handler or another thread."""
        self._loop.post(lambda: self._end_all(ViewersLost()))

    def end(self) -> None:
        """End what runs: somebody told us to. Safe to call from a signal handler or another thread."""
        self._loop.post(lambda: self._end_all(EndAsked()))

    def _end_all(self, why: CoreEvent) -> None:
        if self._ending:
            return
        self._ending = True
        watchdog = threading.Timer(LAST_WORD_SECONDS, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        self._driver.feed(why)

    # --- a daemon's: it outlives its viewers -----------------------------------------------------------------------

    def outlive_viewers(self) -> None:
        """Be a daemon's: viewers come and go, and one of them may ask for the end."""
        self._driver.outlive_viewers(self._drain)

    def drain(self, *, now: bool = False) -> None:
        """End in good order. Safe to call from a signal handler or another thread; the second time cuts it short."""
        self._loop.post(lambda: self._drain(now or self._draining))

    def _drain(self, now: bool) -> None:
        if now:
            self._end_all(EndAsked())
        if self._draining:
            return
        self._draining = True
        timer = threading.Timer(self._bootstrap.settings.drain_seconds, self.end)
        timer.daemon = True
        timer.start()
        self._driver.feed(Draining())

    def viewer_joined(self, name: str, tell: Callable[[ToViewer], None]) -> None:
        """Let in a viewer of this process; from any thread."""
        self._loop.post(lambda: self._driver.viewer_joined(name, tell))

    def viewer_said(self, name: str, message: FromViewer) -> None:
        """Hear a viewer of this process; from any thread."""
        self._loop.post(lambda: self._driver.viewer_said(name, message))

    def viewer_left(self, name: str) -> None:
        """Forget a viewer of this process; from any thread."""
        self._loop.post(lambda: self._driver.viewer_left(name))

    # --- from the first turn to the end ----------------------------------------------------------------------------

    def run(self, ending: Callable[[], None] = lambda: None) -> None:
        """Serve until nobody wants anything and nothing is left to do, then end in good order.

        Args:
            ending: called once nothing runs any more, while viewers can still be told.
        """
        if self._left_sessions:
            self._driver.feed(SessionsLeft(session_ids=self._left_sessions))
        if self._bootstrap.submit is not None:
            self._driver.viewer_said(OWNING_VIEWER, self._bootstrap.submit)
        self._driver.run_until(lambda: (self._ending or self._draining) and self._core.idle)
        ending()
        self._end()

    def _end(self) -> None:
        self._launcher.close()
        self._store.close(LAST_WORD_SECONDS)
        self._sockets.close()
        self._remove_folders()

    def _remove_folders(self) -> None:
        self._lock.close()  # Windows removes no open file
        for folder in {self._folder, socket_folder(self._folder)}:
            shutil.rmtree(folder, ignore_errors=True)
