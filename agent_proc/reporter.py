"""Tells the supervisor how the work moves: text as it comes, tools, token counts, entries of the conversation."""

import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.reply import Reply
from fanjoin.agent_proc.transcript import Transcript
from fanjoin.ipc.messages import JsonObject, Progress, ToolTrace
from fanjoin.ipc.text import head_and_tail

TEXT_SECONDS = 0.05
TEXT_CHARACTERS = 16_384
"""Text waits for so long, or for so many characters, before it is sent; the first of a reply is sent at once."""
SIGN_SECONDS = 5.0
"""How often a model that moves without saying anything (it thinks) is reported as moving."""
REASONING_CHARACTERS = 4_000
"""How much of what a model thought aloud is kept in the transcript, of each reply."""
_PIECE_CHARACTERS = 200_000


class Sender(Protocol):
    """Sends one message of the given kind."""

    def __call__(self, kind: type[msgspec.Struct], **fields: object) -> None:
        """Send it."""
        ...


class Reporter:
    """Reports progress, seldom enough that a fast model does not flood the supervisor.

    Args:
        send: sends a message.
        account: gets the text, and knows step and usage.
        transcript: gets what a person may want to read.
        keeps_messages: whether entries of the conversation are kept with the session (those of the root are).
        clock: seconds that only grow.
    """

    def __init__(
        self,
        send: Sender,
        account: Account,
        transcript: Transcript,
        *,
        keeps_messages: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.account = account
        self._send = send
        self._transcript = transcript
        self._keeps_messages = keeps_messages
        self._clock = clock
        self._waiting: list[str] = []
        self._size = 0
        self._sent_at = 0.0

    def begin_reply(self, before: str = "") -> None:
        """A new reply begins; ``before`` is text that it continues."""
        self.flush()
        self.account.begin_reply(before)
        self._sent_at = float("-inf")

    def text(self, delta: str) -> None:
        """Report a piece of text; an empty one is a mere sign of life."""
        if delta:
            self.account.say(delta)
            self._waiting.append(delta)
            self._size += len(delta)
        elapsed = self._clock() - self._sent_at
        if self._size >= TEXT_CHARACTERS or elapsed >= (TEXT_SECONDS if self._waiting else SIGN_SECONDS):
            self._send_text()

    def flush(self) -> None:
        """Send the text that waits."""
        if self._waiting:
            self._send_text()

    def begin_step(self) -> None:
        """Report the token counts so far: more will come. Those of the last step are a part of the result."""
        if self.account.steps:
            self._progress(usage=self.account.usage)

    def end_reply(self, reply: Reply) -> None:
        """Report what waits, and what is new about the endpoint; note what the model thought aloud."""
        self.flush()
        if reply.refused - self.account.refused:
            self.account.refused = reply.refused
            self._transcript.add("refused", parts=sorted(reply.refused))
            self._progress(refused=tuple(sorted(reply.refused)))
        if reply.reasoning or reply.reasoning_tokens:
            self._transcript.add(
                "reasoning",
                characters=len(reply.reasoning),
                tokens=reply.reasoning_tokens,
                text=head_and_tail(reply.reasoning, REASONING_CHARACTERS),
            )

    def tools_started(self, names: list[str]) -> None:
        """Report the tools that begin to run, and the token counts so far."""
        self._progress(tool_started=", ".join(names), usage=self.account.usage)

    def tool_ended(self, trace: ToolTrace) -> None:
        """Report a tool that ended."""
        self.account.trace.append(trace)
        self._progress(trace=[trace])

    def keep(self, messages: list[JsonObject]) -> None:
        """Report new entries of the conversation."""
        self._transcript.add_messages(messages)
        if self._keeps_messages:
            self._progress(messages=messages)

    def begin(self, messages: list[JsonObject]) -> None:
        """Note what the conversation begins with; the supervisor knows it."""
        self._transcript.add_messages(messages)

    def retrying(self, error: ProviderError, wait: float) -> None:
        """Note a model call that failed and is made again."""
        self._transcript.add(
            "retry", reason=error.reason, status=error.status, message=str(error), wait_seconds=round(wait, 3)
        )

    def shortened(self, results: int) -> None:
        """Note that so many tool results were shortened, because the conversation was too long for the model."""
        self._transcript.add("shortened", tool_results=results)

    def _send_text(self) -> None:
        text, self._waiting, self._size = "".join(self._waiting), [], 0
        for start in range(0, len(text) or 1, _PIECE_CHARACTERS):
            self._progress(delta=text[start : start + _PIECE_CHARACTERS])
        self._sent_at = self._clock()

    def _progress(self, **fields: object) -> None:
        self._send(Progress, step=self.account.steps, **fields)
