"""Resolved settings: what a turn, a supervisor and a model endpoint run with.

``config.py`` makes these from flag, session, environment and file; the other processes only ever see the result.
Defaults stand here and nowhere else.
"""

from msgspec import Struct, field

from fanjoin.ipc.text import mask_secret


class Endpoint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model behind one URL. ``api_key`` may be empty: many local servers need none."""

    base_url: str
    model: str
    api_key: str = ""
    api_mode: str = "chat_completions"
    reasoning_effort: str = ""

    def __repr__(self) -> str:
        """Show everything but the key, so that no log or traceback can hold it."""
        return f"Endpoint({self.model!r} at {self.base_url!r}, key {mask_secret(self.api_key)})"


class Route(Struct, frozen=True, kw_only=True):
    """An endpoint of the operator that a task may ask for by its name."""

    endpoint: Endpoint
    description: str = ""


class DelegationLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of one root turn and of everything below it. Times in seconds, 0 = none."""

    max_concurrent_children: int = 8
    max_tasks: int = 64
    max_total_children: int = 200
    max_spawn_depth: int = 1
    max_iterations: int = 50
    child_timeout_seconds: float = 0.0
    stall_seconds: float = 600.0
    cancel_grace_seconds: float = 4.0
    max_summary_chars: int = 24_000
    max_attempts: int = 1
    memory_limit_mb: int = 0


class ModelLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long a model call may take, in seconds. A silent stream is cut after ``between_bytes``.

    ``max_output_tokens`` is the limit of one reply; 0 leaves it to the server.
    """

    connect: float = 15.0
    first_byte: float = 300.0
    between_bytes: float = 120.0
    whole_call: float = 1800.0
    max_output_tokens: int = 0


class TerminalSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How tools run commands: seconds per command, and what they see of the caller's environment in addition.

    ``completion_wait`` is how many seconds a finite run lingers for background commands that announce their end.
    """

    env: str = "local"
    timeout: float = 180.0
    env_passthrough: tuple[str, ...] = ()
    completion_wait: float = 10.0


class TurnSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that one turn runs with. It holds keys: it is sent, and never written anywhere."""

    endpoint: Endpoint
    delegate_endpoint: Endpoint
    routes: dict[str, Route] = field(default_factory=dict)
    toolsets: tuple[str, ...] = ("delegation", "files")
    delegate_toolsets: tuple[str, ...] = ("files",)
    cwd: str = ""
    max_turns: int = 90
    ignore_rules: bool = False
    deadline_seconds: float = 0.0
    max_tokens_total: int = 0
    limits: DelegationLimits = field(default_factory=DelegationLimits)
    model_limits: ModelLimits = field(default_factory=ModelLimits)
    allow: tuple[str, ...] = ()
    terminal: TerminalSettings = field(default_factory=TerminalSettings)


class SupervisorSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a supervisor itself runs with.

    ``silence_seconds`` is how long a viewer waits for its supervisor's sign of life, ``drain_seconds`` how long a
    daemon that stops waits for its running turns.
    """

    max_processes: int = 64
    launcher: str = "auto"
    transport: str = "auto"
    silence_seconds: float = 20.0
    drain_seconds: float = 30.0
