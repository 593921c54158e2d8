"""``fanjoin loadtest`` as a command: real delegates, known latencies, and what it refuses."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from run_support import Home, wait_until

from fanjoin.cli.loadtest import is_loopback
from fanjoin.client.load_record import read_delegations


def loadtest(home: Home, tmp_path: Path, *flags: str) -> tuple[int, dict[str, Any], str]:
    """Run it and return its exit code, its figures and its text."""
    file = tmp_path / "figures.json"
    done = home.other("loadtest", *flags, "--json", str(file))
    return done.returncode, json.loads(file.read_bytes()), done.stdout.decode()


def test_figures_against_known_latencies(home: Home, tmp_path: Path) -> None:
    """An endpoint that answers after 0.2 s with a word every 20 ms is measured as that."""
    report = tmp_path / "report.html"
    flags = ("--endpoint", home.provider.url, "-m", "synthetic", "--delegations", "4", "--concurrency", "2")
    code, told, text = loadtest(home, tmp_path, *flags, "--scenario", "fanout=2,steps=1", "--report", str(report))
    level = told["levels"][0]
    assert (code, level["statuses"], level["wrong"]) == (0, {"completed": 4}, []), text
    assert level["requests"] == 4
    assert level["latency"]["ttft"]["count"] == 4
    assert 0.2 <= level["latency"]["ttft"]["p50"] < 0.5
    assert 0.015 < level["latency"]["between"]["p50"] < 0.03
    assert level["latency"]["join"]["count"] == 2
    assert level["latency"]["join"]["p50"] >= level["latency"]["ttft"]["p50"]
    assert level["latency"]["receipt"]["count"] == 4
    assert level["output_tokens"] > 0
    assert "check: one receipt for each delegation" in text
    assert report.read_text(encoding="utf-8").count("<svg") == 3


def test_a_receipt_counts_from_its_commit(home: Home) -> None:
    """What was told of a commit is taken, and where nothing was told, when the receipt was decided."""
    flags = ("-g", "load-1-0. x", "-g", "load-1-1. x", "--worker", sys.executable, "--format", "jsonl")
    home.other("delegate", *flags)
    (receipt_id, decided), (_, other) = home.rows("SELECT receipt_id, written_at FROM receipts ORDER BY receipt_id")
    found = read_delegations(home.path, [], {receipt_id: decided + 5})
    assert sorted(one.committed for one in found) == sorted([decided + 5, other])


def test_faults_and_think_time_and_goals(home: Home, tmp_path: Path) -> None:
    """Delegates that are killed or hang are counted as that, nothing of them is left, and a missed goal is exit 1."""
    flags = ("--synthetic", "--delegations", "12", "--concurrency", "4", "--arrival", "poisson:8", "--timeout", "3s")
    scenario = ("--scenario", "fanout=3,steps=3,tool_delay=150ms,output=5,shared_prefix=100", "--seed", "4")
    faults = ("--fault", "crash=0.3,hang=0.2,http500=0.1,drop=0.1", "--slo", "failed=0,join_p99=100s")
    code, told, text = loadtest(home, tmp_path, *flags, *scenario, *faults)
    level = told["levels"][0]
    assert code == 1
    assert len(told["missed"]) == 1
    assert told["missed"][0].startswith("concurrency 4: failed is ")
    assert level["wrong"] == [], text
    assert sum(level["statuses"].values()) == 12
    assert set(level["failures"]) == {"crashed: killed", "timeout: child_timeout"}, text
    completed = level["statuses"]["completed"]
    assert completed == 12 - sum(level["failures"].values())
    assert level["requests"] >= 3 * completed + level["request_errors"]["held for ever"]
    assert level["latency"]["join"]["max"] >= 3.0
    assert level["cpu_per_delegation"] is None or level["cpu_per_delegation"] > 0.005


def test_an_endpoint_that_is_not_there_fails_every_delegate(home: Home, tmp_path: Path) -> None:
    """Nobody listens: no delegate completes, each has its receipt, every request its error, and the exit code is 4."""
    flags = ("--endpoint", "http://127.0.0.1:9/v1", "-m", "x", "--delegations", "2", "--timeout", "2s")
    code, told, _ = loadtest(home, tmp_path, *flags)
    level = told["levels"][0]
    assert code == 4
    assert level["wrong"] == []
    assert "completed" not in level["statuses"]
    assert set(level["request_errors"]) == {"no connection: ConnectionRefusedError"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "--endpoint URL or --synthetic"),
        (("--synthetic", "--endpoint", "http://127.0.0.1:9/v1"), "one of the two"),
        (("--endpoint", "http://127.0.0.1:9/v1", "-m", "x", "--fault", "crash=1"), "belong to --synthetic"),
        (("--endpoint", "http://127.0.0.1:9/v1"), "-m NAME"),
        (("--endpoint", "http://models.example/v1", "-m", "x"), "--yes"),
        (("--synthetic", "--slo", "speed=1s"), "there is no 'speed'"),
        (("--synthetic", "--report", "/nowhere/at/all.html"), "cannot be written"),
        (("--synthetic", "--token-rate", "nan"), "--token-rate nan"),
        (("--endpoint", "127.0.0.1:9", "-m", "x"), "--endpoint: expected a URL with its scheme"),
        (("--endpoint", "http://127.0.0.1:99999/v1", "-m", "x"), "--endpoint: expected an http://"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(home: Home, flags: tuple[str, ...], said: str) -> None:
    """Flags that contradict each other, and an endpoint elsewhere without --yes, are exit 2 and a message."""
    done = home.other("loadtest", *flags)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:80/v1", True),
        ("http://[::1]/v1", True),
        ("http://localhost:3/v1", True),
        ("http://127.0.0.1.example/v1", False),
        ("https://api.example/v1", False),
        ("http://10.0.0.1/v1", False),
    ],
)
def test_which_endpoints_are_on_this_machine(url: str, here: bool) -> None:
    """Only loopback addresses and localhost are this machine."""
    assert is_loopback(url) is here


def test_figures_are_not_lost_with_a_file_that_cannot_be_written(home: Home) -> None:
    """A full device under --json and --report: said, exit 1, and the figures stand on standard output."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    flags = ("--endpoint", home.provider.url, "-m", "synthetic", "--delegations", "1", "--scenario", "steps=1,output=1")
    done = home.other("loadtest", *flags, "--json", "/dev/full", "--report", "/dev/full")
    assert done.returncode == 1
    assert done.stderr.count(b"/dev/full could not be written") == 2
    assert b"Traceback" not in done.stderr
    assert b"check: one receipt for each delegation" in done.stdout


def test_an_interrupt_ends_everything(home: Home, tmp_path: Path) -> None:
    """SIGTERM in the middle of a level ends every process of it, and no figures are claimed."""
    file = tmp_path / "figures.json"
    flags = ("--endpoint", home.provider.url, "-m", "synthetic", "--delegations", "40", "--json", str(file))
    process = psutil.Popen(home.command("loadtest", *flags), env=home.env, stderr=subprocess.PIPE)
    wait_until(home.provider.requests, "request")
    family = process.children(recursive=True)
    assert len(family) > 1
    process.terminate()
    _, said = process.communicate(timeout=30)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    if sys.platform != "win32":
        assert process.returncode == 128 + signal.SIGTERM
        assert b"interrupted" in said
    assert file.read_bytes() == b""
