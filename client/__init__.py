"""The viewer's side as a library: find or start a supervisor, submit a turn, follow it to its joined end.

``delegate`` and ``adelegate`` run many tasks at once; a ``Delegator`` keeps one supervisor for many such calls.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fanjoin.client.api import Delegator, Results, adelegate, delegate
    from fanjoin.client.fan_out import Result
    from fanjoin.client.tasks import Task

__all__ = ["Delegator", "Result", "Results", "Task", "adelegate", "delegate"]

_HOMES = {"Result": "fan_out", "Task": "tasks"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: a command that starts has no time for what it does not use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'api')}"), name)
