"""Which client speaks an endpoint's wire format. Formats that a run does not use cost it nothing."""

from fanjoin.agent_proc.http import Http
from fanjoin.agent_proc.prompt import shared_prefix
from fanjoin.agent_proc.provider.client import ModelClient, Terms
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.refusals import Refusals
from fanjoin.ipc.messages import AgentTask
from fanjoin.ipc.settings import Endpoint


def open_client(endpoint: Endpoint, task: AgentTask) -> ModelClient:
    """Return a client that speaks the endpoint's wire format.

    Raises:
        ProviderError: the format or the URL is not one that we know.
    """
    refusals = Refusals(frozenset(task.refused))
    terms = Terms(
        max_output_tokens=task.model_limits.max_output_tokens,
        output_schema=task.output_schema,
        shared_prefix=shared_prefix(task),
    )
    match endpoint.api_mode:
        case "chat_completions":
            from fanjoin.agent_proc.provider.chat_completions import ChatCompletions

            return ChatCompletions(endpoint, _http(endpoint, task), refusals, terms)
        case "anthropic_messages":
            from fanjoin.agent_proc.provider.anthropic_messages import AnthropicMessages

            return AnthropicMessages(endpoint, _http(endpoint, task), refusals, terms)
        case "responses":
            from fanjoin.agent_proc.provider.responses import Responses

            return Responses(endpoint, _http(endpoint, task), refusals, terms)
    known = "chat_completions, anthropic_messages or responses"
    raise ProviderError("bad_request", f"The api_mode {endpoint.api_mode!r} is not known; use {known}.")


def _http(endpoint: Endpoint, task: AgentTask) -> Http:
    return Http(endpoint.base_url, task.model_limits)
