"""Sessions on the command line, without a daemon."""

import base64
import json
from pathlib import Path

import pytest
from run_support import Home, delegate_plan
from sessions_support import messages

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def only_session(home: Home) -> str:
    """Return the one session of the home."""
    ((session_id,),) = home.rows("SELECT session_id FROM sessions")
    return str(session_id)


def test_resume_goes_on_with_the_settings_of_the_session(home: Home, tmp_path: Path) -> None:
    """``--resume latest`` or any unique prefix: same model and folder as at first, unless a flag says otherwise."""
    first = home.run(
        home.command("chat", "-Q", *home.model(), "-C", str(tmp_path), "-q", delegate_plan("[[answer one]]"))
    )
    assert first.returncode == 0, first.stderr
    session_id = only_session(home)
    home.config("model: {base_url: 'http://127.0.0.1:9/v1', model: another}\n")
    for name in ("latest", session_id, session_id[:5]):
        done = home.run(home.command("chat", "-Q", "--resume", name, "-q", "[[answer again]]"))
        assert (done.returncode, done.stdout) == (0, b"again\n"), done.stderr
    flagged = home.run(home.command("chat", "-Q", "--resume", "latest", "-m", "other", "-q", "[[answer other]]"))
    assert flagged.returncode == 0
    assert [one["model"] for one in home.provider.requests()] == [*["synthetic"] * 6, "other"]
    assert len(messages(home, session_id)) == 4 + 4 * 2
    assert only_session(home) == session_id
    kept = json.loads(home.rows("SELECT settings_json FROM sessions")[0][0])
    assert (kept["model"], kept["cwd"]) == ("synthetic", str(tmp_path))


@pytest.mark.parametrize("name", ["s_nosuch", "latest"])
def test_a_session_that_is_not_there(home: Home, name: str) -> None:
    """Exit 2, and nothing is run."""
    done = home.chat("hi", "--resume", name)
    assert done.returncode == 2
    assert b"fanjoin sessions list" in done.stderr
    assert home.provider.requests() == []


@pytest.mark.parametrize("resume", [False, True])
def test_a_replay_prints_the_stored_answer(home: Home, resume: bool) -> None:
    """The same ``--idempotency-key`` again: the stored answer, no model asked; with another text a conflict, exit 1."""
    if resume:
        home.chat("[[answer zero]]")
    flags = ["--idempotency-key", "key 1", *(["--resume", "latest"] if resume else [])]
    home.provider.forget()
    first = home.result(delegate_plan("[[answer one]]"), *flags)
    again = home.result(delegate_plan("[[answer one]]"), *flags)
    assert again == first
    assert len(home.provider.requests()) == 3
    conflict = home.result("another text", *flags)
    assert (conflict["exit_code"], "admission_conflict" in conflict["error"]["message"]) == (1, True)
    assert len(home.provider.requests()) == 3


def test_the_payload_is_what_can_be_submitted_again(home: Home) -> None:
    """It holds the text, whether the turn is finite, and the flags of the turn in their block; nothing stands twice."""
    home.chat("[[answer yes]]", "--max-turns", "7", "--toolsets", "delegation,files", "--deadline", "60")
    payload = json.loads(home.rows("SELECT payload_json FROM session_admissions")[0][0])
    block = payload.pop("cli_turn_v1")
    assert payload == {"text": "[[answer yes]]", "finite": True}
    assert block == {
        "model": "synthetic",
        "base_url": home.provider.url,
        "max_turns": 7,
        "toolsets": ["delegation", "files"],
        "deadline": 60.0,
    }


def test_sessions_are_listed_shown_exported_and_deleted(home: Home, tmp_path: Path) -> None:
    """Each with any unique beginning of the name; what is deleted keeps its receipts and can be resumed no more."""
    home.chat(delegate_plan("[[answer one]]"))
    session_id = only_session(home)
    assert session_id.encode() in home.other("sessions").stdout
    (line,) = json.loads(home.other("sessions", "list", "--format", "json").stdout)
    assert (line["session_id"], line["status"], line["turns"]) == (session_id, "idle", 1)
    shown = home.other("sessions", "show", "latest").stdout.decode()
    assert "completed" in shown
    assert json.loads(home.other("sessions", "show", session_id[:6], "--format", "json").stdout)["turns"][0]["payload"]
    exported = json.loads(home.other("sessions", "export", "latest").stdout)
    assert [one["role"] for one in exported["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert home.other("sessions", "export", "latest", "-o", str(tmp_path / "out.json")).returncode == 0
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8")) == exported
    assert home.other("sessions", "export", "latest", "-o", str(tmp_path / "no" / "x")).returncode == 2
    assert home.run(home.command("sessions", "delete", session_id[:6])).returncode == 0
    assert home.other("sessions", "list").stdout == b"There is no session under this home yet.\n"
    assert home.chat("hi", "--resume", session_id).returncode == 2
    assert messages(home, session_id) == []
    assert home.statuses() == [("completed", "")]


def test_resolve_needs_a_choice_and_a_turn(home: Home) -> None:
    """Without a flag exit 2; without a turn to decide about a message that says so."""
    home.chat("[[answer hi]]")
    assert home.other("sessions", "resolve", "latest").returncode == 2
    nothing = home.run(home.command("sessions", "resolve", "latest", "--discard"))
    assert nothing.returncode == 2
    assert b"has no turn to decide about" in nothing.stderr


def test_an_image_is_sent_and_kept_by_its_digest(home: Home, tmp_path: Path) -> None:
    """The model gets the image, the database its name; the next turn's history has it again."""
    picture = tmp_path / "a picture.dat"
    picture.write_bytes(PNG)
    assert home.chat("[[answer seen]]", "--image", str(picture)).returncode == 0
    payload = json.loads(home.rows("SELECT payload_json FROM session_admissions")[0][0])
    (image,) = payload["images"]
    assert image["media_type"] == "image/png"
    assert (home.path / "images" / image["sha256"]).read_bytes() == PNG
    assert base64.b64encode(PNG).decode() not in json.dumps(messages(home, only_session(home)))
    assert home.chat("[[answer again]]", "--resume", "latest").returncode == 0
    assert home.chat(None, "--image", str(picture), "--resume", "latest").returncode == 0


@pytest.mark.parametrize("content", [b"no image", b"", b"\x89PNG\r\n\x1a\n" + b"\0" * (20 << 20), None])
def test_what_is_no_image_is_refused(home: Home, tmp_path: Path, content: bytes | None) -> None:
    """Not an image by its content, too large, or not there: exit 2, naming the file, and nothing is run."""
    picture = tmp_path / "picture.png"
    if content is not None:
        picture.write_bytes(content)
    done = home.chat("hi", "--image", str(picture))
    assert done.returncode == 2
    assert b"picture.png" in done.stderr
    assert home.provider.requests() == []
