"""Resolved settings: what a turn, a supervisor and a model endpoint run with.

``config.py`` makes these from flag, session, environment and file; the other processes only ever see the result.
Defaults stand here and nowhere else.
"""

from typing import Literal

from msgspec import Struct, field

from fanjoin.ipc.text import mask_secret

TOOLSETS = ("delegation", "files", "terminal", "web")
"""The toolsets that there are."""


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
    max_result_chars: int = 200_000
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
    ``environment`` is what commands see of the caller's environment; it may hold what no file should.
    """

    env: str = "local"
    timeout: float = 180.0
    env_passthrough: tuple[str, ...] = ()
    completion_wait: float = 10.0
    environment: dict[str, str] = field(default_factory=dict)


class ApprovalSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What tools may do without asking: ``allow`` and ``deny`` are patterns, and a deny counts more.

    ``private_hosts`` are those with an address inside of this machine or its network that pages may be fetched from.
    """

    mode: Literal["ask", "allow", "deny"] = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    private_hosts: tuple[str, ...] = ()


class Price(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a million tokens of a model cost, in a currency of the user's; ``cached`` None means as any input."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None


class Worker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program that does the work of delegates instead of our own agent.

    ``command`` is its argument list, which no shell reads; ``env`` what it sees besides the allow-list. ``output``
    says how its standard output is read: ``text``, ``json`` (one object) or ``last-line-json``, of which
    ``result_key`` names the member that is the result. ``context_first``: it knows nothing of our variables, so a
    task's context goes before the goal on its standard input.
    """

    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    output: str = "text"
    result_key: str = "result"
    context_first: bool = False


class TurnSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that one turn runs with. It holds keys: it is sent, and never written anywhere.

    ``max_failures`` ends a turn of given tasks when so many of them did not complete, 0 = never.
    """

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
    approvals: ApprovalSettings = ApprovalSettings()
    prices: dict[str, Price] = field(default_factory=dict)
    worker: Worker | None = None
    max_failures: int = 0


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
