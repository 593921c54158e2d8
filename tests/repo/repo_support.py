"""The repository as text and as syntax trees."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent_proc", "cli", "client", "ipc", "supervisor")
_CACHES = ("__pycache__", "build", "dist", "node_modules")


def sources(*folders: str) -> list[Path]:
    """Return the Python files below folders of the repository, their paths relative to it."""
    return sorted(path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py"))


def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file of the repository."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def files(folder: Path = ROOT) -> Iterator[Path]:
    """Yield the files that belong to the repository, without what tools leave behind."""
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name not in (".ci", ".github", ".gitignore")
        if hidden or path.is_symlink() or path.name in _CACHES or path.suffix == ".egg-info":
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the full names of everything that is imported anywhere in a tree, also late and for types only."""
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom):
            yield from (f"{'.' * part.level}{part.module or ''}.{alias.name}" for alias in part.names)
