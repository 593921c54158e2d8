"""The tools that an agent runs in its own process. Delegation is not one of them: the supervisor answers it."""

import sys
import traceback
from collections.abc import Callable
from typing import Protocol

from fanjoin.agent_proc.calls import ToolError, read_arguments
from fanjoin.agent_proc.provider.reply import ToolCall
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clean


class Tool(Protocol):
    """One tool: its schema as the API wants it, and what it does."""

    @property
    def name(self) -> str:
        """Return the name that the model calls it by."""
        ...

    @property
    def schema(self) -> JsonObject:
        """Return its entry in the request's ``tools``."""
        ...

    def run(self, arguments: JsonObject) -> str:
        """Return the text of the tool message.

        Raises:
            ToolError: the model is told of it.
        """
        ...


class News(Protocol):
    """Something that the model is told without having asked, such as the end of a command in the background."""

    def news(self) -> list[str]:
        """Return what has come up."""
        ...

    def last_news(self) -> list[str]:
        """Return what has come up, after a wait for what is about to; the agent has its answer."""
        ...


class Toolbox:
    """The tools of one agent, by name.

    Args:
        tools: the tools.
        background: what goes on beside them, if anything can.
        notice: tells the user something.
    """

    def __init__(
        self, tools: list[Tool], background: News | None = None, notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._background = background
        self._notice = notice
        self._noticed: set[str] = set()

    @property
    def schemas(self) -> list[JsonObject]:
        """Return what the request's ``tools`` says of them."""
        return [tool.schema for tool in self._tools.values()]

    def run(self, call: ToolCall) -> str:
        """Return the answer to a call. Whatever a tool raises is an answer, too: one bad call ends no agent."""
        try:
            return clean(self._find(call.name).run(read_arguments(call.arguments)))
        except ToolError as error:
            self._tell_once(error.notice)
            return error.content()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            traceback.print_exc(file=sys.stderr)
            return ToolError("tool_error", f"{call.name} failed: {clean(str(error)) or type(error).__name__}").content()

    def news(self) -> list[str]:
        """Return what the model is to be told beside the answers to its calls."""
        return self._background.news() if self._background else []

    def last_news(self) -> list[str]:
        """Return the same when the model has its answer: after a wait for what is about to come."""
        return self._background.last_news() if self._background else []

    def _tell_once(self, notice: str) -> None:
        if notice and notice not in self._noticed:
            self._noticed.add(notice)
            self._notice(notice)

    def _find(self, name: str) -> Tool:
        if name not in self._tools:
            known = ", ".join(self._tools) or "none"
            raise ToolError("unknown_tool", f"there is no tool {name!r}; the tools are: {known}")
        return self._tools[name]
