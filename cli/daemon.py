"""``fanjoin daemon``: one supervisor that outlives its viewers, with a WebSocket beside its private socket."""

import os
import time
from pathlib import Path

import click

from fanjoin.cli import streams
from fanjoin.cli.app import Start
from fanjoin.cli.printing import print_json, print_text
from fanjoin.cli.table import duration
from fanjoin.client.daemon import become_daemon, explain_unready, find_daemon, start_daemon, stop_daemon
from fanjoin.ipc.config import load_config
from fanjoin.ipc.daemon_file import DaemonDescriptor
from fanjoin.ipc.paths import home_from, prepare_home
from fanjoin.ipc.version import VERSION

NOT_RUNNING = 3
"""Exit code of ``status`` without a daemon, as service managers know it."""
_json_option = click.option("--json", "as_json", is_flag=True, help="Print an object.")


@click.group("daemon")
def daemon_command() -> None:
    """One daemon a home: sessions go on without a viewer, and programs reach them over a WebSocket."""


@daemon_command.command("run")
def run_command() -> None:
    """Be the daemon, here in the foreground, until Ctrl-C or SIGTERM; the second one cuts the end short."""
    become_daemon(_home())


@daemon_command.command("start")
@_json_option
def start_command(*, as_json: bool) -> int:
    """Start a daemon in the background and return when it is ready; one that is there already will do."""
    home = _home()
    for warning in load_config(home).warnings:
        streams.complain(f"warning: {warning}")
    try:
        daemon, new = start_daemon(home)
    except KeyboardInterrupt:
        streams.complain("The daemon was not started.")
        return 130
    if as_json:
        print_json(_facts(daemon) | {"started": new})
    else:
        print_text(f"The daemon {'is ready' if new else 'was there already'}: {_line(home, daemon)}")
    return 0


@daemon_command.command("stop")
@click.option("--now", is_flag=True, help="Do not wait for what runs: end it, with receipts.")
@click.pass_obj
def stop_command(start: Start, *, now: bool) -> int:
    """Let the daemon finish what runs (daemon.drain_seconds at most), then end it; Ctrl-C cuts that short."""
    del start
    home = _home()

    def asked(daemon: DaemonDescriptor) -> None:
        streams.complain(f"The daemon (process {daemon.pid}) begins no new turn and ends when those that run have.")

    try:
        stopped = stop_daemon(home, now=now, told=asked)
    except KeyboardInterrupt:
        streams.complain("What ran in the daemon is being ended now.")
        return 130
    print_text("The daemon has ended." if stopped else "No daemon serves this home.")
    return 0


@daemon_command.command("status")
@_json_option
def status_command(*, as_json: bool) -> int:
    """Say whether a daemon serves this home: exit code 0, else 3."""
    home = home_from(os.environ)
    daemon = find_daemon(home)
    if as_json:
        print_json({"running": False} if daemon is None else {"running": True} | _facts(daemon))
    elif daemon is None:
        print_text(explain_unready(home) or f"No daemon serves {home}. `fanjoin daemon start` starts one.")
    else:
        print_text(_line(home, daemon))
        if daemon.version != VERSION:
            print_text(f"It is fanjoin {daemon.version}, this command is {VERSION}: end it and start it again.")
    return NOT_RUNNING if daemon is None else 0


def _home() -> Path:
    return prepare_home(home_from(os.environ))


def _facts(daemon: DaemonDescriptor) -> dict[str, object]:
    """Return what may be shown of a daemon: everything but its token."""
    names = ("pid", "url", "instance_id", "started_at", "version")
    return {name: getattr(daemon, name) for name in names}


def _line(home: Path, daemon: DaemonDescriptor) -> str:
    since = duration(max(0.0, time.time() - daemon.started_at))
    return f"process {daemon.pid} serves {home} at {daemon.url}, for {since}"
