"""Keeps ``<think>`` blocks at the beginning of an answer apart: what a model thinks is never its answer."""

import re

_OPEN = "<think>"
_CLOSE = "</think>"
_CLOSING_LINE = re.compile(r"^[ \t]*</think>[ \t]*$", re.MULTILINE)


def split_unopened(text: str) -> tuple[str, str]:
    """Return thoughts and answer of a text whose block was begun by the prompt, so that only its end is there.

    That end is a line of its own, and the only tag; everything else is an answer that speaks of tags.
    """
    found = _CLOSING_LINE.search(text)
    if found is None or _OPEN in text or text.count(_CLOSE) > 1:
        return "", text
    return text[: found.start()], text[found.end() :].lstrip()


class ThinkingFilter:
    """Passes on the text of an answer as it arrives, without the blocks that it may begin with.

    Attributes:
        thoughts: what the blocks held, in pieces.
    """

    def __init__(self) -> None:
        self.thoughts: list[str] = []
        self._passing = False
        self._held = ""
        self._inside = False
        self._left = False

    def feed(self, text: str) -> str:
        """Return what of the text, together with what was held back, belongs to the answer."""
        if self._passing or not text:
            return text
        self._held += text
        return self._leave() if self._inside else self._begin()

    def close(self) -> str:
        """Return what is held back and turned out to be the answer; a block that never ends is none."""
        self._passing = True
        held, self._held = self._held, ""
        if self._inside:
            self.thoughts.append(held)
            return ""
        return held.lstrip() if self._left else held

    def _begin(self) -> str:
        start = self._held.lstrip()
        if start.startswith(_OPEN):
            self._inside = True
            self._held = start[len(_OPEN) :]
            return self._leave()
        return "" if _OPEN.startswith(start) else self.close()

    def _leave(self) -> str:
        before, found, after = self._held.partition(_CLOSE)
        if not found:
            kept = len(_CLOSE)  # enough to see an end tag that is split
            self.thoughts.append(before[:-kept])
            self._held = before[-kept:]
            return ""
        self.thoughts.append(before)
        self._inside, self._left, self._held = False, True, after
        return self._begin()
