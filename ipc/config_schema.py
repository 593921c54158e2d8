"""Every setting: its name, what its value must look like, and which levels besides the file may give it.

A row's default is the one of the struct that takes the value (``ipc/settings.py``), so that it stands only once.
"""

from msgspec import Struct

from fanjoin.ipc import config_kinds as kind
from fanjoin.ipc.settings import (
    ApprovalSettings,
    DelegationLimits,
    ModelLimits,
    Price,
    SupervisorSettings,
    TerminalSettings,
    TurnSettings,
)


class Key(Struct, frozen=True, kw_only=True):
    """One setting.

    ``flag`` is the name that flags and sessions use for it, ``variable`` the environment's. ``target`` and ``field``
    say which member of which struct takes the value. ``in_file`` is false for what belongs to one turn only. Messages
    do not repeat the value of a ``secret`` setting: people write keys where the name of a variable belongs.
    """

    kind: kind.Kind
    target: type[Struct] | None = None
    field: str = ""
    flag: str = ""
    variable: str = ""
    in_file: bool = True
    secret: bool = False
    fallback: object = None

    @property
    def default(self) -> object:
        """The value when no level gives one."""
        return self.fallback if self.target is None else _defaults(self.target)[self.field]


def _defaults(target: type[Struct]) -> dict[str, object]:
    """Return the members of a struct that have a default, with it."""
    defaults = target.__struct_defaults__
    return dict(zip(target.__struct_fields__[-len(defaults) :], defaults, strict=True))


def _limit(name: str, check: kind.Kind, flag: str = "") -> Key:
    return Key(kind=check, target=DelegationLimits, field=name, flag=flag)


def _model_limit(name: str) -> Key:
    return Key(kind=kind.seconds(above_zero=True), target=ModelLimits, field=name)


API_MODES = ("chat_completions", "anthropic_messages", "responses")
PROVIDERS = ("custom", "local")
REASONING = ("none", "low", "medium", "high")

MODEL_KEYS = {
    "model.provider": Key(kind=kind.choice(*PROVIDERS), flag="provider"),
    "model.model": Key(kind=kind.text, flag="model"),
    "model.base_url": Key(kind=kind.url, flag="base_url", variable="OPENAI_BASE_URL"),
    "model.api_key": Key(kind=kind.secret, flag="api_key", variable="OPENAI_API_KEY", secret=True),
    "model.api_key_env": Key(kind=kind.variable, secret=True, flag="api_key_env"),
    "model.api_mode": Key(kind=kind.choice(*API_MODES)),
    "model.reasoning_effort": Key(kind=kind.choice(*REASONING), flag="reasoning"),
}
ROUTE_FIELDS = {
    "model": Key(kind=kind.text),
    "base_url": Key(kind=kind.url),
    "api_key_env": Key(kind=kind.variable, secret=True),
    "api_mode": Key(kind=kind.choice(*API_MODES)),
    "reasoning_effort": Key(kind=kind.choice(*REASONING)),
    "description": Key(kind=kind.text),
}
DELEGATION_KEYS = {
    "delegation.toolsets": Key(kind=kind.toolsets),
    "delegation.max_concurrent_children": _limit("max_concurrent_children", kind.whole(1), "concurrency"),
    "delegation.max_tasks": _limit("max_tasks", kind.whole(1)),
    "delegation.max_total_children": _limit("max_total_children", kind.whole(1)),
    "delegation.max_spawn_depth": _limit("max_spawn_depth", kind.whole(1, 16)),
    "delegation.max_iterations": _limit("max_iterations", kind.whole(1)),
    "delegation.child_timeout_seconds": _limit("child_timeout_seconds", kind.seconds(), "timeout"),
    "delegation.stall_seconds": _limit("stall_seconds", kind.seconds()),
    "delegation.cancel_grace_seconds": _limit("cancel_grace_seconds", kind.seconds()),
    "delegation.max_summary_chars": _limit("max_summary_chars", kind.whole(1)),
    "delegation.max_result_chars": _limit("max_result_chars", kind.whole(1)),
    "delegation.max_attempts": _limit("max_attempts", kind.whole(1, 10)),
    "delegation.memory_limit_mb": _limit("memory_limit_mb", kind.memory),
    "delegation.launcher": Key(
        kind=kind.choice("auto", "zygote", "spawn"), target=SupervisorSettings, field="launcher"
    ),
    "delegation.provider": Key(kind=kind.choice(*PROVIDERS)),
    "delegation.model": Key(kind=kind.text),
    "delegation.base_url": Key(kind=kind.url),
    "delegation.api_key": Key(kind=kind.secret, secret=True),
    "delegation.api_key_env": Key(kind=kind.variable, secret=True),
    "delegation.api_mode": Key(kind=kind.choice(*API_MODES)),
    "delegation.reasoning_effort": Key(kind=kind.choice(*REASONING)),
}
NOT_BUILT = (
    "gateway.multiplex_profiles",
    "auxiliary.title_generation.enabled",
    "memory.memory_enabled",
    "memory.user_profile_enabled",
)
"""Accepted, but ``true`` only warns: what they switch on is not there."""

KEYS: dict[str, Key] = {
    **MODEL_KEYS,
    "toolsets": Key(kind=kind.toolsets, target=TurnSettings, field="toolsets", flag="toolsets"),
    "agent.max_turns": Key(kind=kind.whole(1), target=TurnSettings, field="max_turns", flag="max_turns"),
    **DELEGATION_KEYS,
    "supervisor.max_processes": Key(kind=kind.whole(1), target=SupervisorSettings, field="max_processes"),
    "supervisor.silence_seconds": Key(
        kind=kind.seconds(above_zero=True), target=SupervisorSettings, field="silence_seconds"
    ),
    "supervisor.transport": Key(kind=kind.choice("auto", "ipc", "tcp"), target=SupervisorSettings, field="transport"),
    "daemon.drain_seconds": Key(kind=kind.seconds(), target=SupervisorSettings, field="drain_seconds"),
    "provider.connect_seconds": _model_limit("connect"),
    "provider.first_byte_seconds": _model_limit("first_byte"),
    "provider.between_bytes_seconds": _model_limit("between_bytes"),
    "provider.whole_call_seconds": _model_limit("whole_call"),
    "provider.max_output_tokens": Key(kind=kind.whole(0), target=ModelLimits, field="max_output_tokens"),
    "terminal.env": Key(kind=kind.choice("local"), target=TerminalSettings, field="env"),
    "terminal.timeout": Key(kind=kind.seconds(above_zero=True), target=TerminalSettings, field="timeout"),
    "terminal.env_passthrough": Key(kind=kind.names, target=TerminalSettings, field="env_passthrough"),
    "terminal.oneshot_completion_wait_seconds": Key(
        kind=kind.seconds(), target=TerminalSettings, field="completion_wait"
    ),
    "approvals.mode": Key(kind=kind.choice("ask", "allow", "deny"), target=ApprovalSettings, field="mode"),
    "approvals.allow": Key(kind=kind.patterns, target=ApprovalSettings, field="allow"),
    "approvals.deny": Key(kind=kind.patterns, target=ApprovalSettings, field="deny"),
    "approvals.private_hosts": Key(kind=kind.names, target=ApprovalSettings, field="private_hosts"),
    **{name: Key(kind=kind.truth, fallback=False) for name in NOT_BUILT},
    "cwd": Key(kind=kind.path, flag="cwd", variable="FANJOIN_CWD", in_file=False),
    "deadline": Key(kind=kind.seconds(), target=TurnSettings, field="deadline_seconds", flag="deadline", in_file=False),
    "max_tokens_total": Key(
        kind=kind.whole(0), target=TurnSettings, field="max_tokens_total", flag="max_tokens_total", in_file=False
    ),
    "max_failures": Key(
        kind=kind.whole(0), target=TurnSettings, field="max_failures", flag="max_failures", in_file=False
    ),
    "ignore_rules": Key(kind=kind.truth, target=TurnSettings, field="ignore_rules", flag="ignore_rules", in_file=False),
    "allow": Key(kind=kind.patterns, target=TurnSettings, field="allow", flag="allow", in_file=False),
}
"""Every setting by its dotted name, in the order in which it is shown."""

ALIASES = {"model.default": "model.model", "terminal.backend": "terminal.env"}
ROUTES = "delegation.routes"
PRICES = "prices"
PRICE_FIELDS = {name: Key(kind=kind.price, target=Price, field=name) for name in ("input", "output", "cached")}
NAMED = {ROUTES: ROUTE_FIELDS, PRICES: PRICE_FIELDS}
"""The sections whose members the user names, with the fields that each member has."""

FILE_KEYS = {name: key for name, key in KEYS.items() if key.in_file}
SECTIONS = {name[:end] for name in FILE_KEYS for end, letter in enumerate(name) if letter == "."}
