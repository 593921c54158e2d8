"""Several at once: links that are swapped while a path is opened, and agents that write the same file."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tools_support import Tools

CHILDREN = Path(__file__).parents[1] / "children"
SECONDS = 1.5


def swap_folder(inside: Path) -> None:
    """Exchange a folder for a link to the outside and back: a check sees the one, the opening may meet the other."""
    os.rename(inside / "real", inside / "kept")
    (inside / "real").symlink_to("../outside")
    os.unlink(inside / "real")
    os.rename(inside / "kept", inside / "real")


def swap_file(inside: Path) -> None:
    """Exchange a file for a link to the outside and back."""
    os.rename(inside / "real" / "file", inside / "kept")
    (inside / "real" / "file").symlink_to("../../outside/file")
    os.rename(inside / "kept", inside / "real" / "file")


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be renamed there")
@pytest.mark.parametrize("swap", [swap_folder, swap_file])
def test_a_link_that_is_swapped_in_leads_nowhere(tmp_path: Path, swap: Callable[[Path], None]) -> None:
    """Somebody exchanges a folder or a file for a link to the outside, as fast as it goes: it is never followed."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside, inside / "real"):
        folder.mkdir()
    (outside / "file").write_text("SECRET", encoding="utf-8")
    (inside / "real" / "file").write_text("mine", encoding="utf-8")
    over = threading.Event()

    def keep_swapping() -> None:
        while not over.is_set():
            swap(inside)

    swapper = threading.Thread(target=keep_swapping)
    swapper.start()
    tools = Tools(inside)
    deadline, seen = time.monotonic() + SECONDS, set()
    try:
        while time.monotonic() < deadline:
            answer = tools.call("read_file", path="real/file")
            assert "SECRET" not in answer
            seen.add(answer)
            tools.call("edit_file", path="real/file", old_text="SECRET", new_text="stolen")
            assert "SECRET" not in tools.call("search_files", text="SECRET")
    finally:
        over.set()
        swapper.join()
    assert len(seen) > 1, "the race never happened"
    assert os.listdir(outside) == ["file"]
    assert (outside / "file").read_text(encoding="utf-8") == "SECRET"


def test_no_update_of_a_shared_file_is_lost(tmp_path: Path) -> None:
    """Four processes count in one file, each reading again when it is told that the file has changed."""
    (tmp_path / "count").write_text("0", encoding="utf-8")
    workers = [
        subprocess.Popen([sys.executable, "-P", str(CHILDREN / "counting.py"), str(tmp_path), "25"]) for _ in range(4)
    ]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    assert (tmp_path / "count").read_text(encoding="utf-8") == "100"
    assert os.listdir(tmp_path) == ["count"]
