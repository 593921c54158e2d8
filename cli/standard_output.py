"""Standard output of a command that writes more than once: what becomes of it is noted, and never raised."""

from collections.abc import Callable

from fanjoin.cli import streams
from fanjoin.ipc.errors import RunError


class StandardOutput:
    """Standard output, until nobody reads it any more (``broken``) or it cannot be written (``problem``, too).

    Args:
        given_up: asked while a reader does not read: whether to wait for it no longer.
    """

    def __init__(self, given_up: Callable[[], bool]) -> None:
        self.broken = False
        self.problem = ""
        self._given_up = given_up

    def write(self, text: str) -> None:
        """Write a line, or several."""
        if self.broken:
            return
        try:
            self.broken = not streams.write_line(text, self._given_up)
        except RunError as error:
            self.broken, self.problem = True, str(error)
            streams.complain(self.problem)
