"""Keys: each goes to its own server, and stands in no argument list, no environment and no file."""

import hashlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from run_support import Home, Provider, delegate_plan, wait_until

ROOT_KEY = "root-key-3d1c5a9e7b2f4460"
DELEGATE_KEY = "delegate-key-8f20b6d47c9a1e35"
KEYS = {"ROOT_KEY": ROOT_KEY, "DELEGATE_KEY": DELEGATE_KEY}


@pytest.fixture
def strict_home(tmp_path: Path) -> Iterator[Home]:
    """Return a home whose root model accepts ROOT_KEY alone."""
    provider = Provider(tmp_path / "root.jsonl", "--require-key-env", "ROOT_KEY", env=KEYS)
    home = Home(tmp_path / "home", provider)
    yield home
    for process in home.processes():
        process.kill()
    provider.close()


@pytest.fixture
def delegates_provider(tmp_path: Path) -> Iterator[Provider]:
    """Return a provider that accepts DELEGATE_KEY alone."""
    provider = Provider(tmp_path / "delegates.jsonl", "--require-key-env", "DELEGATE_KEY", env=KEYS)
    yield provider
    provider.close()


def test_each_server_sees_only_its_own_key_and_nothing_else_holds_one(
    strict_home: Home, delegates_provider: Provider
) -> None:
    """While delegates wait and after the run: no process but the command has a key, and no file under the home."""
    home = strict_home
    home.config(f"delegation: {{model: small, base_url: '{delegates_provider.url}', api_key_env: DELEGATE_KEY}}")
    query = delegate_plan("[[hold 3 name=gate]] a", "[[hold 3 name=gate]] b", "[[status 401]] c")
    process = home.start(query, "--api-key-env", "ROOT_KEY", "--format", "json", env=KEYS)
    wait_until(lambda: len(delegates_provider.requests()) == 3, "requests of the delegates")
    _check_processes(home, process.pid)
    _check_files(home.path)
    _ask(delegates_provider, "[[hold 3 name=gate]]")
    out, err = process.communicate(timeout=30)
    home.check_nothing_left()
    assert process.returncode == 0
    assert [entry["status"] for entry in json.loads(out)["results"]] == ["completed", "completed", "failed"]
    _check_files(home.path)
    assert not any(key.encode() in out + err for key in KEYS.values())
    assert _keys_seen(home.provider) == {_digest(ROOT_KEY)}
    assert _keys_seen(delegates_provider) == {_digest(DELEGATE_KEY)}


def test_keys_from_the_environment_alone_stay_out_of_everything(strict_home: Home) -> None:
    """``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``: root and delegates use the key, nothing writes it down."""
    home = strict_home
    environ = {"OPENAI_BASE_URL": home.provider.url, "OPENAI_API_KEY": ROOT_KEY, "DATABASE_URL": "secret-database-url"}
    process = _start_plain(home, delegate_plan(f"[[hold 2 name=gate]] {ROOT_KEY[:8]}"), environ)
    wait_until(lambda: len(home.provider.requests()) == 2, "request of the delegate")
    _check_processes(home, process.pid, "secret-database-url")
    _ask(home.provider, "[[hold 2 name=gate]]", ROOT_KEY)
    out, err = process.communicate(timeout=30)
    home.check_nothing_left()
    assert process.returncode == 0, err
    assert out.startswith(b"1 of 1 delegate completed.")
    _check_files(home.path)
    assert _keys_seen(home.provider) == {_digest(ROOT_KEY)}


def test_a_refused_key_is_told_without_being_shown(strict_home: Home) -> None:
    """A wrong key: exit 1, reason auth, one try, and neither the message nor any file shows the key."""
    wrong = "wrong-key-77aa0c"
    done = strict_home.chat("Hello.", "--api-key-env", "WRONG", "--format", "json", env={"WRONG": wrong})
    result = json.loads(done.stdout)
    assert (done.returncode, result["error"]["reason"], result["results"]) == (1, "auth", [])
    assert len(strict_home.provider.requests()) == 1
    assert wrong.encode() not in done.stdout + done.stderr
    _check_files(strict_home.path, wrong)


def _start_plain(home: Home, query: str, environ: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a run that learns its endpoint from the environment alone."""
    return subprocess.Popen(
        home.command("chat", "-Q", "-m", "synthetic", "-q", query),
        env={**home.env, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _keys_seen(provider: Provider) -> set[str]:
    return {request["key_sha256"] for request in provider.requests()}


def _ask(provider: Provider, text: str, key: str = DELEGATE_KEY) -> None:
    """Ask a provider from the test itself."""
    body = json.dumps({"model": "small", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{provider.url}/chat/completions", body, headers)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310
        assert reply.status == 200


def _check_processes(home: Home, command: int, *more: str) -> None:
    """Check every process of the run; the command itself was given its environment by its caller."""
    processes = home.processes()
    assert len(processes) >= 4
    for process in processes:
        try:
            shown = " ".join(process.cmdline())
            shown += _environment(process) if process.pid != command else ""
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue  # a delegate that has ended meanwhile
        assert not [secret for secret in (*KEYS.values(), *more) if secret in shown], process


def _environment(process: psutil.Process) -> str:
    """Return all that others can read of a process's environment: on Linux the very bytes."""
    if sys.platform == "linux":
        return Path(f"/proc/{process.pid}/environ").read_bytes().decode("utf-8", "replace")
    return json.dumps(process.environ())


def _check_files(folder: Path, *more: str) -> None:
    """Check that no file below the folder holds a key, whatever kind of file it is."""
    seen = 0
    for parent, _, names in os.walk(folder):
        for path in (Path(parent) / name for name in names):
            if path.is_file():
                data = path.read_bytes()
                seen += len(data)
                assert not [secret for secret in (*KEYS.values(), *more) if secret.encode() in data], path
    assert seen > 10_000
