"""The parameters of every method, as structs that check them: no key but these, no type but these."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from fanjoin.ipc.payload import ImageName, TurnFlags

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Whole = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Tokens = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class Params(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters; those of the other methods are made from this."""


class CreateParams(Params, frozen=True, kw_only=True):
    """``session.create``. What is not given is left to the daemon's own configuration."""

    request_id: Name | None = None
    source: Name | None = None
    title: Annotated[str, Meta(max_length=1000)] | None = None
    model: Name | None = None
    provider: Name | None = None
    base_url: str | None = None
    api_key: str | None = None
    toolsets: list[str] | None = None
    cwd: str | None = None
    ignore_rules: bool | None = None
    reasoning: str | None = None
    max_turns: Whole | None = None


class ResumeParams(Params, frozen=True, kw_only=True):
    """``session.resume``: with ``since`` the events after that number of this instance (else the daemon's) follow."""

    session_id: Name
    since: Tokens | None = None
    instance_id: Name | None = None


class SessionParams(Params, frozen=True, kw_only=True):
    """``session.info`` and ``session.interrupt``."""

    session_id: Name


class ListParams(Params, frozen=True, kw_only=True):
    """``session.list``."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class MessagesParams(Params, frozen=True, kw_only=True):
    """``session.messages``: the part of the conversation that ends before message ``before``."""

    session_id: Name
    before: Tokens


class ImageParams(ImageName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An image of a submission; its bytes (base64) may be missing when they were sent before."""

    data: str | None = None


class SubmitParams(TurnFlags, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``prompt.submit``: what is said, and the flags of the turn."""

    session_id: Name
    text: str
    input_id: Name | None = None
    finite: bool = False
    images: tuple[ImageParams, ...] = ()
    max_turns: Whole | None = None
    deadline: Seconds | None = None
    max_tokens_total: Tokens | None = None

    def flags(self) -> TurnFlags:
        """Return the flags of the turn alone."""
        return TurnFlags(**{name: getattr(self, name) for name in TurnFlags.__struct_fields__})


class PromptParams(Params, frozen=True, kw_only=True):
    """``prompt.receipt`` and ``prompt.cancel``: a turn by its name, or by its session and input_id."""

    admission_id: Name | None = None
    session_id: Name | None = None
    input_id: Name | None = None


class ResolveParams(Params, frozen=True, kw_only=True):
    """``prompt.resolve_unknown``; without ``admission_id`` the oldest unknown turn is meant."""

    session_id: Name
    action: Literal["retry", "discard"]
    admission_id: Name | None = None


class DelegationListParams(Params, frozen=True, kw_only=True):
    """``delegation.list``."""

    session_id: Name | None = None


class DelegationCancelParams(Params, frozen=True, kw_only=True):
    """``delegation.cancel``: one delegate, or every delegate of one call."""

    receipt_id: Name | None = None
    delegation_id: Name | None = None
