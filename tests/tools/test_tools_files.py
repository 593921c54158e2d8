"""The file tools on real files: bounds, text and binary, huge and odd files, edits, and who saw what."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from tools_support import Tools

from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.toolsets.reading import MAX_CHARACTERS, MAX_FILES, MAX_LINES, MAX_MATCHES
from fanjoin.agent_proc.toolsets.workspace import MAX_FILE_BYTES, Place, Workspace
from fanjoin.ipc.settings import ApprovalSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a workspace beside a file that is none of its business."""
    (tmp_path / "secret").write_text("SECRET", encoding="utf-8")
    inside = tmp_path / "work space ü"
    inside.mkdir()
    return inside


def test_the_home_is_hidden_under_any_name(folder: Path) -> None:
    """A file system that does not tell upper from lower case has many names for one folder."""
    home, other = folder / "home", folder / "HOME"
    home.mkdir()
    try:
        other.symlink_to(home)
    except FileExistsError:
        assert other.samefile(home)
    workspace = Workspace(str(folder), str(home))
    assert workspace.hides(Place(workspace.root, (other.name,)))
    with pytest.raises(ToolError, match="not inside"):
        workspace.locate(f"{other.name}/config.yaml")


# --- reading -------------------------------------------------------------------------------------------------------


def test_lines_are_shown_below_a_line_that_says_which(folder: Path) -> None:
    """A part of a file says which part of how much it is; beyond the end is an error."""
    (folder / "a.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    tools = Tools(folder)
    assert tools.call("read_file", path="a.txt") == "a.txt: lines 1-3 of 3\none\ntwo\nthree\n"
    assert tools.call("read_file", path="a.txt", first_line=2, lines=1) == "a.txt: lines 2-2 of 3\ntwo\n"
    assert tools.call("read_file", path=str(folder / "a.txt")).startswith("a.txt: lines 1-3")
    assert tools.refusal("read_file", path="a.txt", first_line=4) == "invalid_arguments"
    (folder / "empty").touch()
    assert tools.call("read_file", path="empty") == "empty: empty\n"


def test_lines_are_counted_as_editors_do(folder: Path) -> None:
    """Form feeds and the separators of Unicode end no line; CR, LF and both together end one each."""
    (folder / "a.c").write_bytes("one\x0c\x1c\u2028\x85 still\r\ntwo\rthree\n\nfive".encode())
    tools = Tools(folder)
    assert tools.call("read_file", path="a.c").startswith("a.c: lines 1-5 of 5\n")
    assert tools.call("read_file", path="a.c", first_line=2, lines=2) == "a.c: lines 2-3 of 5\ntwo\rthree\n"
    assert tools.call("search_files", text="two").splitlines()[1:] == ["a.c:2: two"]
    assert tools.call("search_files", text="e$", regex=True).splitlines()[1:] == ["a.c:3: three", "a.c:5: five"]


def test_long_files_and_long_lines_are_cut_and_it_is_said(folder: Path) -> None:
    """Neither many lines nor one endless line fill the context."""
    (folder / "many").write_text("x\n" * 5000, encoding="utf-8")
    (folder / "wide").write_text("y" * 1_000_000, encoding="utf-8")
    tools = Tools(folder)
    assert tools.call("read_file", path="many", lines=9999).startswith(f"many: lines 1-{MAX_LINES} of 5000\n")
    wide = tools.call("read_file", path="wide")
    assert wide.startswith(f"wide: lines 1-1 of 1, cut after {MAX_CHARACTERS} characters\n")
    assert len(wide) < MAX_CHARACTERS + 100


def test_binary_and_huge_files_are_refused_and_broken_text_is_not(folder: Path) -> None:
    """A NUL makes a file binary; bytes that are no UTF-8 are shown as such; a huge (sparse) file is not loaded."""
    (folder / "binary").write_bytes(b"\x7fELF\0\0")
    (folder / "latin").write_bytes(b"caf\xe9\n")
    with (folder / "huge").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    tools = Tools(folder)
    assert tools.refusal("read_file", path="binary") == "binary_file"
    assert tools.refusal("read_file", path="huge") == "too_large"
    assert tools.refusal("write_file", path="huge", content="x") == "too_large"
    assert tools.call("read_file", path="latin").endswith("caf\ufffd\n")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes and devices with names there")
def test_what_is_no_file_does_not_block(folder: Path) -> None:
    """A pipe nobody writes to, a folder, a device behind a link: an error at once."""
    os.mkfifo(folder / "pipe")
    (folder / "inner").mkdir()
    (folder / "zero").symlink_to("/dev/zero")
    tools = Tools(folder)
    assert tools.refusal("read_file", path="pipe") == "not_a_file"
    assert tools.refusal("read_file", path="inner") in {"not_a_file", "file_error"}
    assert tools.refusal("read_file", path=".") == "file_error"
    assert tools.refusal("read_file", path="zero") == "outside_workspace"
    assert tools.call("search_files", text="x").startswith(".: 0 lines")


def test_folders_are_listed(folder: Path) -> None:
    """Names in order, folders marked; with a pattern all files below, without what programs keep for themselves."""
    for name in ("b.py", "a/c.py", "a/d.txt", ".git/e.py", "node_modules/f.py"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    tools = Tools(folder)
    assert tools.call("list_files").splitlines() == [".: 4 names", ".git/", "a/", "b.py", "node_modules/"]
    assert tools.call("list_files", pattern="*.py").splitlines() == [".: 2 names", "b.py", "a/c.py"]
    assert tools.call("list_files", path="a", pattern="d*").splitlines() == ["a: 1 names", "a/d.txt"]
    assert tools.refusal("list_files", path="nowhere") == "not_found"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_is_one_line_whatever_it_holds(folder: Path) -> None:
    """Line ends in a name are shown as such, and bytes that are no UTF-8 as U+FFFD."""
    (folder / "a\nb").write_text("here", encoding="utf-8")
    (folder / os.fsdecode(b"c\xff")).touch()
    tools = Tools(folder)
    assert tools.call("list_files") == ".: 2 names\na\\nb\nc\ufffd"
    assert tools.call("search_files", text="here").splitlines()[1:] == ["a\\nb:1: here"]
    assert tools.call("read_file", path="a\nb") == "a\\nb: lines 1-1 of 1\nhere"


def test_many_files_are_named_up_to_a_limit(folder: Path) -> None:
    """A folder with more names than fit says so."""
    for number in range(MAX_FILES + 5):
        (folder / f"{number:05}").touch()
    lines = Tools(folder).call("list_files").splitlines()
    assert (lines[0], len(lines)) == (f".: the first {MAX_FILES} names", MAX_FILES + 1)


def test_lines_are_found(folder: Path) -> None:
    """As a text or as a regular expression; what cannot be searched is counted, what is denied is not shown."""
    (folder / "a.py").write_text("x = 1\ny = (x)\n", encoding="utf-8")
    (folder / "b.txt").write_text("(x)\n" * 500, encoding="utf-8")
    (folder / "c.bin").write_bytes(b"(x)\0")
    (folder / ".env").write_text("(x) = secret\n", encoding="utf-8")
    tools = Tools(folder, ApprovalSettings(deny=("read_file *.env",)))
    found = tools.call("search_files", text="(x)", pattern="*.py")
    assert found.splitlines() == [".: 1 lines", "a.py:2: y = (x)"]
    assert len(tools.call("search_files", text="(x)").splitlines()) == MAX_MATCHES + 1
    assert tools.call("search_files", text="^x", regex=True).splitlines()[1:] == ["a.py:1: x = 1"]
    denied = tools.call("search_files", text="secret").splitlines()
    assert denied == [".: 0 lines, 2 files left out: not text, too large or not readable"]
    assert tools.refusal("search_files", text="(", regex=True) == "invalid_arguments"
    assert tools.refusal("read_file", path=".env") == "not_allowed"


# --- the workspace -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["../secret", "..", "a/../../secret", "{outside}", "/etc/passwd", "link", "linked/secret"]
)
def test_nothing_outside_is_touched(folder: Path, path: str) -> None:
    """Dots, absolute paths, links to files and to folders: refused for every tool."""
    (folder / "link").symlink_to("../secret")
    (folder / "linked").symlink_to("..")
    path = path.format(outside=folder.parent / "secret")
    tools = Tools(folder)
    for name, more in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old_text": "SECRET", "new_text": "x"}),
    ):
        assert tools.refusal(name, path=path, **more) == "outside_workspace"
    assert (folder.parent / "secret").read_text(encoding="utf-8") == "SECRET"
    assert tools.refusal("list_files", path="linked") == "outside_workspace"
    assert "SECRET" not in tools.call("search_files", text="SECRET")


def test_a_link_that_dangles_outside_makes_no_file_there(folder: Path) -> None:
    """Writing through a link to a name that does not exist yet is refused, too."""
    (folder / "dangling").symlink_to("../new")
    assert Tools(folder).refusal("write_file", path="dangling", content="x") == "outside_workspace"
    assert not (folder.parent / "new").exists()


def test_links_inside_work(folder: Path) -> None:
    """A link within the workspace is followed, stays a link, and the file behind it is written."""
    (folder / "real").write_text("a", encoding="utf-8")
    (folder / "link").symlink_to("real")
    tools = Tools(folder)
    assert tools.call("read_file", path="link").endswith("\na")
    tools.call("edit_file", path="link", old_text="a", new_text="b")
    assert (folder / "link").is_symlink()
    assert (folder / "real").read_text(encoding="utf-8") == "b"


def test_our_own_folder_is_no_part_of_a_workspace_around_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys lie in the configuration: nothing of the home is shown but the whole texts of long answers."""
    home = folder / "home"
    (home / "transcripts").mkdir(parents=True)
    (home / "config.yaml").write_text("api_key: k", encoding="utf-8")
    (home / "transcripts" / "d_x.jsonl").write_text("log", encoding="utf-8")
    (home / "transcripts" / "d_x.summary.txt").write_text("all of it", encoding="utf-8")
    monkeypatch.setenv("FANJOIN_HOME", str(home))
    tools = Tools(folder)
    assert tools.refusal("read_file", path="home/config.yaml") == "outside_workspace"
    assert tools.refusal("read_file", path="home/transcripts/d_x.jsonl") == "outside_workspace"
    assert tools.call("read_file", path=str(home / "transcripts" / "d_x.summary.txt")).endswith("all of it")
    assert (
        tools.refusal("write_file", path=str(home / "transcripts" / "d_x.summary.txt"), content="")
        == "outside_workspace"
    )
    assert "api_key" not in tools.call("search_files", text="api_key")


@pytest.mark.parametrize(
    "arguments", ['{"path": 1}', "{}", '{"path": "a\\u0000b"}', '{"path": "a", "lines": true}', "[]", "{"]
)
def test_wrong_arguments_are_told(folder: Path, arguments: str) -> None:
    """Nothing that a model writes into a call ends the agent."""
    from fanjoin.agent_proc.provider.reply import ToolCall

    answer = json.loads(Tools(folder).box.run(ToolCall(id="c", name="read_file", arguments=arguments)))
    assert answer["error"]["reason"] == "invalid_arguments"


# --- writing -------------------------------------------------------------------------------------------------------


def test_a_new_file_is_written_with_its_folders(folder: Path) -> None:
    """Missing folders are made; nothing but the file remains."""
    assert Tools(folder).call("write_file", path="a/b/c.txt", content="ü\n") == "a/b/c.txt: 3 bytes written"
    assert (folder / "a/b/c.txt").read_bytes() == "ü\n".encode()
    assert os.listdir(folder / "a/b") == ["c.txt"]


def test_a_file_is_overwritten_only_by_who_has_read_it(folder: Path) -> None:
    """Unread: refused. Read: written, again and again, since one's own writing counts as seen."""
    path = folder / "a.txt"
    path.write_text("old", encoding="utf-8")
    tools = Tools(folder)
    assert tools.refusal("write_file", path="a.txt", content="new") == "not_read"
    tools.call("read_file", path="a.txt")
    tools.call("write_file", path="a.txt", content="new")
    tools.call("write_file", path="a.txt", content="newer")
    assert path.read_text(encoding="utf-8") == "newer"


def test_what_a_sibling_or_the_user_wrote_meanwhile_is_not_lost(folder: Path) -> None:
    """The same size, the same second: a file whose content has changed since it was read is not overwritten."""
    path = folder / "a.txt"
    path.write_text("one", encoding="utf-8")
    first, second = Tools(folder), Tools(folder)
    first.call("read_file", path="a.txt")
    second.call("read_file", path="a.txt")
    first.call("write_file", path="a.txt", content="two")
    assert second.refusal("write_file", path="a.txt", content="six") == "changed"
    assert second.refusal("edit_file", path="a.txt", old_text="two", new_text="six") == "changed"
    second.call("read_file", path="a.txt")
    assert second.call("edit_file", path="a.txt", old_text="two", new_text="six") == "a.txt: replaced 1 time"
    path.write_text("eve", encoding="utf-8")
    assert first.refusal("write_file", path="a.txt", content="ten") == "changed"
    assert path.read_text(encoding="utf-8") == "eve"


def test_a_file_that_appears_meanwhile_counts_as_unread(folder: Path) -> None:
    """Two agents make the same new file: the second is told."""
    first, second = Tools(folder), Tools(folder)
    first.call("write_file", path="new", content="1")
    assert second.refusal("write_file", path="new", content="2") == "not_read"


def test_an_edit_replaces_exactly_what_is_named(folder: Path) -> None:
    """Once or everywhere, never by guess; bytes that are no text and line ends stay as they are."""
    path = folder / "a.txt"
    path.write_bytes(b"caf\xe9\r\nx = 1\r\nx = 1\r\n")
    tools = Tools(folder)
    assert tools.refusal("edit_file", path="a.txt", old_text="x = 1", new_text="x = 2") == "text_not_unique"
    assert tools.refusal("edit_file", path="a.txt", old_text="z", new_text="x") == "text_not_found"
    assert tools.refusal("edit_file", path="a.txt", old_text="", new_text="x") == "invalid_arguments"
    assert tools.refusal("edit_file", path="none", old_text="a", new_text="x") == "not_found"
    tools.call("edit_file", path="a.txt", old_text="x = 1\nx = 1", new_text="y = 1\nz = 1\r\n")
    assert path.read_bytes() == b"caf\xe9\r\ny = 1\r\nz = 1\r\n\r\n"
    assert tools.call("edit_file", path="a.txt", old_text=" = 1", new_text="", replace_all=True).endswith("2 times")
    (folder / "both").write_bytes(b"a\r\nb\nc\nd\r\ne\r\n")
    tools.call("edit_file", path="both", old_text="b\nc", new_text="B\nC")
    tools.call("edit_file", path="both", old_text="d\ne", new_text="D\nE")
    assert (folder / "both").read_bytes() == b"a\r\nB\nC\nD\r\nE\r\n"


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are not bits there")
def test_a_file_keeps_its_permissions(folder: Path) -> None:
    """A script stays executable, a private file private; a new file is as the user's mask says."""
    script = folder / "run.sh"
    script.write_text("a", encoding="utf-8")
    script.chmod(0o750)
    tools = Tools(folder)
    tools.call("edit_file", path="run.sh", old_text="a", new_text="b")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    mask = os.umask(0o027)
    try:
        tools.call("write_file", path="new", content="")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((folder / "new").stat().st_mode) == 0o640


def test_a_write_that_fails_leaves_the_file_as_it_was(folder: Path) -> None:
    """A folder in the way, a file where a folder should be: told, and nothing half-written remains."""
    (folder / "dir").mkdir()
    (folder / "file").write_text("x", encoding="utf-8")
    tools = Tools(folder)
    assert tools.refusal("write_file", path="dir", content="x") in {"file_error", "not_a_file"}
    assert tools.refusal("write_file", path="file/inner", content="x") == "file_error"
    assert sorted(os.listdir(folder)) == ["dir", "file"]


def test_writing_needs_an_approval_and_the_user_is_told_once(folder: Path) -> None:
    """By default nothing is written; the flag that would allow it is told to the user once, to the model each time."""
    tools = Tools(folder, ApprovalSettings())
    answers = [tools.call("write_file", path=name, content="x") for name in ("a", "b")]
    assert all("--allow write_file" in answer for answer in answers)
    assert len(tools.notices) == 1
    assert "--allow write_file" in tools.notices[0]
    assert os.listdir(folder) == []
