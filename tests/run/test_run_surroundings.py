"""Where a run happens: hostile working directories, odd home paths, other locales, huge answers."""

import os
import sys
from pathlib import Path

import pytest
from run_support import Home, Provider, delegate_plan, plan

SCRIPT = Path(sys.executable).with_name("fanjoin.exe" if sys.platform == "win32" else "fanjoin")
TRAP = "raise SystemExit('a module of the working directory was imported')\n"
OURS = ("cli.py", "ipc/__init__.py", "supervisor/__init__.py")
OTHERS = (
    "zmq.py",
    "json.py",
    "msgspec.py",
    "yaml.py",
    "httpx.py",
    "sitecustomize.py",
    "fanjoin.py",
    "client/__init__.py",
)


def set_traps(folder: Path, names: tuple[str, ...]) -> Path:
    """Fill a folder with modules that end whoever imports them."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TRAP, encoding="utf-8")
    return folder


@pytest.mark.parametrize("launcher", ["auto", "spawn"])
def test_modules_in_the_working_directory_change_nothing(home: Home, tmp_path: Path, launcher: str) -> None:
    """A project with modules named like ours and our libraries', partly on PYTHONPATH; run by the installed script."""
    home.config(f"delegation: {{launcher: {launcher}}}")
    project = set_traps(tmp_path / "project", (*OURS, *OTHERS))
    on_path = set_traps(tmp_path / "on-path", OURS)
    arguments = ["chat", "-Q", *home.model(), "-q", delegate_plan("[[answer a]]")]
    done = home.run([str(SCRIPT), *arguments], cwd=project, env={"PYTHONPATH": str(on_path), "PYTHONSAFEPATH": ""})
    assert (done.returncode, done.stderr.count(b"\n")) == (0, 2), done.stderr
    assert done.stdout.startswith(b"1 of 1 delegate completed.")
    assert not list(project.rglob("__pycache__"))


def test_a_long_home_path_with_spaces_and_other_letters_works(tmp_path: Path, provider: Provider) -> None:
    """A home of more than 107 bytes below folders with spaces and non-ASCII names: a whole run, then a listing."""
    home = Home(tmp_path / "a b \u00fc \u6d4b\u8bd5" / ("long name " * 12) / "home", provider)
    home.config("delegation: {max_summary_chars: 10}")
    assert len(os.fsencode(home.path)) > 107
    result = home.result(delegate_plan("[[answer more than ten letters]]"), cwd=tmp_path)
    assert result["exit_code"] == 0
    (entry,) = result["results"]
    assert Path(entry["summary_path"]).read_text(encoding="utf-8") == "more than ten letters"
    assert Path(entry["summary_path"]).is_relative_to(home.path)
    assert entry["receipt_id"].encode() in home.other("receipts", "list").stdout


def test_a_relative_home_is_the_same_from_everywhere(home: Home, tmp_path: Path) -> None:
    """FANJOIN_HOME may be relative; -C only says where tools run."""
    done = home.chat(plan({"text": "ok"}), "-C", "/", cwd=tmp_path, env={"FANJOIN_HOME": "./home"})
    assert (done.returncode, done.stdout) == (0, b"ok\n")
    assert home.rows("SELECT cwd FROM sessions") == [("/",)]
    assert (home.path.stat().st_mode & 0o777) == 0o700


@pytest.mark.parametrize(
    ("environ", "encoding"),
    [
        ({"LANG": "C", "LC_ALL": "C"}, "utf-8"),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, "ascii"),
        ({"PYTHONIOENCODING": "cp1252"}, "cp1252"),
        ({"PYTHONIOENCODING": "ascii:strict"}, "ascii"),
    ],
    ids=["C", "C-without-coercion", "cp1252", "ascii"],
)
def test_what_an_encoding_cannot_hold_is_replaced(home: Home, environ: dict[str, str], encoding: str) -> None:
    """An emoji and a lone surrogate in the answer and on the command line: replaced, exit 0."""
    answer = "caf\u00e9 \U0001f600 \ud83d end"
    done = home.chat(plan({"text": answer}, text="\u00fc \U0001f600"), env=environ)
    cleaned = answer.replace("\ud83d", "\ufffd")
    assert (done.returncode, done.stdout) == (0, f"{cleaned}\n".encode(encoding, "replace")), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are text on Windows")
def test_bytes_that_are_no_text_on_the_command_line_do_no_harm(home: Home) -> None:
    """A query and a model name with a byte that is not UTF-8."""
    query, model = (os.fsdecode(data) for data in (b"one two \xff three", b"synth\xffetic"))
    done = home.chat(query, "-m", model, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert b"4 words in 1 line" in done.stdout


def test_an_answer_of_twenty_megabytes_is_kept_whole_and_handed_on_in_part(home: Home) -> None:
    """The parent gets head, tail and a path; the file holds everything; the answer itself is whole, too."""
    result = home.result(delegate_plan("[[size 20000000]]"))
    (entry,) = result["results"]
    whole = Path(entry["summary_path"]).read_text(encoding="utf-8")
    assert len(whole) == 20_000_000
    summary = entry["summary"]
    assert entry["summary_truncated"] is True
    assert len(summary) < 25_000
    assert summary.startswith(whole[:10_000])
    assert summary.endswith(whole[-7_000:])
    assert "characters left out" in summary
    assert (result["exit_code"], entry["status"]) == (0, "completed")
