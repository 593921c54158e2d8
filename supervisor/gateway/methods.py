"""What each method does: its parameters become a message to the supervisor, the answer becomes its result."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from msgspec import Struct, structs, to_builtins

from fanjoin.ipc.ids import REQUEST, new_id
from fanjoin.ipc.messages import Accepted, CancelDelegate, CancelTurn, JsonObject, Ping, Submit
from fanjoin.ipc.payload import payload_json
from fanjoin.ipc.session_messages import (
    CreateSession,
    DelegationList,
    Delegations,
    ListSessions,
    MessagePage,
    PromptReceipt,
    ReadMessages,
    ResolveUnknown,
    SessionInfo,
    SessionList,
    SessionSnapshot,
    Subscribe,
    TurnReceipt,
)
from fanjoin.ipc.text import clean
from fanjoin.supervisor.gateway import params as p
from fanjoin.supervisor.gateway import rpc
from fanjoin.supervisor.gateway.book import NOWHERE, Book
from fanjoin.supervisor.gateway.connection import Connection
from fanjoin.supervisor.gateway.pages import newest_page

Handler = Callable[[Connection, Any], Awaitable[object]]


class Methods:
    """The methods by their names.

    Args:
        about: what ``runtime.describe`` answers.
        book: the settings of sessions.
        instance_id: this supervisor.
    """

    def __init__(self, about: JsonObject, book: Book, instance_id: str) -> None:
        self._book = book
        self._instance_id = instance_id
        self._methods: dict[str, tuple[type[Struct], Handler]] = {
            "runtime.describe": (p.Params, self._describe),
            "ping": (p.Params, self._ping),
            "session.create": (p.CreateParams, self._create),
            "session.resume": (p.ResumeParams, self._resume),
            "session.list": (p.ListParams, self._list),
            "session.info": (p.SessionParams, self._info),
            "session.messages": (p.MessagesParams, self._messages),
            "session.interrupt": (p.SessionParams, self._interrupt),
            "prompt.submit": (p.SubmitParams, self._submit),
            "prompt.receipt": (p.PromptParams, self._receipt),
            "prompt.cancel": (p.PromptParams, self._cancel),
            "prompt.resolve_unknown": (p.ResolveParams, self._resolve_unknown),
            "delegation.list": (p.DelegationListParams, self._delegations),
            "delegation.cancel": (p.DelegationCancelParams, self._cancel_delegation),
        }
        self._about = {**about, "methods": list(self._methods)}

    async def call(self, viewer: Connection, request: rpc.Request) -> object:
        """Do what a request asks for and return its result.

        Raises:
            RpcError: it cannot be done.
        """
        if request.method not in self._methods:
            raise rpc.RpcError(rpc.METHOD_NOT_FOUND, f"There is no method {request.method[:100]!r}.")
        kind, handler = self._methods[request.method]
        return await handler(viewer, rpc.read_params(request, kind))

    async def _describe(self, _viewer: Connection, _params: p.Params) -> object:
        return self._about

    async def _ping(self, viewer: Connection, _params: p.Params) -> object:
        await viewer.ask(lambda request_id: Ping(request_id=request_id))
        return {"instance_id": self._instance_id}

    # --- sessions -------------------------------------------------------------------------------------------------

    async def _create(self, viewer: Connection, params: p.CreateParams) -> object:
        given = {name: value for name, value in structs.asdict(params).items() if value is not None}
        for name in ("request_id", "source", "title", "api_key"):
            given.pop(name, None)
        settings = self._book.frozen(given, params.api_key or "")
        fields = given | {"source": params.source, "title": params.title}
        answer = await viewer.ask_as(
            params.request_id or new_id(REQUEST),
            lambda request_id: CreateSession(
                request_id=request_id,
                fields=fields,
                settings=settings,
                source=params.source or "rpc",
                title=clean(params.title or ""),
            ),
        )
        snapshot = cast(SessionSnapshot, answer)
        self._book.note(snapshot.session_id, snapshot.settings, params.api_key or "")
        return _snapshot(snapshot)

    async def _resume(self, viewer: Connection, params: p.ResumeParams) -> object:
        known = await self._session(viewer, params.session_id)
        viewer.hold(known.session_id)
        try:
            answer = await viewer.ask(
                lambda request_id: Subscribe(
                    request_id=request_id,
                    session_id=known.session_id,
                    since=params.since or 0,
                    instance_id="" if params.since is None else params.instance_id or self._instance_id,
                    settings=self._book.own_settings(known.session_id, known.settings),
                )
            )
        finally:
            viewer.let_go(known.session_id)
        return _snapshot(cast(SessionSnapshot, answer))

    async def _list(self, viewer: Connection, params: p.ListParams) -> object:
        answer = await viewer.ask(lambda request_id: ListSessions(request_id=request_id, limit=params.limit))
        return {"sessions": cast(SessionList, answer).sessions}

    async def _info(self, viewer: Connection, params: p.SessionParams) -> object:
        return _snapshot(await self._session(viewer, params.session_id))

    async def _session(self, viewer: Connection, session_id: str) -> SessionSnapshot:
        answer = await viewer.ask(lambda request_id: SessionInfo(request_id=request_id, session_id=session_id))
        return cast(SessionSnapshot, answer)

    async def _messages(self, viewer: Connection, params: p.MessagesParams) -> object:
        answer = await viewer.ask(
            lambda request_id: ReadMessages(request_id=request_id, session_id=params.session_id, before=params.before)
        )
        page = cast(MessagePage, answer)
        messages, first = newest_page(page.messages, page.first)
        return {
            "session_id": page.session_id,
            "messages": messages,
            "first": first,
            "message_count": page.message_count,
        }

    async def _interrupt(self, viewer: Connection, params: p.SessionParams) -> object:
        session = await self._session(viewer, params.session_id)
        running = next((turn.admission_id for turn in session.turns if turn.status == "started"), None)
        if running is not None:
            viewer.say(CancelTurn(admission_id=running))
        return {"session_id": session.session_id, "admission_id": running}

    # --- turns ----------------------------------------------------------------------------------------------------

    async def _submit(self, viewer: Connection, params: p.SubmitParams) -> object:
        if not params.text.strip() and not params.images:
            raise rpc.Refused("invalid_params", "prompt.submit: there is neither a text nor an image.", key="text")
        session_id, settings = await self._settings_of(viewer, params.session_id)
        images = [to_builtins(image) for image in params.images]
        input_id = params.input_id or new_id(REQUEST)
        try:
            turn_settings = self._book.settings(session_id, settings, params.flags())
        except rpc.Refused:
            # What was admitted before is answered, whether or not it could run now: identity comes before settings.
            await self._stored(viewer, p.PromptParams(session_id=session_id, input_id=input_id))
            turn_settings = NOWHERE
        submit = Submit(
            request_id=input_id,
            session_id=session_id,
            text=clean(params.text),
            finite=params.finite,
            payload_json=payload_json(params.text, params.flags(), finite=params.finite, images=images),
            settings=turn_settings,
            source="rpc",
            images=[{name: value for name, value in image.items() if value is not None} for image in images],
            wait_if_held=True,
        )
        viewer.hold(session_id)
        try:
            accepted = cast(Accepted, await viewer.ask_as(input_id, lambda _: submit))
        finally:
            viewer.let_go(session_id)
        if accepted.outcome is None:
            viewer.own(accepted.admission_id)
        return {
            "admission_id": accepted.admission_id,
            "sequence": accepted.sequence,
            "status": accepted.status,
            "outcome": accepted.outcome,
            "session_id": accepted.session_id,
        }

    async def _settings_of(self, viewer: Connection, session_id: str) -> tuple[str, JsonObject]:
        """Return a session's name and its settings, which never change."""
        known = self._book.known(session_id)
        if known is not None:
            return session_id, known
        session = await self._session(viewer, session_id)
        self._book.note(session.session_id, session.settings)
        return session.session_id, session.settings

    async def _receipt(self, viewer: Connection, params: p.PromptParams) -> object:
        return _without_request(await self._stored(viewer, params))

    async def _stored(self, viewer: Connection, params: p.PromptParams) -> TurnReceipt:
        if not params.admission_id and not (params.session_id and params.input_id):
            text = "A turn is named by admission_id, or by session_id and input_id."
            raise rpc.Refused("invalid_params", text, key="admission_id")
        answer = await viewer.ask(
            lambda request_id: PromptReceipt(
                request_id=request_id,
                session_id="" if params.admission_id else params.session_id or "",
                input_id="" if params.admission_id else params.input_id or "",
                admission_id=params.admission_id or "",
            )
        )
        return cast(TurnReceipt, answer)

    async def _cancel(self, viewer: Connection, params: p.PromptParams) -> object:
        stored = await self._stored(viewer, params)
        if stored.status in {"queued", "started"}:
            viewer.say(CancelTurn(admission_id=stored.admission_id))
        return {"admission_id": stored.admission_id, "status": stored.status}

    async def _resolve_unknown(self, viewer: Connection, params: p.ResolveParams) -> object:
        session_id, _ = await self._settings_of(viewer, params.session_id)
        answer = await viewer.ask(
            lambda request_id: ResolveUnknown(
                request_id=request_id,
                session_id=session_id,
                retry=params.action == "retry",
                admission_id=params.admission_id or "",
            )
        )
        if isinstance(answer, Accepted):
            viewer.own(answer.admission_id)
            return {"session_id": session_id, "admission_id": answer.admission_id, "status": answer.status}
        return {"session_id": session_id, "admission_id": params.admission_id, "status": "terminal"}

    # --- delegates ------------------------------------------------------------------------------------------------

    async def _delegations(self, viewer: Connection, params: p.DelegationListParams) -> object:
        answer = await viewer.ask(
            lambda request_id: DelegationList(request_id=request_id, session_id=params.session_id or "")
        )
        return {"delegates": cast(Delegations, answer).delegates}

    async def _cancel_delegation(self, viewer: Connection, params: p.DelegationCancelParams) -> object:
        target = params.receipt_id or params.delegation_id
        if target is None or (params.receipt_id and params.delegation_id):
            raise rpc.Refused("invalid_params", "Give either receipt_id or delegation_id.", key="receipt_id")
        await viewer.ask(lambda request_id: CancelDelegate(request_id=request_id, target_id=target))
        return {"cancelled": target}


def _snapshot(snapshot: SessionSnapshot) -> JsonObject:
    messages, first = newest_page(snapshot.messages, snapshot.first)
    told = _without_request(snapshot) | {"messages": messages, "first": first}
    return told | {"stored_session_id": snapshot.session_id}


def _without_request(message: Struct) -> JsonObject:
    told: JsonObject = to_builtins(message)
    for name in ("request_id", "type"):
        told.pop(name, None)
    return told
