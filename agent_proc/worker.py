"""The entry of a delegate whose work a program does: it is started, fed, read and ended here, and judged by its end.

The process is the same as any agent's: it has its own session, speaks with the supervisor, and adopts what the program
leaves behind. The goal goes to the program's standard input and never into its argument list, which others can read.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from typing import IO

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.capture import Capture
from fanjoin.agent_proc.link import Link, exit_now
from fanjoin.agent_proc.summary import shortened
from fanjoin.agent_proc.transcript import Transcript
from fanjoin.agent_proc.worker_result import ended_badly, result
from fanjoin.ipc import platform
from fanjoin.ipc.bootstrap import AgentBootstrap
from fanjoin.ipc.messages import AgentTask, Cancel, JsonObject, Outcome, Started
from fanjoin.ipc.settings import Worker
from fanjoin.ipc.text import mask_in

OUTPUT_BYTES = 16 << 20
"""How much of a program's standard output is kept; of a longer one the beginning and the end."""
ERROR_BYTES = 256 << 10
"""The same for its standard error, which goes to the transcript."""
VARIABLE_BYTES = 64 << 10
"""A context up to this size is a variable; systems limit those, and a longer one is a file."""
_GRACE_SHARE = 0.8
"""Of the grace after which the supervisor ends this process, so that what the program said is still told."""
_SECRET_CHARACTERS = 8
_TAIL_BYTES = 2_000


def run(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Run one program to its end, which is the end of this process; the arguments are those of every agent."""
    try:
        program = Program()
        # The group is asked to end as a whole, and this process is in it. A handler, unlike SIG_IGN, is not inherited.
        signal.signal(signal.SIGTERM, lambda *_: None)
        link = Link(bootstrap, Account(), stop=program.stop)
        link.start(lifeline)
        task = link.welcome()
        link.send(Started)
        link.finish(shortened(program.run(task), task))
    except BaseException:  # noqa: BLE001 - this process must not return into its launcher
        traceback.print_exc()
        exit_now(1)


class Program:
    """One program at work. ``stop`` may be called by another thread at any moment."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._cancel: Cancel | None = None

    def stop(self, cancel: Cancel) -> None:
        """Ask the program to end, and end it when it has not obeyed in time."""
        self._cancel = cancel
        if self._process is not None:
            self._end(self._process, cancel)

    def _end(self, process: "subprocess.Popen[bytes]", cancel: Cancel) -> None:
        platform.polite_stop(os.getpid())
        killer = threading.Timer(cancel.grace_seconds * _GRACE_SHARE, process.kill)
        killer.daemon = True
        killer.start()

    def run(self, task: AgentTask) -> Outcome:
        """Do the task and return how it ended."""
        worker = task.worker or Worker(command=())
        transcript = Transcript(task.transcript_path, "")
        transcript.add("message", role="user", content=task.text, command=list(worker.command))
        try:
            outcome, said = self._carry_out(task, worker)
        except (OSError, ValueError) as error:
            message = f"{' '.join(worker.command)} could not be started: {error}"
            outcome, said = Outcome(status="failed", reason="spawn_failed", message=message), ""
        transcript.add("stderr", text=said)
        transcript.add("end", status=outcome.status, reason=outcome.reason, message=outcome.message)
        transcript.close()
        return outcome

    def _carry_out(self, task: AgentTask, worker: Worker) -> tuple[Outcome, str]:
        """Return the outcome and what the program said on standard error."""
        if self._cancel is not None:
            return _cancelled(self._cancel, ""), ""
        kills = platform.oom_kills()
        process = self._start(task, worker)
        output, errors = _captured(process.stdout, OUTPUT_BYTES), _captured(process.stderr, ERROR_BYTES)
        if self._cancel is not None:
            self._end(process, self._cancel)
        code = process.wait()
        output.settle()
        errors.settle()
        said = _masked(errors.text(), task, worker)
        with contextlib.suppress(OSError):  # a full disk
            sys.stderr.write(said[-_TAIL_BYTES:])  # the log of this process, whose end is kept with its attempt
            sys.stderr.flush()
        if self._cancel is not None:
            return _cancelled(self._cancel, output.text()), said
        if code:
            starved = kills is not None and (platform.oom_kills() or 0) > kills
            return ended_badly(code, output.text(), said, starved=starved), said
        return result(output, worker, task), said

    def _start(self, task: AgentTask, worker: Worker) -> "subprocess.Popen[bytes]":
        self._process = process = subprocess.Popen(
            worker.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=task.cwd or None,
            env=environment(task, worker),
            bufsize=0,
        )
        said = f"{_context(task)}\n\n{task.text}" if worker.context_first and _context(task) else task.text
        threading.Thread(target=_feed, args=(process.stdin, said.encode()), daemon=True).start()
        return process


def _feed(stdin: IO[bytes], data: bytes) -> None:
    """Write the goal; a program that does not want it has its reasons."""
    with contextlib.suppress(OSError), stdin:
        while data:
            data = data[stdin.write(data) :]


def _captured(stream: IO[bytes] | None, limit: int) -> Capture:
    assert stream is not None  # noqa: S101 - the program was started with pipes
    return Capture(stream, limit)


def _cancelled(cancel: Cancel, output: str) -> Outcome:
    return Outcome(status="cancelled", reason=cancel.reason, message="ended on request", partial_text=output[-24_000:])


def _context(task: AgentTask) -> str:
    return "\n\n".join(filter(None, (task.shared_context, task.context)))


def environment(task: AgentTask, worker: Worker) -> dict[str, str]:
    """Return what a program finds in its environment: the allow-list, what its user added, and our variables."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("FANJOIN_")}
    ours |= {"FANJOIN_RECEIPT_ID": task.owner_id, "FANJOIN_SESSION_ID": task.session_id}
    ours["FANJOIN_TASK_ID"] = task.task_id
    context = _context(task).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(context.encode()) <= VARIABLE_BYTES:
        ours["FANJOIN_CONTEXT"] = context
    else:
        ours["FANJOIN_CONTEXT_FILE"] = _written(f"{task.summary_path}.context", context)
    if task.output_schema is not None:
        ours["FANJOIN_OUTPUT_SCHEMA"] = _json(task.output_schema)
    return {**os.environ, **worker.env, **task.env, **ours}


def _json(schema: JsonObject) -> str:
    from fanjoin.agent_proc import jsontext

    return jsontext.write(schema)


def _written(path: str, text: str) -> str:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return path


def _masked(text: str, task: AgentTask, worker: Worker) -> str:
    """Return what may be written of a text: the values that a user handed in may be keys."""
    for value in {*worker.env.values(), *task.env.values()}:
        text = mask_in(text, value) if len(value) >= _SECRET_CHARACTERS else text
    return text
