"""One sample of each message of protocol version 1, every field set to something that is not its default."""

from msgspec import Struct

from fanjoin.ipc.bootstrap import AgentBootstrap, CoreBootstrap, CoreReady
from fanjoin.ipc.codec import Spooled
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.messages import (
    Accepted,
    AgentTask,
    Attach,
    Bye,
    CallAnswer,
    CallRequest,
    Cancel,
    CancelDelegate,
    CancelTurn,
    Delegate,
    DirectTask,
    Done,
    Event,
    Hello,
    Joined,
    Outcome,
    Ping,
    Pong,
    Progress,
    Refused,
    Reject,
    Result,
    ResultAck,
    Started,
    Submit,
    TaskSpec,
    ToolTrace,
    TurnDone,
    Usage,
    Welcome,
)
from fanjoin.ipc.settings import (
    ApprovalSettings,
    DelegationLimits,
    Endpoint,
    ModelLimits,
    Price,
    Route,
    SupervisorSettings,
    TerminalSettings,
    TurnSettings,
    Worker,
)

WHO = {"run_id": "i_run", "attempt_id": "d_one.1"}
USAGE = Usage(input_tokens=3, output_tokens=2, cached_tokens=1)
TRACE = [ToolTrace(tool="read_file", preview="a.txt", ok=False, duration_seconds=0.5)]
ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:9/v1", model="m", api_key="k", api_mode="chat_completions", reasoning_effort="low"
)
LIMITS = DelegationLimits(
    max_concurrent_children=2,
    max_tasks=3,
    max_total_children=4,
    max_spawn_depth=2,
    max_iterations=5,
    child_timeout_seconds=6.0,
    stall_seconds=7.0,
    cancel_grace_seconds=8.0,
    max_summary_chars=9,
    max_result_chars=10,
    max_attempts=10,
    memory_limit_mb=11,
)
MODEL_LIMITS = ModelLimits(connect=1.0, first_byte=2.0, between_bytes=3.0, whole_call=4.0)
WORKER = Worker(command=("prog", "--flag"), env={"A": "b"}, output="json", result_key="response", context_first=True)
SETTINGS = TurnSettings(
    endpoint=ENDPOINT,
    delegate_endpoint=Endpoint(base_url="http://127.0.0.1:8/v1", model="small"),
    routes={"fast": Route(endpoint=ENDPOINT, description="quick")},
    toolsets=("delegation",),
    delegate_toolsets=(),
    cwd="/w",
    max_turns=12,
    ignore_rules=True,
    deadline_seconds=13.0,
    max_tokens_total=14,
    limits=LIMITS,
    model_limits=MODEL_LIMITS,
    allow=("ls *",),
    terminal=TerminalSettings(
        env="local", timeout=15.0, env_passthrough=("A*",), completion_wait=16.0, environment={"A": "b"}
    ),
    approvals=ApprovalSettings(mode="deny", allow=("a *",), deny=("b",)),
    prices={"m": Price(input=1.0, output=2.0, cached=0.5)},
    worker=WORKER,
    max_failures=17,
)
OUTCOME = Outcome(
    status="failed",
    reason="rate_limit",
    message="slow down",
    text="grüße",
    partial_text="half",
    steps=4,
    usage=USAGE,
    trace=TRACE,
    output={"n": 1},
    summary_truncated=True,
    summary_path="/h/s.txt",
    exit_code=3,
    exit_signal="SIGTERM",
)
TASK = AgentTask(
    owner_id="d_one",
    session_id="s_one",
    text="goal",
    depth=1,
    finite=False,
    role="orchestrator",
    shared_context="shared",
    context="own",
    history=[{"role": "user", "content": "before"}],
    images=[{"type": "image_url"}],
    output_schema={"type": "object"},
    toolsets=("files", "delegation"),
    route_notes={"fast": "quick"},
    max_steps=17,
    max_tokens_total=18,
    cwd="/w",
    ignore_rules=True,
    transcript_path="/h/t.jsonl",
    summary_path="/h/s.txt",
    share_chars=19,
    approvals=SETTINGS.approvals,
    terminal=SETTINGS.terminal,
    limits=LIMITS,
    model_limits=MODEL_LIMITS,
    task_id="one",
    env={"A": "b"},
    worker=WORKER,
)
CALL = CallRequest(
    tool_call_id="call_1",
    tasks=[
        TaskSpec(goal="a", context="b", role="orchestrator", output_schema={"type": "object"}, route="fast"),
        TaskSpec(goal="c"),
    ],
    shared_context="shared",
)
SUBMIT = Submit(
    request_id="r_one",
    session_id="s_one",
    text="hello",
    finite=True,
    payload_json="{}",
    settings=SETTINGS,
    principal_id="somebody",
    source="gateway",
    title="a title",
    images=[{"type": "image_url"}],
    tasks=[
        DirectTask(
            goal="count",
            context="these",
            output_schema={"type": "object"},
            route="fast",
            task_id="one",
            digest="d",
            cwd="/w",
            timeout_seconds=2.5,
            env={"A": "b"},
        )
    ],
)
ENDPOINTS = Endpoints(
    back="ipc:///r/b",
    front="ipc:///r/f",
    spool="/r/spool",
    server_key="S",
    client_public="P",
    client_secret="C",  # noqa: S106 - a sample
)

MESSAGES: list[Struct] = [
    Hello(**WHO, nonce="n", pid=42),
    Started(**WHO),
    Progress(
        **WHO,
        step=1,
        delta="text",
        tool_started="read_file",
        trace=TRACE,
        usage=USAGE,
        messages=[{"role": "assistant", "content": "x"}],
        notice="note",
    ),
    Delegate(**WHO, join_id="j_one", calls=[CALL]),
    Result(**WHO, outcome=OUTCOME),
    Bye(**WHO, childless=True),
    Welcome(task=TASK),
    Reject(reason="unknown process"),
    Joined(join_id="j_one", answers=[CallAnswer(tool_call_id="call_1", content="{}")]),
    Cancel(reason="cancelled", grace_seconds=4.0),
    ResultAck(),
    Attach(viewer="owner"),
    SUBMIT,
    CancelTurn(admission_id="t_one", reason="viewer_lost", now=True),
    CancelDelegate(request_id="r_one", target_id="d_one"),
    Ping(request_id="r_one"),
    Accepted(
        request_id="r_one", session_id="s_one", admission_id="t_one", sequence=7, status="started", outcome={"a": 1}
    ),
    Event(session_id="s_one", admission_id="t_one", sequence=8, name="turn.started", data={"n": None}),
    TurnDone(
        session_id="s_one",
        admission_id="t_one",
        status="failed",
        reason="network",
        message="no route",
        answer="so far",
        retryable=True,
        usage=USAGE,
        usage_total=USAGE,
        results=[{"task_index": 0}],
        cost={"cost": 1.5, "cost_total": None},
        recorded=False,
        storage_error="disk full",
    ),
    Pong(request_id="r_one"),
    Refused(request_id="r_one", reason="not_found", message="no such delegate"),
    Done(request_id="r_one"),
    Spooled(name="0f", size=9, sha256="00"),
]

FRAMES: list[Struct] = [
    AgentBootstrap(
        **WHO,
        nonce="n",
        entry="module:function",
        depth=1,
        endpoints=ENDPOINTS,
        endpoint=ENDPOINT,
        memory_limit_mb=19,
        backstop=5,
    ),
    CoreBootstrap(
        home="/h",
        instance_id="i_run",
        owned=True,
        agent_entry="module:function",
        settings=SupervisorSettings(
            max_processes=2, launcher="spawn", transport="tcp", silence_seconds=3.0, drain_seconds=4.0
        ),
        worker_entry="module:worker",
        submit=SUBMIT,
    ),
    CoreReady(endpoints=ENDPOINTS, error="no", exit_code=2),
]
