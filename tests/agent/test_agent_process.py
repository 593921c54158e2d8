"""One agent as a real process, between a supervisor's socket and a model server."""

from agent_support import (
    KEY,
    Supervisor,
    says,
    serving,
    task,
)

from fanjoin.ipc.messages import Hello, Started


def test_one_answer(supervisor: Supervisor) -> None:
    """An agent says hello, asks the model once, and its answer and token counts arrive."""
    with serving(says("Hello", ", world")) as server:
        outcome = supervisor.run(server.endpoint, task("greet"))
    assert (outcome.status, outcome.text, outcome.steps) == ("completed", "Hello, world", 1)
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (10, 5)
    assert [type(message) for message in supervisor.seen][:2] == [Hello, Started]
    assert "".join(progress.delta for progress in supervisor.progress()) == "Hello, world"
    assert server.bodies[0]["messages"][1] == {"role": "user", "content": "greet"}
    assert "tools" not in server.bodies[0]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
