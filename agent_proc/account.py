"""What an agent has to show at any moment: written by its loop, read by the thread that may have to end it."""

from fanjoin.agent_proc import jsontext
from fanjoin.ipc.messages import JsonObject, Outcome, ToolTrace, Usage
from fanjoin.ipc.text import head_and_tail


class Account:
    """The running account of one agent.

    Each change is one assignment or one append, so that a reader in another thread never sees half of one.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.usage = Usage()
        self.trace: list[ToolTrace] = []
        self.partial_limit = 24_000
        self.budget = ""
        """Which budget of the whole run is used up, as told by the supervisor."""
        self.refused: frozenset[str] = frozenset()
        """Parts of requests that the endpoint refuses, as far as the supervisor knows."""
        self._said: list[str] = []
        self._aside: list[str] = []
        self._open_calls: JsonObject | None = None

    def begin_reply(self, before: str = "") -> None:
        """A new reply begins: keep aside what was said so far. ``before`` is earlier text that it continues."""
        if self._said:
            self._aside = self._said
        self._said = [before] if before else []

    def say(self, text: str) -> None:
        """Add a piece of the reply's text."""
        self._said.append(text)

    def open_calls(self, assistant: JsonObject) -> None:
        """Note an assistant message whose tool calls begin to run."""
        self._open_calls = assistant

    def close_calls(self) -> None:
        """Note that each of them has its answer."""
        self._open_calls = None

    def interrupted(self) -> list[JsonObject]:
        """Return the conversation's entries for calls that run right now: history must answer every call."""
        assistant = self._open_calls
        if assistant is None:
            return []
        text = "interrupted before it ended; whether it took effect is not known"
        content = jsontext.write({"error": {"reason": "interrupted", "message": text}})
        answers = [{"role": "tool", "tool_call_id": call["id"], "content": content} for call in assistant["tool_calls"]]
        return [assistant, *answers]

    def completed(self, text: str, message: str = "") -> Outcome:
        """Return the outcome of an answer."""
        return Outcome(
            status="completed", message=message, text=text, steps=self.steps, usage=self.usage, trace=list(self.trace)
        )

    def ended(self, status: str, reason: str, message: str) -> Outcome:
        """Return the outcome of an agent that has no answer, with what it had said."""
        return Outcome(
            status=status,
            reason=reason,
            message=message,
            partial_text=head_and_tail("".join(self._said or self._aside), self.partial_limit),
            steps=self.steps,
            usage=self.usage,
            trace=list(self.trace),
        )

    def out_of_memory(self) -> Outcome:
        """Return the outcome of an agent that may not allocate any more; its texts are given up for this one."""
        self._said, self._aside, self._open_calls = [], [], None
        return self.ended("crashed", "out_of_memory", "The agent's process had no memory left.")
