"""The Messages API of Anthropic: what is asked, and what its replies mean."""

from fanjoin.agent_proc.http import Http
from fanjoin.agent_proc.provider.anthropic_form import as_conversation, as_system, as_tools
from fanjoin.agent_proc.provider.client import NO_TERMS, OnDelta, Terms
from fanjoin.agent_proc.provider.exchange import Exchange, place_of
from fanjoin.agent_proc.provider.failure import from_error_object
from fanjoin.agent_proc.provider.reading import Reading
from fanjoin.agent_proc.provider.refusals import Refusals
from fanjoin.agent_proc.provider.reply import Reply, count, object_of, objects_of, text_of
from fanjoin.ipc.messages import JsonObject, Usage
from fanjoin.ipc.settings import Endpoint

MAX_TOKENS = 8192
"""The limit of one reply where none is configured: this API wants one."""
_VERSION = "2023-06-01"
_THINKING_TOKENS = {"low": 2048, "medium": 8192, "high": 24576}
_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
}


class AnthropicMessages:
    """A client of one endpoint; implements ``ModelClient``.

    Args:
        endpoint: the model and its key.
        http: the way to it.
        refusals: what the endpoint is known to refuse.
        terms: what its requests have in common.
    """

    def __init__(
        self, endpoint: Endpoint, http: Http, refusals: Refusals | None = None, terms: Terms = NO_TERMS
    ) -> None:
        self._endpoint = endpoint
        self._terms = terms
        self._limit = terms.max_output_tokens or MAX_TOKENS
        self.refusals = refusals or Refusals()
        headers = {"anthropic-version": _VERSION}
        if endpoint.api_key:
            headers["x-api-key"] = endpoint.api_key
        self._exchange = Exchange(http, _url(endpoint.base_url), endpoint.api_key, headers, self.refusals)

    def complete(self, messages: list[JsonObject], tools: list[JsonObject], on_delta: OnDelta) -> Reply:
        """Return the model's reply to the messages.

        Raises:
            ProviderError: the call failed; the key is masked in its message.
        """
        return self._exchange.ask(
            lambda refused: self._question(messages, tools, refused), lambda: MessageReading(on_delta)
        )

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    def _question(self, messages: list[JsonObject], tools: list[JsonObject], refused: frozenset[str]) -> JsonObject:
        body: JsonObject = {"model": self._endpoint.model, "max_tokens": self._limit}
        system = as_system(messages, self._terms.shared_prefix)
        if system:
            body["system"] = system
        body["messages"] = as_conversation(messages)
        body |= self._thinking(refused)
        if tools and "tools" not in refused:
            body["tools"] = as_tools(tools)
        elif self._terms.output_schema is not None:  # as in the other APIs, not beside tools
            form = {"type": "json_schema", "schema": self._terms.output_schema}
            body["output_config"] = {**body.get("output_config", {}), "format": form}
        body["stream"] = True
        return {name: value for name, value in body.items() if name not in refused - {"thinking", "max_tokens"}}

    def _thinking(self, refused: frozenset[str]) -> JsonObject:
        """Return how hard to think. Newer models refuse a budget of tokens and take an effort instead."""
        effort = self._endpoint.reasoning_effort
        if effort not in _THINKING_TOKENS:
            return {}
        if "thinking" in refused:
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
        budget = _THINKING_TOKENS[effort]
        # The budget is a part of the limit, and the answer needs its own room.
        return {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": self._limit + budget}


def _url(base_url: str) -> str:
    """Return where messages go; as in the vendor's own clients, a base URL may end before or after ``/v1``."""
    is_versioned = base_url.rstrip("/").endswith(("/v1", "/messages"))
    return place_of(base_url, "/messages" if is_versioned else "/v1/messages")


class MessageReading(Reading):
    """Reads one response: content blocks by their index, each begun, added to and ended."""

    def __init__(self, on_delta: OnDelta) -> None:
        super().__init__(on_delta)
        self._thoughts: dict[int, JsonObject] = {}
        self._counts: JsonObject = {}

    def event(self, value: JsonObject) -> None:
        """Take one event of a stream."""
        index = count(value.get("index"))
        match value.get("type"):
            case "message_start":
                self._count(object_of(value.get("message")).get("usage"))
            case "content_block_start":
                self._begin(index, object_of(value.get("content_block")))
            case "content_block_delta":
                self._add(index, object_of(value.get("delta")))
            case "message_delta":
                self._count(value.get("usage"))
                self._end(object_of(value.get("delta")).get("stop_reason"))
            case "message_stop":
                self.done = True
            case "error":  # without an error object, or it would have been raised before
                raise from_error_object(value)

    def plain(self, value: JsonObject) -> bool:
        """Take a whole reply; False when it is none of this format."""
        content = value.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list):
            return False
        for index, block in enumerate(objects_of(content)):
            self._begin(index, block)
        self._count(value.get("usage"))
        self._end(value.get("stop_reason"))
        return True

    def _begin(self, index: int, block: JsonObject) -> None:
        match block.get("type"):
            case "text":
                self.add_text(text_of(block.get("text")))
            case "tool_use":
                # A stream begins a call with an empty input and sends its JSON in pieces.
                given = block.get("input") or None
                function = {"name": block.get("name"), "arguments": given}
                self.reply.add_call({"index": index, "id": block.get("id"), "function": function})
            case "thinking" | "redacted_thinking":
                self._thoughts[index] = dict(block)
                self.reply.thoughts = list(self._thoughts.values())
                self.add_reasoning(text_of(block.get("thinking")))

    def _add(self, index: int, delta: JsonObject) -> None:
        match delta.get("type"):
            case "text_delta":
                self.add_text(text_of(delta.get("text")))
            case "input_json_delta":
                self.reply.add_call({"index": index, "function": {"arguments": delta.get("partial_json")}})
                self.add_text("")
            case "thinking_delta":
                self._extend(index, "thinking", text_of(delta.get("thinking")))
                self.add_reasoning(text_of(delta.get("thinking")))
            case "signature_delta":
                self._extend(index, "signature", text_of(delta.get("signature")))

    def _extend(self, index: int, name: str, text: str) -> None:
        thought = self._thoughts.get(index)
        if thought is not None:
            thought[name] = text_of(thought.get(name)) + text

    def _end(self, reason: object) -> None:
        word = text_of(reason)
        self.reply.finish_reason = _FINISHES.get(word, word) or self.reply.finish_reason

    def _count(self, usage: object) -> None:
        """Take token counts; those of a stream's end replace those of its beginning, where there are any.

        Some servers know the input only at the beginning, others only at the end, and send 0 at the other place.
        """
        self._counts |= {name: number for name, number in object_of(usage).items() if number}
        read, written = (count(self._counts.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation"))
        self.reply.usage = Usage(
            input_tokens=count(self._counts.get("input_tokens")) + read + written,
            output_tokens=count(self._counts.get("output_tokens")),
            cached_tokens=read,
        )
