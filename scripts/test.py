"""Install everything that the tests need into .venv, then run pytest with the given arguments.

Most tests wait for processes more than they compute, so several run side by side; ``-n 0`` runs one after the other.
"""

import os
import sys

import _env

if __name__ == "__main__":
    python = _env.development()
    os.chdir(_env.ROOT)
    # -P: this folder holds packages whose names (cli, ipc) must not be importable as they are.
    _env.become([python, "-P", "-m", "pytest", "-n", "3", *sys.argv[1:]])
