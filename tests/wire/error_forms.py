"""Errors in the words of known servers, and the reason that each has to be taken for."""

from msgspec import Struct


class Refused(Struct, frozen=True, kw_only=True):
    """A reply that is an error: its status and bytes, its reason, and words that have to be told."""

    body: bytes
    status: int = 400
    reason: str = "bad_request"
    told: str


def _message(text: bytes, more: bytes = b"") -> bytes:
    return b'{"error":{"message":"' + text + b'"' + more + b"}}"


def _too_long(text: bytes, status: int = 400) -> Refused:
    return Refused(body=_message(text), status=status, reason="context_overflow", told=text.decode()[:30])


ERRORS: dict[str, Refused] = {
    "overflow, of Gemini": _too_long(b"The input token count (9) exceeds the maximum number of tokens allowed (8)."),
    "overflow, of Bedrock": _too_long(b"Input is too long for requested model."),
    "overflow, of xAI": _too_long(b"This model's maximum prompt length is 8 but the request contains 9 tokens."),
    "overflow, of Moonshot": _too_long(b"Invalid request: Your request exceeded model token limit: 8"),
    "overflow, of vLLM": _too_long(b"The prompt (length 9) is longer than the maximum model length of 8."),
    "overflow, of LiteLLM": _too_long(b"litellm.ContextWindowExceededError: it does not fit"),
    "overflow, of Anthropic": _too_long(b"input length and `max_tokens` exceed context limit: 9 + 1 > 8"),
    "overflow, of Zhipu": _too_long(b"Prompt exceeds max length"),
    "overflow, behind a router": Refused(
        body=_message(
            b"Provider returned error",
            b',"code":400,"metadata":{"raw":"{\\"error\\":{\\"message\\":\\"maximum context length is 8\\"}}"}',
        ),
        reason="context_overflow",
        told="Provider returned error maximum context length is 8",
    ),
    "in plain words behind a router": Refused(
        body=_message(b"Provider returned error", b',"code":429,"metadata":{"raw":"slow down, please"}'),
        status=429,
        reason="rate_limit",
        told="slow down, please",
    ),
    "as an object behind a router": Refused(
        body=_message(
            b"Provider returned error",
            b',"metadata":{"raw":{"error":{"code":"model_not_found","message":"no such model"}}}',
        ),
        reason="model_not_found",
        told="no such model",
    ),
    "key, of Gemini": Refused(
        body=b'[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}]',
        reason="auth",
        told="API key not valid",
    ),
    "model, of OpenRouter": Refused(
        body=_message(b"x is not a valid model ID"), reason="model_not_found", told="not a valid model ID"
    ),
    "model, of DeepSeek": Refused(body=_message(b"Model Not Exist"), reason="model_not_found", told="Not Exist"),
    "model, of Mistral": Refused(
        body=b'{"object":"error","message":"Invalid model: x","type":"invalid_model","code":"1500"}',
        reason="model_not_found",
        told="Invalid model: x",
    ),
    "model, of Groq": Refused(
        body=_message(b"It is gone.", b',"code":"model_decommissioned"'), reason="model_not_found", told="It is gone"
    ),
    "place, of LM Studio": Refused(
        body=b'{"error":"Unexpected endpoint or method. (POST /chat/completions)"}',
        status=200,
        told="Unexpected endpoint",
    ),
}

STREAMED: dict[str, Refused] = {
    "the field error, of llama.cpp": Refused(
        body=b'error: {"code":400,"message":"the request exceeds the available context size","type":"x"}\n\n'
        b"data: [DONE]\n\n",
        reason="context_overflow",
        told="available context size",
    ),
    "a body without a frame": Refused(
        body=b'{"error":{"code":400,"message":"it exceeds the available context size","n_ctx":8}}',
        reason="context_overflow",
        told="available context size",
    ),
    "a number at the choice": Refused(
        body=b'data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error",'
        b'"error":{"code":502,"message":"Upstream idle timeout exceeded"}}]}\n\n',
        reason="server_error",
        told="Upstream idle timeout",
    ),
    "resources, of DeepSeek": Refused(
        body=b'data: {"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}\n\n',
        reason="server_error",
        told="ended its answer with an error",
    ),
    "a filter, of Zhipu": Refused(
        body=b'data: {"choices":[{"delta":{},"finish_reason":"sensitive"}]}\n\n',
        reason="content_filter",
        told="content filter",
    ),
}
