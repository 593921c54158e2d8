"""The chat-completions API: what is asked, and what its replies mean."""

from fanjoin.agent_proc.http import Http
from fanjoin.agent_proc.provider.chat_form import as_messages, as_thought
from fanjoin.agent_proc.provider.client import NO_TERMS, OnDelta, Terms
from fanjoin.agent_proc.provider.exchange import Exchange, place_of
from fanjoin.agent_proc.provider.failure import from_error_object
from fanjoin.agent_proc.provider.reading import Reading
from fanjoin.agent_proc.provider.refusals import Refusals
from fanjoin.agent_proc.provider.reply import Reply, count, object_of, objects_of, text_of
from fanjoin.agent_proc.structured import named
from fanjoin.ipc.messages import JsonObject, Usage
from fanjoin.ipc.settings import Endpoint

_LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
"""Newer models of OpenAI know only the second one, most other servers only the first."""
_FINISHES = {
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    **dict.fromkeys(("content-filter", "safety", "sensitive", "prohibited_content", "blocklist"), "content_filter"),
    **dict.fromkeys(("eos", "eos_token", "end_turn", "stop_sequence", "complete"), "stop"),
    **dict.fromkeys(("insufficient_system_resource", "network_error", "abort"), "error"),
    "null": "",
    "none": "",
}
"""What some servers say, and the word that it stands for."""


class ChatCompletions:
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
        self.refusals = refusals or Refusals()
        headers = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        url = place_of(endpoint.base_url, "/chat/completions")
        self._exchange = Exchange(http, url, endpoint.api_key, headers, self.refusals)

    def complete(self, messages: list[JsonObject], tools: list[JsonObject], on_delta: OnDelta) -> Reply:
        """Return the model's reply to the messages.

        Raises:
            ProviderError: the call failed; the key is masked in its message.
        """
        return self._exchange.ask(
            lambda refused: self._question(messages, tools, refused), lambda: ChatReading(on_delta)
        )

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    def _question(self, messages: list[JsonObject], tools: list[JsonObject], refused: frozenset[str]) -> JsonObject:
        body: JsonObject = {"model": self._endpoint.model, "messages": as_messages(messages)}
        if tools and "tools" not in refused:
            body |= {"tools": tools, "parallel_tool_calls": True}
        elif (
            self._terms.output_schema is not None
        ):  # beside tools, some servers would answer at once instead of calling any
            body["response_format"] = {"type": "json_schema", "json_schema": named(self._terms.output_schema)}
        if self._endpoint.reasoning_effort:
            body["reasoning_effort"] = self._endpoint.reasoning_effort
        limit = next((name for name in _LIMIT_NAMES if name not in refused), None)
        if self._terms.max_output_tokens and limit:
            body[limit] = self._terms.max_output_tokens
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if "stream" in refused:
            del body["stream_options"]
        return {name: value for name, value in body.items() if name not in refused}


class ChatReading(Reading):
    """Reads one response."""

    def __init__(self, on_delta: OnDelta) -> None:
        super().__init__(on_delta)
        self._counted = False
        self._reasoning: list[str] | None = None
        self._details: list[JsonObject] = []

    @property
    def satisfied(self) -> bool:
        """Whether the last chunk has come: that of token counts alone. Some servers keep the connection open then."""
        return self.done or (self._counted and bool(self.reply.finish_reason))

    def event(self, value: JsonObject) -> None:
        """Take one event of a stream."""
        self._chunk(value, "delta")

    def plain(self, value: JsonObject) -> bool:
        """Take a whole reply; False when it is none of this format."""
        if not isinstance(value.get("choices"), list):
            return False
        self._chunk(value, "message")
        return True

    def close(self) -> None:
        """Keep what the server wants back with its tool calls."""
        extras = self.reply.call_extras
        thought = as_thought(self._reasoning, self._details, extras) if extras else None
        if thought is not None:
            self.reply.thoughts.append(thought)

    def _chunk(self, value: JsonObject, key: str) -> None:
        choice = next(iter(objects_of(value.get("choices"))), {})
        if choice.get("error"):
            raise from_error_object(choice)
        # Groq counts in a member of its own, Moonshot inside of the choice.
        usage = value.get("usage") or object_of(value.get("x_groq")).get("usage") or choice.get("usage")
        self._counted = self._usage(usage) and not choice
        self._message(object_of(choice.get(key) or choice.get("delta") or choice.get("message")))
        finish = text_of(choice.get("finish_reason")).lower()
        self.reply.finish_reason = _FINISHES.get(finish, finish) or self.reply.finish_reason

    def _message(self, message: JsonObject) -> None:
        self._think(message)
        for part in _parts(message.get("content")):
            thought = _text(part.get("thinking"))
            if thought:
                self.add_reasoning(thought)
            self.add_text(text_of(part.get("text")))
        refusal = text_of(message.get("refusal"))
        if refusal:
            self.reply.refusals.append(refusal)
        calls = objects_of(message.get("tool_calls"))
        for index, call in enumerate(calls):
            # Whole calls side by side carry no index of their own.
            self.reply.add_call(call if "index" in call or len(calls) == 1 else {**call, "index": index})

    def _think(self, message: JsonObject) -> None:
        details = objects_of(message.get("reasoning_details"))
        self._details += details
        content = message.get("reasoning_content")
        if isinstance(content, str):
            self._reasoning = self._reasoning or []
            self._reasoning.append(content)
        named = text_of(content) or text_of(message.get("reasoning"))
        thought = named or "".join(text_of(detail.get("text")) or text_of(detail.get("summary")) for detail in details)
        if thought:
            self.add_reasoning(thought)

    def _usage(self, value: object) -> bool:
        usage = read_usage(value)
        if usage is None:
            return False
        self.reply.usage = usage
        details = object_of(object_of(value).get("completion_tokens_details"))
        self.reply.reasoning_tokens = count(details.get("reasoning_tokens"))
        return True


def read_usage(value: object) -> Usage | None:
    """Return the token counts of a ``usage`` object of the chat-completions API, or None when there is none."""
    if not isinstance(value, dict):
        return None
    return Usage(
        input_tokens=count(value.get("prompt_tokens")),
        output_tokens=count(value.get("completion_tokens")),
        cached_tokens=count(_cached(value)),
    )


def _cached(usage: JsonObject) -> object:
    """Return the number of cached tokens; DeepSeek and Moonshot have names of their own for it."""
    details = object_of(usage.get("prompt_tokens_details"))
    return details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")


def _parts(content: object) -> list[JsonObject]:
    """Return the parts of a ``content``: a list of them, or a text."""
    return objects_of(content) if isinstance(content, list) else [{"text": content}]


def _text(content: object) -> str:
    """Return the text of a content; Mistral puts parts into its part for thoughts."""
    return "".join(text_of(part.get("text")) for part in _parts(content))
