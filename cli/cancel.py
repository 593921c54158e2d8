"""``fanjoin cancel``: end a delegate, a call or a turn of whatever supervisor it belongs to."""

import os

import click

from fanjoin.cli.printing import print_text
from fanjoin.client.cancelling import cancel
from fanjoin.ipc.paths import home_from


@click.command("cancel")
@click.argument("target", metavar="ID")
def cancel_command(target: str) -> None:
    """End the delegate (d_...), every delegate of the call (c_...) or the turn (t_...); a unique beginning will do.

    What is ended gets its receipt like everything else, and whoever waits for it goes on.
    """
    print_text(f"{cancel(home_from(os.environ), target)} is being cancelled.")
