"""Keeps an agent from getting around the depth limit by starting a run of its own."""

from collections.abc import Mapping

from fanjoin.ipc.environment import DEPTH
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import TurnSettings


def refuse_below_an_agent(settings: TurnSettings, environ: Mapping[str, str]) -> None:
    """Refuse a run that an agent's tool or program starts, unless delegates may delegate that deep.

    Raises:
        UserError: they may not.
    """
    depth = environ.get(DEPTH, "")
    if depth.isdigit() and int(depth) + 1 > settings.limits.max_spawn_depth:
        raise UserError(
            f"This command was started by an agent at depth {depth}, and delegation.max_spawn_depth is "
            f"{settings.limits.max_spawn_depth}: it may not start a run of its own."
        )
