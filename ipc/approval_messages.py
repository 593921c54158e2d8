"""Protocol version 1, the part about approvals: the root of a turn asks, the viewer that brought the turn decides.

``patterns`` are those that would allow what is asked about and its like. A turn has at most one open question.
"""

from msgspec import Struct


class AskApproval(Struct, frozen=True, kw_only=True, tag="ask_approval"):
    """Agent to supervisor: may I do ``what``? The agent waits for ``ApprovalDecided``. Only where its task ``asks``."""

    run_id: str
    attempt_id: str
    approval_id: str
    what: str
    patterns: list[str]


class ApprovalAsked(Struct, frozen=True, kw_only=True, tag="approval_asked"):
    """Supervisor to viewer: that question. A viewer that leaves without an answer has said no."""

    admission_id: str
    approval_id: str
    what: str
    patterns: list[str]


class DecideApproval(Struct, frozen=True, kw_only=True, tag="decide_approval"):
    """Viewer to supervisor: the answer, which has none itself; one to a question that is not open changes nothing."""

    admission_id: str
    approval_id: str
    allowed: bool
    always: bool = False


class ApprovalDecided(Struct, frozen=True, kw_only=True, tag="approval_decided"):
    """Supervisor to agent: the answer; ``always``: it holds for ``patterns`` as long as this agent works."""

    approval_id: str
    allowed: bool
    always: bool = False
