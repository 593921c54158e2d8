"""``docs/protocol.md`` speaks of every message, with each of its fields."""

import re
from pathlib import Path
from typing import get_args

import pytest
from msgspec import Struct

from fanjoin.ipc.bootstrap import AgentBootstrap, CoreBootstrap, CoreReady
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.messages import (
    AgentTask,
    CallAnswer,
    CallRequest,
    DirectTask,
    FromAgent,
    FromViewer,
    Outcome,
    TaskSpec,
    ToAgent,
    ToViewer,
)
from fanjoin.ipc.settings import Worker

DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
MESSAGES = [kind for union in (FromAgent, ToAgent, FromViewer, ToViewer) for kind in get_args(union)]
PARTS = [AgentTask, CallAnswer, CallRequest, DirectTask, Endpoints, Outcome, TaskSpec, Worker]


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_each_message_has_its_row_with_its_fields(kind: type[Struct]) -> None:
    """Exactly the fields of the struct, in its order; ``run_id`` and ``attempt_id`` are said once for all agents."""
    rows = re.findall(rf"^\| `{kind.__struct_config__.tag}` \| (.*?) \|", DOCUMENT, re.MULTILINE)
    fields = [name for name in kind.__struct_fields__ if name not in {"run_id", "attempt_id"}]
    assert [re.findall(r"`(\w+)`", row) for row in rows] == [fields]


@pytest.mark.parametrize("kind", [AgentBootstrap, CoreBootstrap, CoreReady], ids=lambda kind: kind.__name__)
def test_each_first_frame_has_its_row_with_its_fields(kind: type[Struct]) -> None:
    """The frames on standard input, too."""
    (row,) = re.findall(rf"^\| `{kind.__name__}`.*", DOCUMENT, re.MULTILINE)
    assert set(kind.__struct_fields__) <= set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_the_parts_of_messages_are_named(kind: type[Struct]) -> None:
    """Every field of what messages are made of appears."""
    assert set(kind.__struct_fields__) <= set(re.findall(r"`(\w+)`", DOCUMENT))
