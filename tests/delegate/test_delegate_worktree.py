"""A git worktree per task: kept when it holds a change, removed when it is clean, refused where something is lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from delegate_support import delegated, goals, result, task_file
from run_support import Home

from fanjoin.ipc.paths import prepare_home

WRITES = f"{sys.executable} {Path(__file__).parents[1] / 'children' / 'writes.py'}"


def git(folder: Path, *arguments: str) -> str:
    """Run git and return what it printed."""
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True)  # noqa: S607
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one commit and a folder in it."""
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file.txt").write_text("first\n", encoding="utf-8")
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "begin")
    return folder


def worktrees(repository: Path) -> list[str]:
    """Return the branches of all worktrees but the first."""
    text = git(repository, "worktree", "list", "--porcelain")
    return [line.removeprefix("branch refs/heads/") for line in text.splitlines() if line.startswith("branch")][1:]


def test_what_changed_is_kept_and_what_is_clean_is_removed(home: Home, repository: Path) -> None:
    """Each task runs at the same place of its own worktree; an uncommitted file and a commit both are changes."""
    tasks = [
        {"id": "Edit it!", "goal": "write one"},
        {"id": "read", "goal": "read"},
        {"id": "commit", "goal": "commit"},
    ]
    files = task_file(home.path.parent / "tasks.jsonl", *tasks)
    value = result(home, files, "--worktree", "-C", str(repository / "sub"), worker=WRITES)
    assert value["exit_code"] == 0, value
    edited, read, committed = value["results"]
    assert "worktree" not in read
    assert edited["worktree"]["branch"] == "fanjoin/Edit-it"
    assert (Path(edited["worktree"]["path"]) / "sub" / "file.txt").read_text(encoding="utf-8") == "first\nwrite one"
    assert git(repository, "log", "--format=%s", "fanjoin/commit").splitlines() == ["changed", "begin"]
    assert committed["worktree"]["base"] == git(repository, "rev-parse", "main")
    assert sorted(worktrees(repository)) == ["fanjoin/Edit-it", "fanjoin/commit"]
    assert git(repository, "branch", "--list", "fanjoin/read") == ""
    assert git(repository, "status", "--porcelain") == ""


def test_what_a_task_does_to_its_worktree_concerns_that_task_alone(home: Home, repository: Path) -> None:
    """One that is gone, no worktree any more, or locked is kept and its entry says why; the others go on."""
    goals_of = {
        "gone": 'rm -rf "$(dirname "$PWD")"; echo gone',
        "no-git": "rm ../.git; echo none",
        "locked": "git worktree lock ..; echo locked",
        "clean": "cat file.txt",
    }
    tasks = [{"id": name, "goal": goal} for name, goal in goals_of.items()]
    files = task_file(home.path.parent / "tasks.jsonl", *tasks)
    flags = ["--worktree", "-j", "1", "-C", str(repository / "sub")]
    git(home.path.parent, "init", "--quiet")  # a repository around the home is not meant
    value = result(home, files, *flags, worker="sh")
    assert (value["exit_code"], value["completed"]) == (0, 4), value
    problems = [one.get("worktree", {}).get("problem", "")[:4] for one in value["results"]]
    assert problems == ["git ", "git ", "git ", ""]
    assert "worktree" not in value["results"][3]


def test_files_of_the_run_itself_are_no_change(home: Home, repository: Path) -> None:
    """The task file, the output and the home may lie in the repository; a refusal leaves the output as it was."""
    files = task_file(repository / "tasks.jsonl", {"id": "a", "goal": "read"})
    out = repository / "out" / "out.jsonl"
    out.parent.mkdir()
    inside = Home(repository / "home", home.provider)
    for _ in range(2):
        assert (
            delegated(inside, files, "--worktree", "-o", str(out), "-C", str(repository), worker=WRITES).returncode == 0
        )
    (repository / "other.txt").write_text("not committed", encoding="utf-8")
    before = out.read_bytes()
    assert delegated(inside, files, "--worktree", "-o", str(out), "-C", str(repository), worker=WRITES).returncode == 2
    assert out.read_bytes() == before


def test_a_checked_out_submodule_keeps_nothing_alive(home: Home, repository: Path) -> None:
    """A clean worktree goes, whatever was checked out below it."""
    other = home.path.parent / "other"
    git(repository, "clone", "--quiet", str(repository), str(other))
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "module")
    git(repository, "commit", "--quiet", "-m", "module")
    checkout = "git -c protocol.file.allow=always submodule --quiet update --init; ls module"
    value = result(home, *goals(checkout), "--worktree", "-C", str(repository), worker="sh")
    assert value["results"][0]["summary"] == "sub"
    assert worktrees(repository) == []


def test_a_collision_and_a_dirty_tree_are_refused(home: Home, repository: Path) -> None:
    """Nothing is overwritten, nothing is run; the message says what to do."""
    flags = ["--worktree", "-C", str(repository)]
    files = task_file(home.path.parent / "tasks.jsonl", {"id": "a", "goal": "write x"}, {"id": "b", "goal": "read"})
    assert delegated(home, files, *flags, worker=WRITES).returncode == 0
    refused = delegated(home, files, *flags, worker=WRITES)
    assert refused.returncode == 2
    assert b"The branch fanjoin/a or its folder" in refused.stderr
    assert b"git branch -d fanjoin/a" in refused.stderr
    assert worktrees(repository) == ["fanjoin/a"]
    (repository / "new.txt").write_text("not committed", encoding="utf-8")
    dirty = delegated(home, *goals("read"), *flags, worker=WRITES)
    assert dirty.returncode == 2
    assert b"changes that no commit holds" in dirty.stderr
    assert len(home.statuses()) == 2


def test_resume_takes_away_what_a_killed_run_left_unchanged(home: Home, repository: Path) -> None:
    """A clean worktree of an earlier run is made anew; one with a change is refused."""
    flags = ["--worktree", "-C", str(repository), "--resume"]
    files = task_file(home.path.parent / "tasks.jsonl", {"id": "a", "goal": "exit3"})
    prepare_home(home.path)
    left = home.path / "worktrees" / f"repository-{git(repository, 'rev-parse', 'HEAD')[:10]}" / "a"
    git(repository, "worktree", "add", "--quiet", "-b", "fanjoin/a", str(left))
    assert delegated(home, files, *flags, worker="false").returncode == 4
    assert worktrees(repository) == []
    git(repository, "worktree", "add", "--quiet", "-b", "fanjoin/a", str(left))
    (left / "new.txt").write_text("kept", encoding="utf-8")
    assert delegated(home, files, *flags, worker="false").returncode == 2
    assert worktrees(repository) == ["fanjoin/a"]


def test_where_no_worktree_can_be_is_a_usage_error(home: Home, repository: Path) -> None:
    """No repository, a task with a folder of its own, two ids that make one branch."""
    assert b"is not in a git repository" in delegated(home, *goals("a"), "--worktree", "-C", str(home.path)).stderr
    files = task_file(home.path.parent / "tasks.jsonl", {"goal": "a", "cwd": "sub"})
    own = delegated(home, files, "--worktree", "-C", str(repository))
    assert (own.returncode, b"has a cwd" in own.stderr) == (2, True)
    files = task_file(home.path.parent / "tasks.jsonl", {"id": "a b", "goal": "a"}, {"id": "a/b", "goal": "a"})
    assert b"make the same branch name" in delegated(home, files, "--worktree", "-C", str(repository)).stderr
    assert worktrees(repository) == []
