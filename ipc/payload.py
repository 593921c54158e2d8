"""What a submission says, in the one form that is stored, compared and sent again.

``payload_json`` of an admission holds ``text``, ``finite``, ``images`` where there are some, and the block
``cli_turn_v1`` with the flags of the turn. The block's members and the rest together are what ``prompt.submit``
accepts. Neither a key nor an identity is in it, so that the same submission has the same bytes wherever it came from.
"""

import msgspec
from msgspec import Struct

from fanjoin.ipc.errors import UserError
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clean, clean_tree

BLOCK = "cli_turn_v1"
_FAN_OUT = (
    "It is a fan-out (fanjoin delegate), and only its caller has its tasks. Give it up (fanjoin sessions resolve "
    "--discard) and run the same command again with --resume: what was completed is not run again."
)


class TurnFlags(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The flags of one turn under their wire names; None is what was not given."""

    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    toolsets: list[str] | None = None
    allow: list[str] | None = None
    ignore_rules: bool | None = None
    reasoning: str | None = None
    max_turns: int | None = None
    deadline: float | None = None
    max_tokens_total: int | None = None
    cwd: str | None = None

    def as_flags(self) -> JsonObject:
        """Return the flags that were given, as the configuration takes them."""
        given = msgspec.to_builtins(self)
        return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


class ImageName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An image by what it is and by the SHA-256 of its bytes, in hexadecimal."""

    media_type: str
    sha256: str


class Payload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A submission as it was admitted."""

    text: str
    finite: bool
    images: list[ImageName] = []
    cli_turn_v1: TurnFlags = TurnFlags()


def payload_json(text: str, flags: TurnFlags, *, finite: bool, images: list[JsonObject] | None = None) -> str:
    """Return the stored form of a submission; of images only their names are kept."""
    stored: JsonObject = {"text": clean(text), "finite": finite}
    if images:
        stored["images"] = [{"media_type": image["media_type"], "sha256": image["sha256"]} for image in images]
    stored[BLOCK] = clean_tree(msgspec.to_builtins(flags))
    return msgspec.json.encode(stored).decode()


class _Kind(Struct, frozen=True):
    """What tells the submission of a fan-out from that of a turn with a root agent."""

    tasks: JsonObject | None = None


def read_payload(stored: str) -> Payload:
    """Return what a stored submission says.

    Raises:
        UserError: it is a fan-out, whose tasks are not kept with it: nothing could be run again.
        msgspec.ValidationError, msgspec.DecodeError: it is not one.
    """
    if msgspec.json.decode(stored, type=_Kind).tasks is not None:
        raise UserError(_FAN_OUT)
    return msgspec.json.decode(stored, type=Payload)
