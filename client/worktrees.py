"""A git worktree per task, so that agents that change files do not meet: made before, kept when it holds a change.

Whatever a task did to its worktree concerns that task alone: what cannot be looked at or removed is kept, and said.
"""

import os
import re
import subprocess
from collections.abc import Iterable
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
        ours: files that this run reads or writes; that no commit holds them does not matter.

    Raises:
        UserError: it is not a repository, or has changes that no commit holds.
    """

    def __init__(self, folder: str, home: Path, ours: Iterable[str] = ()) -> None:
        top = _git(folder, "rev-parse", "--show-toplevel", what=f"{clean(folder)} is not in a git repository")
        self._top = top
        self._inside = os.path.relpath(os.path.realpath(folder), os.path.realpath(top))
        self._base = _git(top, "rev-parse", "--verify", "HEAD", what=f"{top} has no commit yet")
        self._folder = home / "worktrees" / f"{Path(top).name}-{self._base[:10]}"
        self.of: dict[str, Worktree] = {}
        if _git(top, "status", "--porcelain", "--untracked-files=all", "--", ".", *self._without([*ours, str(home)])):
            raise UserError(
                f"{top} has changes that no commit holds; worktrees would not have them. Nothing was run.\n"
                "Commit or stash them first."
            )

    def _without(self, ours: Iterable[str]) -> list[str]:
        """Return git's words for leaving these out; of what lies elsewhere it does not want to hear."""
        top = Path(self._top).resolve()
        inside = [path for name in ours if (path := Path(name).resolve()).is_relative_to(top) and path.exists()]
        return [f":(top,exclude,literal){path.relative_to(top).as_posix()}" for path in inside]

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

        if not free() and again and os.path.isdir(one.path):
            self._removed_if_unchanged(one)
        return free()

    def settle(self, task_id: str) -> JsonObject:
        """Remove a task's worktree when nothing was changed in it; else return where it is, for the task's entry."""
        one = self.of.pop(task_id, None)
        if one is None:
            return {}
        removed, problem = self._removed_if_unchanged(one)
        kept = {"path": one.path, "branch": one.branch, "base": one.base, **({"problem": problem} if problem else {})}
        return {} if removed else {"worktree": kept}

    def _removed_if_unchanged(self, one: Worktree) -> tuple[bool, str]:
        """Remove a worktree that is unchanged; say whether it is gone, and what git would not do."""
        try:
            if _is_changed(one):
                return False, ""
            _git(self._top, "worktree", "remove", "--force", one.path)  # which a checked out submodule asks for
            _git(self._top, "branch", "-D", one.branch)  # it is at its beginning
        except RunError as error:
            return False, str(error)
        return True, ""

    def close(self) -> None:
        """Settle what is left."""
        for task_id in list(self.of):
            self.settle(task_id)


def _is_changed(one: Worktree) -> bool:
    """Say whether a worktree holds a file or a commit that its beginning did not."""
    if _git(one.path, "status", "--porcelain", alone=True):
        return True
    return _git(one.path, "rev-parse", "HEAD", alone=True) != one.base


def _git(folder: str, *arguments: str, what: str = "", alone: bool = False) -> str:
    """Run git and return what it prints; ``alone``: in a folder that is itself a repository, not in one around it.

    Raises:
        UserError: it failed, and ``what`` says what that means.
        RunError: it failed.
    """
    only_there = {"GIT_CEILING_DIRECTORIES": os.path.dirname(folder)} if alone else {}
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments],  # noqa: S607 - git is found on PATH like by its user
            env=allowed_environment(os.environ) | only_there,  # no GIT_DIR that would point it elsewhere
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
