"""The Responses API of OpenAI: what is asked, and what its replies mean."""

from typing import Any

from fanjoin.agent_proc.http import Http
from fanjoin.agent_proc.provider.client import NO_TERMS, OnDelta, Terms
from fanjoin.agent_proc.provider.exchange import Exchange, place_of
from fanjoin.agent_proc.provider.failure import from_error_object
from fanjoin.agent_proc.provider.reading import Reading
from fanjoin.agent_proc.provider.refusals import Refusals
from fanjoin.agent_proc.provider.reply import Reply, count, object_of, objects_of, text_of
from fanjoin.agent_proc.provider.responses_form import as_input, as_instructions, as_tools
from fanjoin.agent_proc.structured import named
from fanjoin.ipc.messages import JsonObject, Usage
from fanjoin.ipc.settings import Endpoint

_CUT = {"max_output_tokens": "length", "max_tokens": "length"}


class Responses:
    """A client of one endpoint; implements ``ModelClient``. Nothing is stored at the server.

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
        url = place_of(endpoint.base_url, "/responses")
        self._exchange = Exchange(http, url, endpoint.api_key, headers, self.refusals)

    def complete(self, messages: list[JsonObject], tools: list[JsonObject], on_delta: OnDelta) -> Reply:
        """Return the model's reply to the messages.

        Raises:
            ProviderError: the call failed; the key is masked in its message.
        """
        return self._exchange.ask(
            lambda refused: self._question(messages, tools, refused), lambda: ResponseReading(on_delta)
        )

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    def _question(self, messages: list[JsonObject], tools: list[JsonObject], refused: frozenset[str]) -> JsonObject:
        body: JsonObject = {"model": self._endpoint.model, "input": as_input(messages), "store": False, "stream": True}
        instructions = as_instructions(messages)
        if instructions:
            body["instructions"] = instructions
        if tools and "tools" not in refused:
            body |= {"tools": as_tools(tools), "parallel_tool_calls": True}
        elif self._terms.output_schema is not None:  # as in the chat-completions API, not beside tools
            body["text"] = {"format": {"type": "json_schema", **named(self._terms.output_schema)}}
        effort = self._endpoint.reasoning_effort
        if effort:
            body["reasoning"] = {"effort": effort}
        if effort not in ("", "none"):
            # What the model thought has to be given back with its tool calls, and the server keeps nothing.
            body["include"] = ["reasoning.encrypted_content"]
        if self._terms.max_output_tokens:
            body["max_output_tokens"] = self._terms.max_output_tokens
        return {name: value for name, value in body.items() if name not in refused}


class ResponseReading(Reading):
    """Reads one response: output items by their index, each added, filled and done.

    The last event repeats everything. Whether a piece of it was heard before is judged by its kind alone, since
    servers give an item other ids and indexes in the end than while it was streamed.
    """

    def __init__(self, on_delta: OnDelta) -> None:
        super().__init__(on_delta)
        self._items: dict[Any, JsonObject] = {}
        self._heard: set[str] = set()

    def event(self, value: JsonObject) -> None:
        """Take one event of a stream."""
        key = value["output_index"] if "output_index" in value else value.get("item_id")
        delta = text_of(value.get("delta"))
        match value.get("type"):
            case "response.output_text.delta":
                self._heard.add("text")
                self.add_text(delta)
            case "response.refusal.delta":
                self._heard.add("refusal")
                self.reply.refusals.append(delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._heard.add("reasoning")
                self.add_reasoning(delta)
            case "response.output_item.added" | "response.output_item.done":
                self._items[key] = object_of(value.get("item"))
            case "response.function_call_arguments.delta":
                item = self._items.setdefault(key, {"type": "function_call"})
                item["arguments"] = text_of(item.get("arguments")) + delta
                self.add_text("")
            case "response.function_call_arguments.done":
                self._items.setdefault(key, {"type": "function_call"})["arguments"] = value.get("arguments")
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._end(object_of(value.get("response")))
            case "error":
                raise from_error_object(value)

    def plain(self, value: JsonObject) -> bool:
        """Take a whole reply; False when it is none of this format."""
        if not isinstance(value.get("output"), list):
            return False
        self._end(value)
        return True

    def close(self) -> None:
        """Take the items of a stream that ended without its last event."""
        if self.done and not self.reply.finish_reason:
            self._end({})

    def _end(self, response: JsonObject) -> None:
        """Take the last event, or a whole reply. It repeats all items; some servers leave them out there."""
        if response.get("error") or response.get("status") in ("failed", "cancelled"):
            raise from_error_object({"error": response.get("error") or f"the response {response.get('status')}"})
        items: dict[Any, JsonObject] = dict(enumerate(objects_of(response.get("output")))) or self._items
        for key, item in items.items():
            self._item(key, item)
        self._count(object_of(response.get("usage")))
        cut = text_of(object_of(response.get("incomplete_details")).get("reason"))
        calls = any(item.get("type") == "function_call" for item in items.values())
        self.reply.finish_reason = _CUT.get(cut, cut) or ("tool_calls" if calls else "stop")
        self.done = True

    def _item(self, key: object, item: JsonObject) -> None:
        match item.get("type"):
            case "function_call":
                function = {"name": item.get("name"), "arguments": item.get("arguments")}
                call_id = item.get("call_id") or item.get("id")
                self.reply.add_call({"index": key, "id": call_id, "function": function})
            case "reasoning":
                self._reasoning(item)
            case "message":
                for part in _parts(item.get("content")):
                    if "text" not in self._heard:
                        self.add_text(text_of(part.get("text")))
                    if "refusal" not in self._heard:
                        self.reply.refusals.append(text_of(part.get("refusal")))

    def _reasoning(self, item: JsonObject) -> None:
        if item.get("encrypted_content"):
            self.reply.thoughts.append({name: item[name] for name in item if name != "status"})
        if "reasoning" not in self._heard:
            for part in [*objects_of(item.get("summary")), *objects_of(item.get("content"))]:
                self.add_reasoning(text_of(part.get("text")))

    def _count(self, usage: JsonObject) -> None:
        self.reply.usage = Usage(
            input_tokens=count(usage.get("input_tokens")),
            output_tokens=count(usage.get("output_tokens")),
            cached_tokens=count(object_of(usage.get("input_tokens_details")).get("cached_tokens")),
        )
        details = object_of(usage.get("output_tokens_details"))
        self.reply.reasoning_tokens = count(details.get("reasoning_tokens"))


def _parts(content: object) -> list[JsonObject]:
    """Return the parts of a message; some servers send a text in their place."""
    return objects_of(content) if isinstance(content, list) else [{"text": content}]
