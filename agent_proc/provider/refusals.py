"""What a server refuses of a request that is good otherwise: learnt once per endpoint, and gone on without.

Only parts that a request can do without are given up. A refusal is recognised by what the server says: its error
names the part, and one of the words that servers use for what they do not know.
"""

import re

from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.ipc.messages import JsonObject

TOOLS = "tools"
_DISPENSABLE = (
    *("stream_options", "parallel_tool_calls", "max_tokens", "max_completion_tokens", "include", "thinking"),
    *("response_format", "output_config", "text", "stream", TOOLS),
)
"""From the most to the least telling name, so that ``stream_options`` is not taken for ``stream``."""
_STATUSES = frozenset({400, 404, 422, 500, 501})
_NEVER = frozenset({"context_overflow", "auth", "billing", "content_filter", "rate_limit"})
_COMPLAINT = re.compile(
    r"unsupported|not? (?:be )?support|n't support|found that support|not implemented|requires|must be verified"
    r"|unknown|unrecogni[sz]ed|unexpected|unavailable|not permitted|not allowed"
    r"|extra_forbidden|extra fields|additional ?propert|invalid schema|failed to parse grammar"
)
_PLAIN_COMPLAINT = re.compile(r"unsupported|not? (?:be )?support|n't support|not implemented|requires")
"""What counts when the server calls it an error of its own, which may be about anything."""
_FORM = re.compile(r"response.?(?:format|schema)|output_config|text\.format|json.?schema|structured|grammar")
_NAMED = {
    "stream": re.compile(r"\bstream(?:ing)?\b"),
    TOOLS: re.compile(r"\btools?\b(?!\[)|function calling|tool[ _]choice"),
    "response_format": _FORM,
    "output_config": _FORM,
    "text": _FORM,
    "include": re.compile(r"encrypted.content|parameter:? '?include"),
}
_SERVER_SIDE = 500


class Refusals:
    """The parts of a request that one endpoint refused so far.

    Args:
        known: what was learnt of the endpoint before.
    """

    def __init__(self, known: frozenset[str] = frozenset()) -> None:
        self.known = known

    def learn(self, error: ProviderError, body: JsonObject) -> str:
        """Return the part of a refused request that is left out from now on, empty when it was refused as a whole."""
        complaint = _COMPLAINT if error.status < _SERVER_SIDE else _PLAIN_COMPLAINT
        if error.status not in _STATUSES or error.reason in _NEVER or not complaint.search(error.words):
            return ""
        for part in _DISPENSABLE:
            if part in body and part not in self.known and _is_named(part, error.words):
                self.known |= {part}
                return part
        return ""


def _is_named(part: str, words: str) -> bool:
    pattern = _NAMED.get(part)
    return bool(pattern.search(words)) if pattern else part in words
