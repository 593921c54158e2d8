"""``fanjoin sessions``: list, show, export and delete sessions, and decide about turns that lost their supervisor."""

import os
from pathlib import Path

import click
import msgspec

from fanjoin.cli.app import Start
from fanjoin.cli.listing import DEFAULT_LIMIT, MOST, ListFirst
from fanjoin.cli.printing import format_option, print_json, print_text
from fanjoin.cli.submission import retry_request
from fanjoin.cli.table import moment, one_line, table
from fanjoin.cli.turn import TurnOptions, run_turn
from fanjoin.client.sessions import StoredAdmission, Transcript, find_session, list_sessions, read_session
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.ids import REQUEST, new_id
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.paths import home_from, prepare_home
from fanjoin.ipc.session_messages import DeleteSession, ResolveUnknown, SessionLine
from fanjoin.ipc.text import clean

_HEADINGS = ("SESSION", "USED", "STATUS", "TURNS", "FOLDER")


@click.group("sessions", cls=ListFirst)
def sessions_command() -> None:
    """List, show, export, delete and resolve sessions; any unique beginning of an ID will do, and latest."""


@sessions_command.command("list")
@click.option("--limit", type=click.IntRange(1, MOST), default=DEFAULT_LIMIT, show_default=True, help="How many.")
@format_option
def list_command(limit: int, form: str) -> None:
    """List the sessions, the one that was used last first."""
    sessions = list_sessions(home_from(os.environ), limit)
    if form == "json":
        print_json(msgspec.to_builtins(sessions))
    elif sessions:
        print_text(table(_HEADINGS, [_row(one) for one in sessions]))
    else:
        print_text("There is no session under this home yet.")


def _row(session: SessionLine) -> tuple[str, ...]:
    where = f"{session.title} ({session.cwd})" if session.title else session.cwd
    return session.session_id, moment(session.used_at), session.status, str(session.turns), where


@sessions_command.command("show")
@click.argument("session_id", metavar="ID")
@format_option
def show_command(session_id: str, form: str) -> None:
    """Show a session's turns: what was asked, and how it ended."""
    found = read_session(home_from(os.environ), session_id)
    if form == "json":
        whole = msgspec.to_builtins(found)
        print_json({**whole["session"], "settings": whole["settings"], "turns": whole["turns"]})
    else:
        print_text(_whole(found))


def _whole(found: Transcript) -> str:
    line = found.session
    head = f"{line.session_id}  {line.status}, made {moment(line.created_at)} in {one_line(line.cwd)}"
    return "\n\n".join([head, *(_turn(turn) for turn in found.turns)])


def _turn(turn: StoredAdmission) -> str:
    outcome = turn.outcome or {}
    status = str(outcome.get("status") or turn.status)
    reason = f" ({outcome['reason']})" if outcome.get("reason") else ""
    lines = [f"{turn.admission_id}  {moment(turn.queued_at)}  {status}{reason}"]
    lines += [f"  > {one_line(str(turn.payload.get('text', '')))}"]
    answer = str(outcome.get("answer") or outcome.get("message") or "")
    return "\n".join([*lines, *(f"    {one_line(part)}".rstrip() for part in answer.splitlines())])


@sessions_command.command("export")
@click.argument("session_id", metavar="ID")
@click.option("--output", "-o", metavar="FILE", help="Where to; default standard output.")
def export_command(session_id: str, output: str | None) -> None:
    """Write a whole session as JSON: its settings (no key is in them), turns and messages."""
    found = msgspec.to_builtins(read_session(home_from(os.environ), session_id))
    value = {**found["session"], "settings": found["settings"], "turns": found["turns"], "messages": found["messages"]}
    if output is None:
        print_json(value)
    else:
        _write(Path(output), value)


def _write(path: Path, value: JsonObject) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(value)) + b"\n")
    except OSError as error:
        problem = error.strerror or error
        raise UserError(f"{clean(str(path))} cannot be written: {problem}. Nothing was exported.") from error


@sessions_command.command("delete")
@click.argument("session_id", metavar="ID")
@click.pass_obj
def delete_command(start: Start, session_id: str) -> None:
    """Remove a session's conversation and list it no more; receipts of its delegates stay."""
    del start
    home = home_from(os.environ)
    found = find_session(home, session_id)
    _ask(DeleteSession(request_id=new_id(REQUEST), session_id=found.session_id))
    print_text(f"{found.session_id} deleted.")


@sessions_command.command("resolve")
@click.argument("session_id", metavar="ID")
@click.option("--retry", "choice", flag_value="retry", help="Run the turn again; delegates that completed are not.")
@click.option("--discard", "choice", flag_value="discard", help="Give the turn up.")
@click.option("-Q", "--quiet", is_flag=True, help="No progress on standard error.")
@click.pass_obj
def resolve_command(start: Start, session_id: str, choice: str | None, *, quiet: bool) -> int:
    """Decide about a turn whose supervisor died, which holds its session until then."""
    if choice is None:
        raise UserError("Say what to do with the turn: --retry (run it again) or --discard (give it up).")
    found = find_session(home_from(os.environ), session_id)
    if choice == "discard":
        _ask(ResolveUnknown(request_id=new_id(REQUEST), session_id=found.session_id, retry=False))
        print_text(f"The turn of {found.session_id} was given up.")
        return 0
    from fanjoin.client.core import core_for

    start.interrupts.listen()
    start = Start(core_for(prepare_home(home_from(os.environ))), start.interrupts)
    return run_turn(
        start,
        lambda: "",
        TurnOptions(quiet=quiet),
        lambda home, _, stack: retry_request(home, found.session_id, stack),
    )


def _ask(request: DeleteSession | ResolveUnknown) -> None:
    """Have a supervisor that is started for it do something."""
    from fanjoin.client.ask import ask
    from fanjoin.client.core import core_for
    from fanjoin.ipc.config import load_config, supervisor_settings

    home = prepare_home(home_from(os.environ))
    ask(core_for(home), request, supervisor_settings(load_config(home), os.environ))
