"""The seam between the agent loop and a model: one call, whatever the wire format."""

import random
import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.reply import Reply
from fanjoin.agent_proc.provider.retry import LONGEST_WAIT, TRIES, asked_wait, wait_before
from fanjoin.ipc.messages import JsonObject

OnDelta = Callable[[str], None]
"""Takes each piece of the answer's text as it arrives; an empty one means that something else moved."""


class Terms(Struct, frozen=True, kw_only=True):
    """What all requests of an agent have in common.

    ``max_output_tokens`` is the limit of one reply, 0 leaves it to the server; ``output_schema`` is what the answer has
    to be valid against, if anything; ``shared_prefix`` is what the system prompts of sibling agents begin with.
    """

    max_output_tokens: int = 0
    output_schema: JsonObject | None = None
    shared_prefix: str = ""


NO_TERMS = Terms()


class ModelClient(Protocol):
    """Speaks one wire format with one endpoint."""

    def complete(self, messages: list[JsonObject], tools: list[JsonObject], on_delta: OnDelta) -> Reply:
        """Return the model's reply to the messages, which are in the form of the chat-completions API.

        Raises:
            ProviderError: the call failed; it may be worth another try.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def patiently(
    call: Callable[[], Reply],
    on_retry: Callable[[ProviderError, float], None],
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
    jitter: Callable[[], float] = random.random,
) -> Reply:
    """Make a model call, and repeat the identical one when its failure is worth it.

    Args:
        call: makes the call once.
        on_retry: is told of each failure that is tried again, and of the seconds until then.
        sleep: waits for so many seconds.
        now: the time of day in Unix seconds.
        jitter: a number from 0 to 1.

    Raises:
        ProviderError: the last failure.
    """
    for next_try in range(2, TRIES + 1):
        try:
            return call()
        except ProviderError as error:
            if not error.retryable:
                raise
            asked = asked_wait(error.retry_after, now())
            if asked is not None and asked > LONGEST_WAIT:
                raise _too_long(error, asked) from error
            wait = wait_before(next_try, asked, jitter)
            on_retry(error, wait)
            sleep(wait)
    return call()


def _too_long(error: ProviderError, asked: float) -> ProviderError:
    text = f"{error} It asks to wait {asked:.0f} s, longer than the {LONGEST_WAIT:.0f} s that one step waits."
    return ProviderError(error.reason, text, retryable=False)
