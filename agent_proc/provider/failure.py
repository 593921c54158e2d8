"""What went wrong at a provider, as one reason word, the server's own message, and whether to try again.

Reasons: ``rate_limit``, ``auth``, ``billing``, ``bad_request``, ``model_not_found``, ``context_overflow``,
``server_error``, ``network``, ``invalid_response``, ``empty_response`` and ``content_filter``.
"""

import re
from typing import Any

from fanjoin.agent_proc import jsontext
from fanjoin.ipc.text import clean, clip

MESSAGE_CHARACTERS = 600
"""How much of a server's own words is kept."""

_RETRYABLE = frozenset({"rate_limit", "server_error", "network", "invalid_response"})
_BY_STATUS = {
    401: "auth",
    402: "billing",
    403: "auth",
    404: "model_not_found",
    408: "server_error",
    413: "context_overflow",
    429: "rate_limit",
}
_FAILING = range(300, 600)
_SERVER_SIDE = range(500, 600)
_OVERFLOW_STATUSES = frozenset({0, 400, 413, 422, 500})
_OVERFLOW = (
    *("context_length_exceeded", "exceed_context_size", "context length", "context window", "maximum context"),
    *("context size", "context limit", "contextwindowexceeded", "prompt is too long", "input is too long"),
    *("too many input tokens", "input token count", "model token limit", "maximum model length"),
    *("maximum prompt length", "exceeds max length"),
)
_BILLING_STATUSES = frozenset({0, 403, 429})
_BILLING = ("insufficient_quota", "billing", "insufficient credit", "insufficient balance")
_NO_CREDIT = "credit balance is too low"  # Anthropic says it with status 400
_RETRY_DELAY = re.compile(rb'"retryDelay":\s*"(\d+(?:\.\d+)?)s"')
"""How long Google asks to wait, in the body alone."""
_WORDS = (
    ("content_filter", ("content_filter", "content_policy", "content management policy")),
    ("model_not_found", ("model_not_found", "not_found_error", "invalid_model", "invalid model", "not a valid model")),
    ("model_not_found", ("model not exist", "model_decommissioned")),
    ("rate_limit", ("rate_limit", "rate limit", "too many requests")),
    ("server_error", ("overloaded_error", "api_error", "server_error")),
    ("auth", ("authentication", "invalid_api_key", "api key not valid", "permission_error")),
    ("context_overflow", ("request_too_large",)),
    ("bad_request", ("invalid_request", "invalid_prompt", "unexpected endpoint")),
)


class ProviderError(Exception):
    """A model call that failed.

    Attributes:
        reason: a word of the list above.
        retryable: whether the identical request may succeed later.
        retry_after: the server's Retry-After header as it came, or None.
        status: the HTTP status, 0 where there was none.
        words: what the server gave as the error of a request, in lower case: code, type, parameter, message.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after: str | None = None,
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retryable = reason in _RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after
        self.status = status
        self.words = ""


def from_status(status: int, body: bytes, retry_after: str | None) -> ProviderError:
    """Return the failure of a reply whose status is not 200."""
    text, words = _describe(_json(body), body)
    message = f"The provider answered HTTP {status}: {text}" if text else f"The provider answered HTTP {status}."
    delay = _RETRY_DELAY.search(body)
    wait = retry_after or (delay[1].decode() if delay else None)
    failure = ProviderError(_reason(status, words), message, retry_after=wait, status=status)
    failure.words = words
    return failure


def from_error_object(value: dict[str, Any]) -> ProviderError:
    """Return the failure that a server reports inside a reply of status 200."""
    text, words = _describe(value, b"")
    error = value.get("error") or value
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and code in _FAILING else 0
    message = f"The provider reported an error: {text or 'without a message'}"
    return ProviderError(_reason(status, words), message, status=status)


def _describe(value: object, body: bytes) -> tuple[str, str]:
    """Return the server's message, and all words of its error (lower case) to judge it by."""
    if isinstance(value, list) and value:
        value = value[0]  # some gateways wrap the object in a list
    if not isinstance(value, dict):
        text = _plain(body)
        return text, text.lower()
    error = value.get("error") or value
    if not isinstance(error, dict):
        error = {"message": error}
    message = next((_text(error[key]) for key in ("message", "detail") if error.get(key)), "")
    words = " ".join([*(_text(error.get(key) or "") for key in ("code", "type", "param")), message])
    upstream, more = _upstream(error.get("metadata"))
    text = " ".join(filter(None, (message or jsontext.write(value), upstream)))
    return clip(clean(text), MESSAGE_CHARACTERS), clean(f"{words} {more}".strip().lower())


def _upstream(metadata: object) -> tuple[str, str]:
    """Return the same of what the server behind a router said; the router itself only says that it failed."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not raw:
        return "", ""
    body = _text(raw).encode("utf-8", "replace")
    return _describe(_json(body), body)


def _json(body: bytes) -> object:
    """Return the value of a body, None when it is no JSON."""
    try:
        return jsontext.read(body)
    except ValueError:
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else jsontext.write(value)


def _plain(body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return "an HTML page, so the base URL may not be that of a model API"
    return clip(" ".join(text.split()), MESSAGE_CHARACTERS)


def _reason(status: int, words: str) -> str:
    if status in _OVERFLOW_STATUSES and any(sign in words for sign in _OVERFLOW):
        return "context_overflow"
    if _NO_CREDIT in words or (status in _BILLING_STATUSES and any(sign in words for sign in _BILLING)):
        return "billing"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status in _SERVER_SIDE:
        return "server_error"
    found = next((reason for reason, signs in _WORDS if any(sign in words for sign in signs)), "")
    return found or ("bad_request" if status else "server_error")
