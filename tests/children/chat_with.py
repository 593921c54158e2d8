"""The command line with another agent entry: ``python chat_with.py ENTRY chat ...``; only a test can ask for that."""

import sys

import fanjoin.client.run
from fanjoin.cli.main import main

fanjoin.client.run.AGENT_ENTRY = sys.argv.pop(1)
main()
