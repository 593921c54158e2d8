"""``fanjoin demo``: the main job on real files, without a key and without a network.

It runs ``fanjoin chat`` itself, against an embedded provider: one delegate for each file, one of them killed on purpose
in the middle, and an answer that has to tell the truth about all of them.
"""

import shutil
import tempfile
import time
from pathlib import Path

import click

from fanjoin.cli.app import Start
from fanjoin.cli.demo_files import HELD_BACK, REAL, SYNTHETIC, Limits, goals_for, query_for, select
from fanjoin.cli.demo_run import DemoRun, say, shortcomings
from fanjoin.cli.signals import InterruptedRunError
from fanjoin.cli.streams import write_line
from fanjoin.client.local_model import EmbeddedProvider, start_provider
from fanjoin.ipc.errors import FanjoinError


@click.command("demo")
@click.option("--files", metavar="GLOB", help="Files to read; default: the documents of this folder or checkout.")
@click.option("--synthetic", is_flag=True, help="Use the synthetic provider: it counts, no model reads anything.")
@click.option("--model-file", metavar="GGUF", help="Weights for the local model; default: the installed ones.")
@click.option("--keep", is_flag=True, help="Keep the demo's home folder, with its receipts and transcripts.")
@click.pass_obj
def demo_command(start: Start, *, files: str | None, synthetic: bool, model_file: str | None, keep: bool) -> int:
    """Fan out over real files with an embedded model, kill one delegate in the middle, and join the rest.

    Needs no key and no network.
    """
    folder = Path(tempfile.mkdtemp(prefix="fanjoin-demo-"))
    start.interrupts.listen()
    try:
        with start.interrupts.raising():
            return _run(folder, files, model_file, synthetic=synthetic)
    except InterruptedRunError:
        say("interrupted; everything that ran was ended")
        return start.interrupts.exit_code()
    finally:
        if keep:
            say(f"kept: `fanjoin receipts list` reads it with FANJOIN_HOME={folder / 'home'}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, files: str | None, model_file: str | None, *, synthetic: bool) -> int:
    """Run the demo with a folder of its own and return the exit code."""
    began = time.monotonic()
    log = folder / "requests.jsonl"
    provider, limits = _start(log, model_file, synthetic=synthetic)
    with provider:
        documents = select(files, limits)
        victim = len(documents) // 2
        goals = goals_for(documents, victim)
        name = documents[victim].name
        say(f"{len(documents)} files, one delegate each; the one that reads {name} will be killed on purpose")
        say(f"(its goal begins with {HELD_BACK.strip()}, by which the provider keeps it waiting until then)")
        run = DemoRun(folder, provider, log)
        outcome = run.chat(query_for(documents, goals), goals[victim])
    write_line(outcome.answer)
    run.show_receipts()
    wrong = shortcomings(outcome, goals, victim)
    took = f"({time.monotonic() - began:.1f} s)"
    say(f"not as it should be: {'; '.join(wrong)} {took}" if wrong else f"everything ended as it should {took}")
    return 1 if wrong else 0


def _start(log: Path, model_file: str | None, *, synthetic: bool) -> tuple[EmbeddedProvider, Limits]:
    """Start the local model, or the synthetic provider when it is asked for or no model is installed.

    Raises:
        FanjoinError: the weights that were named cannot be used.
    """
    named = ("--model-file", model_file) if model_file else ()
    if not synthetic:
        say("starting the local model ...")
        try:
            return start_provider("--local", "--max-tokens", "48", "--log", str(log), *named), REAL
        except FanjoinError as error:
            if model_file:
                raise
            say(f"{error}\ndemo: going on with the synthetic provider: it counts, no model reads the files")
    return start_provider("--log", str(log)), SYNTHETIC
