"""A home folder, and the commands run in it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

GOAL = "Count\x1b[31m the words\nof every file: größe 🦉 " + "and so on " * 40

_NO_ENDPOINT = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}


class Home:
    """A home folder, and the commands run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, command: click.Command, *arguments: str, columns: int = 80) -> Result:
        """Run a command within this process."""
        environ = {
            "FANJOIN_HOME": str(self.folder),
            "COLUMNS": str(columns),
            "OPENAI_API_KEY": "",
            "OPENAI_BASE_URL": "",
        }
        return CliRunner().invoke(command, arguments, env=environ, catch_exceptions=False)

    def json(self, command: click.Command, *arguments: str) -> Any:
        """Return what a command prints as JSON."""
        result = self.run(command, *arguments, "--format", "json")
        assert result.exit_code == 0
        return json.loads(result.stdout)

    def process(self, target: str, *arguments: str, **environ: str) -> "subprocess.Popen[bytes]":
        """Start ``module:function`` as a program of its own, its standard output piped."""
        module, _, function = target.partition(":")
        return subprocess.Popen(
            [sys.executable, "-c", f"import {module} as m; m.{function}()", *arguments],
            env={**os.environ, "FANJOIN_HOME": str(self.folder), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
