"""JSON-RPC 2.0 (pure): frames in, checked against the methods' structs; answers, errors and notifications out."""

import json
import re
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clean_tree

MAX_FRAME = 32 << 20
"""Bytes of one frame, either way."""
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
REFUSED = 4001
"""A request that was understood and not carried out; the message is the reason word."""

_KEYS = (re.compile(r"\$\.(\w+)"), re.compile(r"field `(\w+)`"))
_BAD = (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError)

Id = str | int | float | None
Params = TypeVar("Params", bound=Struct)


class Request(Struct, frozen=True):
    """A frame of a client. Without ``id`` nothing is answered."""

    method: str
    id: Id | UnsetType = UNSET
    params: Any = UNSET
    jsonrpc: str = "2.0"


class _Named(Struct):
    id: Id = None


class RpcError(Exception):
    """What a client is answered instead of a result."""

    def __init__(self, code: int, message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Refused(RpcError):  # noqa: N818 - the word of the protocol
    """The request is not carried out, for a reason that the protocol has a word for."""

    def __init__(self, reason: str, text: str, **data: object) -> None:
        super().__init__(REFUSED, reason, {"message": text, **data})


def read_request(frame: str | bytes) -> Request:
    """Return the request of a frame.

    Raises:
        RpcError: it is none.
    """
    if isinstance(frame, bytes):
        raise RpcError(INVALID_REQUEST, "Binary frames are not used; send JSON as text.")
    try:
        value = _json(frame)
    except _BAD as error:
        raise RpcError(PARSE_ERROR, f"The frame is not JSON: {error}") from error
    try:
        request = msgspec.convert(value, Request)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_REQUEST, f"The frame is not a request: {error}") from error
    if request.jsonrpc != "2.0":
        raise RpcError(INVALID_REQUEST, "Only JSON-RPC 2.0 is spoken here.")
    return request


def _json(frame: str) -> Any:
    try:
        return msgspec.json.decode(frame)
    except msgspec.DecodeError:
        if "\\u" not in frame:
            raise
        # A lone surrogate is no reason to refuse a text: it becomes the replacement character.
        return clean_tree(json.loads(frame, parse_constant=_no_number))


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def id_of(frame: str | bytes) -> Id:
    """Return the id of a frame that is not read otherwise, as far as it has one."""
    try:
        return msgspec.json.decode(frame, type=_Named).id
    except _BAD:
        return None


def read_params(request: Request, kind: type[Params]) -> Params:
    """Return the parameters of a method; types are not converted, and no key may be unknown.

    Raises:
        Refused: ``invalid_params``, with the name of the key.
    """
    try:
        return msgspec.convert({} if request.params in (UNSET, None) else request.params, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = next((match[1] for pattern in _KEYS if (match := pattern.search(text))), "params")
        raise Refused("invalid_params", f"{request.method}: {text}.", key=found) from error


def answer(request_id: Id, result: object) -> bytes:
    """Return the frame of a result; one that is too large becomes an error of the same id."""
    frame = msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result})
    return frame if len(frame) <= MAX_FRAME else error(request_id, too_large(len(frame)))


def error(request_id: Id, failure: RpcError) -> bytes:
    """Return the frame of an error."""
    told: JsonObject = {"code": failure.code, "message": failure.message}
    if failure.data:
        told["data"] = failure.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": told})


def too_large(size: int) -> Refused:
    """Return the error of a frame that is over the limit."""
    text = f"A frame of {size} bytes is over the limit of {MAX_FRAME}. Ask for, or send, less at once."
    return Refused("too_large", text, limit=MAX_FRAME)


def notification(kind: str, session_id: str, admission_id: str, sequence: int, payload: JsonObject) -> bytes:
    """Return the frame of an event."""
    params = {
        "type": kind,
        "session_id": session_id,
        "admission_id": admission_id,
        "sequence": sequence,
        "payload": payload,
    }
    return msgspec.json.encode({"jsonrpc": "2.0", "method": "event", "params": params})
