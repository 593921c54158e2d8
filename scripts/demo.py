"""Install everything that the demo needs into .venv, then run ``fanjoin demo`` with the given arguments."""

import sys

import _env

if __name__ == "__main__":
    _env.become([_env.demonstration(), "-P", "-m", "fanjoin.cli", "demo", *sys.argv[1:]])
