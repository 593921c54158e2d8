"""``python -m fanjoin.cli.provider``: an embedded provider as a process of its own."""

from fanjoin.cli.provider.command import provider_command

provider_command(prog_name="fanjoin provider")
