"""How much of a call's results goes to its parent (pure): many long answers must not overflow its context.

The rule: the texts of all children of a call share ``delegation.max_result_chars``. Short ones are whole; the longer
ones are cut in the middle, all to the same length; where an ``output`` does not fit beside its text, it is left out.
Receipts and viewers have the entries uncut, and the whole text of an answer that is cut here lies in a file.
"""

import msgspec

from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import head_and_tail
from fanjoin.supervisor.core.model import Delegate

TRACE_ENTRIES = 400
"""Tool calls that are shown over all children of a call, the last ones of each."""
_TEXTS = ("summary", "partial_text")


def share(budget: int, children: int) -> int:
    """Return the characters that every child of a call may use in any case."""
    return max(1, budget // max(1, children))


def fitted(delegates: list[Delegate], budget: int) -> list[JsonObject]:
    """Return the entries of a call's children as their parent gets them."""
    level = _level([_size(delegate.entry) for delegate in delegates], budget)
    traces = max(5, TRACE_ENTRIES // max(1, len(delegates)))
    return [_with_last_tools(_cut(delegate, level), traces) for delegate in delegates]


def _level(sizes: list[int], budget: int) -> int:
    """Return the length that no text may exceed so that all of them together fit."""
    left, level = budget, budget
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        level = share(left, count)
        if size > level:
            return level
        left -= size
    return max(level, max(sizes, default=0))


def _size(entry: JsonObject) -> int:
    output = entry.get("output")
    texts = sum(len(entry.get(name) or "") for name in _TEXTS)
    return texts + (0 if output is None else len(msgspec.json.encode(output)))


def _cut(delegate: Delegate, level: int) -> JsonObject:
    entry = delegate.entry
    if _size(entry) <= level:
        return entry
    told = {**entry, **{name: head_and_tail(entry[name], level) for name in _TEXTS if entry.get(name)}}
    if entry.get("output") is not None:
        told |= {"output": None, "output_omitted": True}
    if told["summary"] != entry["summary"]:
        path = delegate.outcome.summary_path if delegate.outcome is not None else ""
        told |= {"summary_truncated": True, "summary_path": path}
    return told


def _with_last_tools(entry: JsonObject, most: int) -> JsonObject:
    trace = entry.get("tool_trace", [])
    if len(trace) <= most:
        return entry
    return {**entry, "tool_trace": trace[-most:], "tool_trace_omitted": len(trace) - most}
