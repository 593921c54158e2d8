"""Children that crash, hang or vanish, next to one that does its work."""

from run_support import MISBEHAVE, Home, delegate_plan


def test_each_fate_has_its_own_status_and_reason(home: Home) -> None:
    """Six children end in six ways; the run joins all of them, in task order, and is itself completed."""
    home.config("delegation: {child_timeout_seconds: 1.5, cancel_grace_seconds: 0.3}")
    query = delegate_plan("sigkill", "segfault", "exit3", "exit0", "[[hang]]", "count these words")
    result = home.result(query, entry=MISBEHAVE)
    fates = [(entry["status"], entry.get("error", {}).get("reason")) for entry in result["results"]]
    assert fates == [
        ("crashed", "killed"),
        ("crashed", "signal"),
        ("crashed", "exit_code"),
        ("crashed", "no_result"),
        ("timeout", "child_timeout"),
        ("completed", None),
    ]
    exits = [entry["exit"] for entry in result["results"][:4]]
    assert exits == [
        {"code": None, "signal": "SIGKILL"},
        {"code": None, "signal": "SIGSEGV"},
        {"code": 3, "signal": None},
        {"code": 0, "signal": None},
    ]
    assert result["exit_code"] == 0
    assert [entry["task_index"] for entry in result["results"]] == list(range(6))
