"""From flags to a submission: the session it goes to, the settings it runs with, the images it carries."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fanjoin.cli import streams
from fanjoin.cli.turn import TurnOptions, Wanted, with_local_model
from fanjoin.client.depth import refuse_below_an_agent
from fanjoin.client.run import Job
from fanjoin.ipc.config import Flags, Resolved, load_config, resolve
from fanjoin.ipc.config_session import environment_for, frozen, taken_up
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.ids import REQUEST, new_id
from fanjoin.ipc.messages import JsonObject, Submit
from fanjoin.ipc.payload import TurnFlags, payload_json, read_payload
from fanjoin.ipc.session_messages import CreateSession, ResolveUnknown
from fanjoin.ipc.settings import TurnSettings
from fanjoin.ipc.text import clean

if TYPE_CHECKING:
    from fanjoin.client.sessions import StoredSession


class Opening(Struct, frozen=True, kw_only=True):
    """What the turns of a command have in common. ``session`` is the one that is gone on with, if there is one.

    ``environ`` is what turns need of the environment that nobody brings settings for.
    """

    session: "StoredSession | None"
    flags: dict[str, Any]
    resolved: Resolved
    settings: TurnSettings
    environ: dict[str, str]


def opening(home: Path, options: TurnOptions, stack: ExitStack) -> Opening:
    """Return what every turn of this command line runs with; what it starts on the way goes onto the stack.

    Raises:
        UserError: a flag or the configuration is wrong, or there is no such session.
    """
    session = _session(home, options.resume) if options.resume is not None else None
    flags = options.turn_flags()
    resolved = _resolve(home, flags, session)
    return Opening(
        session=session,
        flags=flags,
        resolved=resolved,
        settings=with_local_model(resolved, stack),
        environ=environment_for(load_config(home), os.environ),
    )


def pictures_of(options: TurnOptions) -> list[JsonObject]:
    """Return the images of the command line as a submission carries them.

    Raises:
        UserError: one is missing, too large, or no image.
    """
    return [_image(Path(name)) for name in options.image]


def submission(opened: Opening, text: str, pictures: list[JsonObject], input_id: str, *, finite: bool) -> Submit:
    """Return a turn; ``input_id`` is its own identity, where it was given one."""
    named = clean(input_id)
    return Submit(
        request_id=named or new_id(REQUEST),
        session_id=opened.session.session_id if opened.session else "",
        text=text,
        finite=finite,
        payload_json=payload_json(text, _wire_flags(opened.flags), finite=finite, images=pictures),
        settings=opened.settings,
        images=pictures,
        create=None if opened.session else _creation(opened.resolved, named),
    )


def chat_request(home: Path, text: str, options: TurnOptions, stack: ExitStack) -> Wanted:
    """Return the submission of ``chat`` or ``run``.

    Raises:
        UserError: a flag, an image or the configuration is wrong, or there is no such session.
    """
    pictures = pictures_of(options)
    opened = opening(home, options, stack)
    submit = submission(opened, text, pictures, options.input_id or "", finite=True)
    return _wanted(submit, opened.resolved, opened.environ if opened.session or options.input_id else {})


def retry_request(home: Path, session_id: str, stack: ExitStack) -> Wanted:
    """Return the wish to run a turn again whose supervisor died, with the flags that it was given.

    Raises:
        UserError: there is no such turn, or no settings for it.
    """
    from fanjoin.client.sessions import find_unknown

    session = _session(home, session_id)
    payload = find_unknown(home, session.session_id)
    given = read_payload(payload).cli_turn_v1 if payload else TurnFlags()
    resolved = _resolve(home, given.as_flags(), session)
    request = ResolveUnknown(
        request_id=new_id(REQUEST),
        session_id=session.session_id,
        retry=True,
        settings=with_local_model(resolved, stack),
    )
    return _wanted(request, resolved, environment_for(load_config(home), os.environ))


def _wanted(request: Submit | ResolveUnknown, resolved: Resolved, environ: dict[str, str]) -> Wanted:
    return Wanted(job=Job(request=request, settings=resolved.supervisor, environ=environ), resolved=resolved)


def _session(home: Path, name: str) -> "StoredSession":
    from fanjoin.client.sessions import find_session  # late: most runs need no database here

    return find_session(home, name)


def _creation(resolved: Resolved, input_id: str) -> CreateSession:
    """Return the session of a turn that names none; a submission with an identity of its own has one of its own."""
    return CreateSession(request_id=f"chat:{input_id}" if input_id else "", settings=frozen(resolved))


def _resolve(home: Path, flags: dict[str, Any], session: "StoredSession | None") -> Resolved:
    config = load_config(home)
    kept = taken_up(session.settings, config, os.environ) if session else None
    resolved = resolve(config, os.environ, Flags(**flags), kept)
    for warning in resolved.warnings:
        streams.complain(f"warning: {warning}")
    refuse_below_an_agent(resolved.turn, os.environ)
    return resolved


def _wire_flags(flags: dict[str, Any]) -> TurnFlags:
    wire: dict[str, Any] = {name: list(value) if isinstance(value, tuple) else value for name, value in flags.items()}
    if "cwd" in wire:
        wire["cwd"] = os.path.abspath(os.path.expanduser(wire["cwd"]))
    return TurnFlags(**wire)


def _image(path: Path) -> JsonObject:
    """Read an image of the command line.

    Raises:
        UserError: it is not there, too large, or no image.
    """
    from fanjoin.ipc import images

    try:
        with path.open("rb") as file:
            data = file.read(images.MOST_BYTES + 1)
        return images.as_submitted(data)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    except ValueError as error:
        problem = str(error)
    raise UserError(f"The image {clean(str(path))} {problem}. Nothing was run.")
