"""``python -m fanjoin.cli``."""

from fanjoin.cli.main import main

main()
