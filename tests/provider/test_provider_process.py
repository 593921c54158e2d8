import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from provider_support import SECONDS, Connect

from fanjoin.client.local_model import EmbeddedProvider, start_local_model, start_provider
from fanjoin.ipc.errors import RunError, UserError

COMMAND = (sys.executable, "-P", "-m", "fanjoin.cli.provider")


@contextmanager
def started(*flags: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Give a provider's process and its URL; it is killed when the test did not end it."""
    with subprocess.Popen([*COMMAND, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert ready["pid"] == process.pid
            yield process, ready["url"]
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="a process there cannot be sent a signal without a console")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(connect: Connect, number: int) -> None:
    """SIGINT and SIGTERM end the server with exit code 0, also while a request hangs."""
    with started() as (process, url):
        hanging = connect(url)
        hanging.connection.request(
            "POST", "/v1/chat/completions", b'{"messages": [{"role": "user", "content": "[[hang]]"}]}'
        )
        connect(url).text("[[answer it is there]]")
        os.kill(process.pid, number)
        assert process.wait(SECONDS) == 0


def test_the_lifeline_ends_it(connect: Connect) -> None:
    """With a lifeline the end of standard input is the end of the server; without one it is not."""
    with started("--lifeline") as (process, _), started() as (other, url):
        for each in (process, other):
            assert each.stdin is not None
            each.stdin.close()
        assert process.wait(SECONDS) == 0
        assert connect(url).text("[[answer still here]]") == "still here"
        assert other.poll() is None


def test_it_listens_on_loopback_only(plain_provider: EmbeddedProvider) -> None:
    """The only listening socket of a provider is on 127.0.0.1."""
    pid = plain_provider.pid
    listening = [one.laddr.ip for one in psutil.Process(pid).net_connections("inet") if one.status == "LISTEN"]
    assert listening == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--fault", "fire=1"), "'fire' is no fault"),
        (("--require-key-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE, which is empty or not set"),
        (("--plan", __file__), "cannot be read"),
        (("--latency", "-1"), "--latency"),
        (("--log", __file__ + "/no.jsonl"), "cannot be written"),
    ],
)
def test_wrong_flags_say_what_is_wrong(flags: tuple[str, ...], said: str) -> None:
    """Flags that cannot be followed end with exit code 2, which a caller gets as a UserError with the message."""
    with pytest.raises(UserError, match=said):
        start_provider(*flags)


def test_a_port_that_is_taken_is_named(plain_provider: EmbeddedProvider) -> None:
    """A port that another server has is one clear line, and no traceback."""
    port = plain_provider.url.split(":")[2].split("/")[0]
    with pytest.raises(RunError, match=f"127.0.0.1:{port} cannot be listened on") as error:
        start_provider("--port", port)
    assert "Traceback" not in str(error.value)


def test_missing_weights_say_what_to_do(tmp_path: Path) -> None:
    """A local model without its file ends with exit code 3 and one line, which the caller gets as a UserError."""
    missing = str(tmp_path / "none.gguf")
    ended = subprocess.run([*COMMAND, "--local", "--model-file", missing], capture_output=True, check=False)
    assert ended.returncode == 3
    assert ended.stdout == b""
    with pytest.raises(UserError, match="does not exist"):
        start_local_model(2, missing)


def test_a_provider_that_is_not_ready_in_time_is_ended() -> None:
    """A provider that says nothing within the time it is given is ended, and the caller is told."""
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(RunError, match="not ready in time"):
        start_provider(ready_seconds=0.001)
    assert {child.pid for child in psutil.Process().children()} <= before


def test_an_embedded_provider_ends_with_its_owner() -> None:
    """When the process that started a provider is killed, the provider ends by itself."""
    code = "from fanjoin.client.local_model import start_provider as s; p = s(); print(p.pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        provider = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
    deadline = time.monotonic() + SECONDS
    while provider.is_running() and provider.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider sees the home folder and no key of its starter's environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-children")
    monkeypatch.setenv("FANJOIN_HOME", "/somewhere")
    with start_provider() as provider:
        seen = psutil.Process(provider.pid).environ()
    assert "OPENAI_API_KEY" not in seen
    assert seen["FANJOIN_HOME"] == "/somewhere"


def test_it_is_ready_quickly(connect: Connect) -> None:
    """From its start to its first reply a provider takes well under two seconds, even on a busy machine."""
    began = time.monotonic()
    with start_provider() as provider:
        connect(provider.url).text("[[answer hi]]")
    assert time.monotonic() - began < 2
