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
    Done,
    Drain,
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
from fanjoin.ipc.session_messages import (
    CreateSession,
    DelegateLine,
    DelegationList,
    Delegations,
    DeleteSession,
    Gap,
    ListSessions,
    MessagePage,
    PromptReceipt,
    ReadMessages,
    ResolveUnknown,
    SessionInfo,
    SessionLine,
    SessionList,
    SessionSnapshot,
    Subscribe,
    TurnLine,
    TurnReceipt,
    Unsubscribe,
)
from fanjoin.ipc.settings import (
    DelegationLimits,
    Endpoint,
    ModelLimits,
    Route,
    SupervisorSettings,
    TerminalSettings,
    TurnSettings,
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
    max_attempts=10,
    memory_limit_mb=11,
)
MODEL_LIMITS = ModelLimits(connect=1.0, first_byte=2.0, between_bytes=3.0, whole_call=4.0)
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
    terminal=TerminalSettings(env="local", timeout=15.0, env_passthrough=("A*",), completion_wait=16.0),
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
    joins_detached=True,
    output_schema={"type": "object"},
    toolsets=("files", "delegation"),
    route_notes={"fast": "quick"},
    max_steps=17,
    max_tokens_total=18,
    cwd="/w",
    ignore_rules=True,
    transcript_path="/h/t.jsonl",
    summary_path="/h/s.txt",
    limits=LIMITS,
    model_limits=MODEL_LIMITS,
)
CALL = CallRequest(
    tool_call_id="call_1",
    tasks=[
        TaskSpec(goal="a", context="b", role="orchestrator", output_schema={"type": "object"}, route="fast"),
        TaskSpec(goal="c"),
    ],
    shared_context="shared",
)
CREATE = CreateSession(
    request_id="r_zero",
    fields={"model": "m"},
    settings={"model": "m", "cwd": "/w"},
    principal_id="somebody",
    source="gateway",
    title="a title",
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
    create=CREATE,
    wait_if_held=True,
)
TURN = TurnLine(admission_id="t_one", input_id="r_one", sequence=7, status="unknown", text="hello")
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
    Drain(request_id="r_one", now=True),
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
        recorded=False,
        storage_error="disk full",
    ),
    Pong(request_id="r_one"),
    Refused(request_id="r_one", reason="not_found", message="no such delegate"),
    Done(request_id="r_one"),
    CREATE,
    Subscribe(request_id="r_one", session_id="latest", since=8, instance_id="i_run", settings=SETTINGS),
    Unsubscribe(request_id="r_one", session_id="s_one"),
    PromptReceipt(
        request_id="r_one", session_id="s_one", input_id="r_two", admission_id="t_one", principal_id="somebody"
    ),
    ResolveUnknown(request_id="r_one", session_id="s_one", retry=True, admission_id="t_one", settings=SETTINGS),
    ListSessions(request_id="r_one", limit=5),
    SessionInfo(request_id="r_one", session_id="s_one"),
    ReadMessages(request_id="r_one", session_id="s_one", before=10),
    DeleteSession(request_id="r_one", session_id="s_one"),
    DelegationList(request_id="r_one", session_id="s_one"),
    SessionSnapshot(
        request_id="r_one",
        session_id="s_one",
        title="a title",
        source="gateway",
        settings={"model": "m"},
        created_at=1.5,
        messages=[{"role": "user", "content": "x"}],
        first=2,
        message_count=3,
        turns=[TURN],
        pending=1,
        sequence=8,
        instance_id="i_run",
        created=True,
    ),
    SessionList(
        request_id="r_one",
        sessions=[
            SessionLine(
                session_id="s_one",
                title="a title",
                source="cli",
                cwd="/w",
                status="idle",
                turns=2,
                created_at=1.5,
                used_at=2.5,
            )
        ],
    ),
    MessagePage(
        request_id="r_one",
        session_id="s_one",
        messages=[{"role": "user", "content": "x"}],
        first=2,
        message_count=3,
    ),
    TurnReceipt(
        request_id="r_one",
        session_id="s_one",
        admission_id="t_one",
        input_id="r_two",
        sequence=7,
        status="terminal",
        outcome={"a": 1},
        results=[{"task_index": 0}],
    ),
    Delegations(
        request_id="r_one",
        delegates=[
            DelegateLine(
                receipt_id="d_one",
                delegation_id="c_one",
                session_id="s_one",
                admission_id="t_one",
                goal="a",
                status="running",
                pid=42,
                started_at=1.5,
            )
        ],
    ),
    Gap(session_id="s_one", first=3, last=6),
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
        submit=SUBMIT,
        environ={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
        daemon=True,
    ),
    CoreReady(endpoints=ENDPOINTS, error="no", exit_code=2),
]
