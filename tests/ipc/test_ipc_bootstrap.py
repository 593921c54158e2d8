"""The first frame on standard input, and how an entry is found."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden_samples import ENDPOINT, ENDPOINTS, FRAMES, WHO
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.ipc.agent_start import load_entry
from fanjoin.ipc.bootstrap import (
    AGENT_LIMIT,
    AgentBootstrap,
    CoreBootstrap,
    CoreReady,
    pack_frame,
    read_frame,
    write_frame,
)
from fanjoin.ipc.errors import BadFrameError

BOOTSTRAP = AgentBootstrap(**WHO, nonce="n", entry="m:f", depth=1, endpoints=ENDPOINTS, endpoint=ENDPOINT)
CHILDREN = Path(__file__).parents[1] / "children"


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_is_read_as_it_was_written(frame: AgentBootstrap | CoreBootstrap | CoreReady) -> None:
    """Each kind of first frame survives its pipe, and what follows it stays in the pipe."""
    stream = io.BytesIO()
    write_frame(stream, frame)
    stream.write(b"more")
    stream.seek(0)
    assert read_frame(stream, type(frame)) == frame
    assert stream.read() == b"more"


def test_a_stream_that_ends_before_it_began_is_no_error() -> None:
    """The other side went away: there is nothing to do."""
    assert read_frame(io.BytesIO(), AgentBootstrap) is None


@pytest.mark.parametrize("length", [1, 3, 4, 5, 60])
def test_a_cut_frame_is_refused(length: int) -> None:
    """In the length or in the body: it is said, and nothing starts."""
    with pytest.raises(BadFrameError, match="cut"):
        read_frame(io.BytesIO(pack_frame(BOOTSTRAP)[:length]), AgentBootstrap)


def test_a_length_over_the_limit_is_refused_unread() -> None:
    """Four bytes cannot make us allocate four gigabytes."""
    with pytest.raises(BadFrameError, match="too large"):
        read_frame(io.BytesIO(b"\xff\xff\xff\xff"), AgentBootstrap, AGENT_LIMIT)


@given(st.binary(max_size=60))
def test_a_frame_of_garbage_is_refused(body: bytes) -> None:
    """A right length in front of anything else is no bootstrap."""
    with pytest.raises(BadFrameError):
        read_frame(io.BytesIO(len(body).to_bytes(4, "big") + body), AgentBootstrap)


def test_an_agents_frame_fits_a_pipe() -> None:
    """What would not fit is refused by its writer, who must never wait for a child."""
    big = AgentBootstrap(**WHO, nonce="n" * AGENT_LIMIT, entry="m:f", depth=1, endpoints=ENDPOINTS, endpoint=ENDPOINT)
    with pytest.raises(BadFrameError, match="over the limit"):
        pack_frame(big, AGENT_LIMIT)


def test_a_bootstrap_shows_no_key_when_it_is_printed() -> None:
    """A traceback that holds it is no leak."""
    assert "sk-secret" not in repr(ENDPOINT.__class__(base_url="u", model="m", api_key="sk-secret"))


def test_an_entry_is_a_function_of_a_module_or_of_a_file(tmp_path: Path) -> None:
    """Both forms name the same kind of thing."""
    file = tmp_path / "an entry.py"
    file.write_text("def run(bootstrap, lifeline): return (bootstrap, lifeline)\n", encoding="utf-8")
    assert load_entry("os:getpid")() == os.getpid()  # type: ignore[call-arg]
    assert load_entry(f"{file}:run")(BOOTSTRAP, 3) == (BOOTSTRAP, 3)  # type: ignore[func-returns-value]


@pytest.mark.parametrize("name", ["no.such:run", "os:no_such", "/no/such.py:run"])
def test_an_entry_that_is_not_there_is_an_error(name: str) -> None:
    """It fails where it is looked for, not later."""
    with pytest.raises((ImportError, AttributeError, FileNotFoundError)):
        load_entry(name)


def test_a_fresh_process_runs_its_entry_with_its_marks_and_ends_with_its_pipe(tmp_path: Path) -> None:
    """The bootstrap comes on standard input, which is the lifeline from then on; the marks are in the environment."""
    entry = tmp_path / "entry.py"
    entry.write_text(
        "import os\n"
        "def run(bootstrap, lifeline):\n"
        "    print(bootstrap.attempt_id, os.environ['FANJOIN_ATTEMPT'], os.environ['FANJOIN_DEPTH'], flush=True)\n"
        "    print(os.read(0, 1), os.read(lifeline, 10), flush=True)\n",
        encoding="utf-8",
    )
    code = "from fanjoin.ipc.agent_start import main; main()"
    bootstrap = AgentBootstrap(**WHO, nonce="n", entry=f"{entry}:run", depth=2, endpoints=ENDPOINTS, endpoint=ENDPOINT)
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(pack_frame(bootstrap, AGENT_LIMIT))
        process.stdin.flush()
        assert process.stdout.readline().split() == [b"d_one.1", b"d_one.1", b"2"]
        process.stdin.close()
        assert process.stdout.readline().strip() == b"b'' b''"
        assert process.wait(20) == 0
