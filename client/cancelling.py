"""Cancel what runs under a home: found in the records, asked for at the supervisor that owns it."""

import time
from pathlib import Path

import msgspec
from msgspec import Struct

from fanjoin.client.records import open_readonly
from fanjoin.client.viewer import Viewer
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.errors import RunError, UserError
from fanjoin.ipc.ids import REQUEST, TURN, new_id
from fanjoin.ipc.messages import CancelDelegate, CancelTurn, Ping, Refused, ToViewer
from fanjoin.ipc.paths import endpoints_file, instance_folder
from fanjoin.ipc.platform import is_locked

ANSWER_SECONDS = 10.0
_NAMES = 10
_OPEN = """
    SELECT receipt_id, delegation_id, admission_id, owner_id FROM delegations
    WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE receipts.receipt_id = delegations.receipt_id)
    UNION ALL
    SELECT '', '', admission_id, owner_id FROM session_admissions WHERE status IN ('queued', 'started')
"""


class _Target(Struct, frozen=True):
    """What is to be ended, and the supervisor that owns it."""

    target_id: str
    owner_id: str


def cancel(home: Path, prefix: str) -> str:
    """Ask for the end of what a unique beginning of an identifier names, and return its identifier.

    Raises:
        UserError: nothing that is queued or running has such a name, or more than one has.
        RunError: its supervisor is gone or does not answer.
    """
    target = _find(home, prefix)
    folder = instance_folder(home, target.owner_id)
    if not is_locked(folder / "lock"):
        raise RunError(
            f"The supervisor of {target.target_id} is gone: nothing of it runs any more. The next start under this "
            "home records that."
        )
    _ask(folder, target)
    return target.target_id


def _find(home: Path, prefix: str) -> _Target:
    with open_readonly(home) as connection:
        rows = connection.execute(_OPEN).fetchall() if connection is not None and prefix else []
    found = {_Target(name, row[3]) for row in rows for name in row[:3] if name.startswith(prefix) and "_" in prefix}
    exact = {target for target in found if target.target_id == prefix}
    if len(exact or found) == 1:
        return next(iter(exact or found))
    if not found:
        raise UserError(
            f"Nothing that is queued or running is called {prefix!r}: a delegate (d_...), a call (c_...) or a turn "
            "(t_...).\n`fanjoin ps` lists the delegates."
        )
    names = ", ".join(sorted(target.target_id for target in found)[:_NAMES])
    raise UserError(f"{prefix!r} is the beginning of more than one identifier: {names}.\nGive more of its letters.")


def _ask(folder: Path, target: _Target) -> None:
    try:
        endpoints = msgspec.json.decode(endpoints_file(folder).read_bytes(), type=Endpoints)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunError(f"The supervisor of {target.target_id} cannot be reached: {error}.") from error
    viewer = Viewer(endpoints, new_id("v_"))
    request_id = new_id(REQUEST)
    try:
        if target.target_id.startswith(TURN):
            viewer.send(CancelTurn(admission_id=target.target_id))
            viewer.send(Ping(request_id=request_id))  # a cancel of a turn has no answer of its own
        else:
            viewer.send(CancelDelegate(request_id=request_id, target_id=target.target_id))
        answer = _answer(viewer, target)
    finally:
        viewer.close()
    if isinstance(answer, Refused):
        raise RunError(f"{target.target_id} was not cancelled ({answer.reason}): {answer.message}")


def _answer(viewer: Viewer, target: _Target) -> ToViewer:
    deadline = time.monotonic() + ANSWER_SECONDS
    while (answer := viewer.receive()) is None:
        if time.monotonic() > deadline:
            raise RunError(f"The supervisor of {target.target_id} does not answer. Whether it was cancelled is open.")
        viewer.wait(1.0)
    return answer
