"""A git worktree per task, so that agents that change files do not meet: made before, kept when it holds a change."""

import os
import re
import subprocess
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from fanjoin.ipc.environment import allowed_environment
from fanjoin.ipc.errors import RunError, UserError
from fanjoin.ipc.messages import DirectTask, JsonObject
from fanjoin.ipc.text import clean

_BRANCHES = "fanjoin/"
_SLUG_LETTERS = 60


class Worktree(Struct, frozen=True):
    """A folder with a branch of its own, at the commit where it began."""

    path: str
    branch: str
    base: str


class Worktrees:
    """The worktrees of one run.

    Args:
        folder: the repository, or a folder in it; tasks run at the same place in their worktree.
        home: below it the worktrees lie.

    Raises:
        UserError: it is not a repository, or has changes that no commit holds.
    """

    def __init__(self, folder: str, home: Path) -> None:
        top = _git(folder, "rev-parse", "--show-toplevel", what=f"{clean(folder)} is not in a git repository")
        self._top = top
        self._inside = os.path.relpath(os.path.realpath(folder), os.path.realpath(top))
        self._base = _git(top, "rev-parse", "--verify", "HEAD", what=f"{top} has no commit yet")
        self._folder = home / "worktrees" / f"{Path(top).name}-{self._base[:10]}"
        self.of: dict[str, Worktree] = {}
        if _git(top, "status", "--porcelain"):
            raise UserError(
                f"{top} has changes that no commit holds; worktrees would not have them. Nothing was run.\n"
                "Commit or stash them first."
            )

    def make(self, tasks: list[DirectTask], *, again: bool = False) -> list[DirectTask]:
        """Make a worktree for each task and return the tasks, which now run in theirs.

        Args:
            tasks: none with a folder of its own.
            again: take away what an earlier run left there unchanged.

        Raises:
            UserError: a branch or a folder of that name is there already; nothing was made.
        """
        planned = {task.task_id: self._planned(task) for task in tasks}
        if len({one.branch for one in planned.values()}) < len(planned):
            raise UserError("Two task ids make the same branch name. Nothing was run. Give ids that differ in letters.")
        taken = [one for one in planned.values() if not self._is_free(one, again=again)]
        if taken:
            raise UserError(
                f"The branch {taken[0].branch} or its folder {taken[0].path} is there already"
                f"{f', and {len(taken) - 1} more' if len(taken) > 1 else ''}. Nothing was run.\n"
                f"Merge it, then: git worktree remove {taken[0].path}; git branch -d {taken[0].branch}"
            )
        try:
            for task_id, one in planned.items():
                _git(self._top, "worktree", "add", "--quiet", "-b", one.branch, one.path, self._base)
                self.of[task_id] = one
        except RunError:
            for task_id in list(self.of):
                self.settle(task_id)
            raise
        return [
            replace(task, cwd=os.path.normpath(os.path.join(planned[task.task_id].path, self._inside)))
            for task in tasks
        ]

    def _planned(self, task: DirectTask) -> Worktree:
        if task.cwd:
            raise UserError(f"Task {task.task_id} has a cwd, and --worktree gives each task its own. Nothing was run.")
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", task.task_id).strip("-")[:_SLUG_LETTERS] or "task"
        return Worktree(str(self._folder / slug), _BRANCHES + slug, self._base)

    def _is_free(self, one: Worktree, *, again: bool) -> bool:
        def free() -> bool:
            branch = _git(self._top, "branch", "--list", one.branch)
            return not branch and not os.path.lexists(one.path)

        if not free() and again and os.path.isdir(one.path) and not _is_changed(one):
            self._remove(one)
        return free()

    def settle(self, task_id: str) -> JsonObject:
        """Remove a task's worktree when nothing was changed in it; else return where the change is, for its entry."""
        one = self.of.pop(task_id, None)
        if one is None:
            return {}
        if _is_changed(one):
            return {"worktree": {"path": one.path, "branch": one.branch, "base": one.base}}
        self._remove(one)
        return {}

    def _remove(self, one: Worktree) -> None:
        _git(self._top, "worktree", "remove", one.path)
        _git(self._top, "branch", "-D", one.branch)  # it is at its beginning

    def close(self) -> None:
        """Settle what is left."""
        for task_id in list(self.of):
            self.settle(task_id)


def _is_changed(one: Worktree) -> bool:
    """Say whether a worktree holds a file or a commit that its beginning did not."""
    return bool(_git(one.path, "status", "--porcelain")) or _git(one.path, "rev-parse", "HEAD") != one.base


def _git(folder: str, *arguments: str, what: str = "") -> str:
    """Run git and return what it prints.

    Raises:
        UserError: it failed, and ``what`` says what that means.
        RunError: it failed.
    """
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments],  # noqa: S607 - git is found on PATH like by its user
            env=allowed_environment(os.environ),  # no GIT_DIR that would point it elsewhere
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise UserError(f"--worktree needs git, which could not be started: {error}. Nothing was run.") from error
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace").strip()
    said = done.stderr.decode("utf-8", "replace").strip()
    if what:
        raise UserError(f"{what} ({said}). Nothing was run.")
    raise RunError(f"git {' '.join(arguments)} failed in {clean(folder)}: {said}")
