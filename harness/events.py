"""The event union: everything that can happen in a session, one frozen struct a kind.  Pure.

Belongs here: the shape of each event, its version, and the upcasters that lift older shapes to today's.
Must not know: where events are stored, what they lead to, or what time it is.

A kind's version grows when its shape changes in a way that an older reader would misread. Every older version keeps
an upcaster to the next one for ever; a newer version than this code knows is refused.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from harness.frozen import FrozenDict
from harness.llm.model import NO_USAGE, ErrorKind, Image, ModelSettings, OutputItem, Part, StopReason, ToolSchema, Usage
from operations import Operation, Status


class Limits(msgspec.Struct, frozen=True, gc=False):
    """What one run may spend; None is no limit. Held by the turn rules, whatever a prompt says.

    turns: model requests. tokens: input and output of all of them. seconds: elapsed time of the run.
    calls: for a tool's name, how many calls of it.
    """

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    calls: dict[str, int] = {}

    def __post_init__(self) -> None:
        # The default stands in many events at once: a caller who edits what one gave out would change them all.
        if isinstance(self.calls, dict):  # what is none is refused where the limits are used
            msgspec.structs.force_setattr(self, "calls", FrozenDict(self.calls))

    def narrowed(self, other: Limits) -> Limits:
        """The tighter of the two in every respect: a request can ask for less, never for more."""
        calls = dict(self.calls)
        for tool, most in other.calls.items():
            calls[tool] = min(most, calls.get(tool, most))
        return Limits(
            turns=_least(self.turns, other.turns),
            tokens=_least(self.tokens, other.tokens),
            seconds=_least(self.seconds, other.seconds),
            calls=calls,
        )


NO_LIMITS: Final = Limits()
"""The default, as one object: an encoder leaves it out only where it is the very same."""


def _least(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else min(a, b)


class Coalesce(enum.StrEnum):
    """What the wait of a result for others goes by, where it is no fixed number of seconds."""

    THINKING = "thinking"  # a share of the model's thinking time
    REMEMBERED = "remembered"  # the same, and no wait at all when no call that runs is likely to end by then


class Policy(msgspec.Struct, frozen=True, gc=False):
    """Values the turn rules and the context builder work by.

    Every one of them is recorded in session_opened: what a log leaves out could be another default tomorrow.

    coalesce_s: seconds to wait after the first undelivered result for others to join it; None adapts the wait.
    coalesce: what an adaptive wait goes by. coalesce_share: how much of the model's mean thinking time it is.
    heartbeat_s: seconds without any event, while calls are pending, after which the model is called; 0 is never.
    result_max_chars: characters of one tool result. step_max_chars: of all new results of one request together;
    where the window is known no more than two for each of its tokens.
    window_tokens: what the model's context holds, None when unknown. compact_at: the share of it at which the history
    is summarised.
    """

    coalesce_s: float | None = None
    coalesce: Coalesce = Coalesce.REMEMBERED
    coalesce_share: float = 2.0
    heartbeat_s: float = 600.0
    result_max_chars: int = 50_000
    step_max_chars: int = 200_000
    window_tokens: int | None = None
    compact_at: float = 0.8
    limits: Limits = Limits()


class ToolRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool as a session knows it: what the model sees, and what is needed to make it again on resume.

    kind: the translator ("bash", "view_image", "skill", "function"). config: its settings. A function can only come
    from the caller, so a resume that needs it must be given it.
    """

    schema: ToolSchema
    kind: str
    config: dict[str, Any] = {}


# --- inputs


class Message(msgspec.Struct, frozen=True, gc=False, tag="message", omit_defaults=True):
    """Something a user says. limits: narrower ones for the run that it starts."""

    text: str
    images: tuple[Image, ...] = ()
    limits: Limits = NO_LIMITS


class Interrupt(msgspec.Struct, frozen=True, gc=False, tag="interrupt", omit_defaults=True):
    """Stop the turn in flight and finish the run; operations go on. run_id: only if that run is going; empty is any."""

    reason: str = ""
    run_id: str = ""


class Cancel(msgspec.Struct, frozen=True, gc=False, tag="cancel", omit_defaults=True):
    """Stop the turn in flight, cancel every operation, and finish the run when all have ended."""

    reason: str = ""


class Heartbeat(msgspec.Struct, frozen=True, gc=False, tag="heartbeat"):
    """Nothing happened for `idle_s` seconds while these calls were running."""

    running: tuple[str, ...]
    idle_s: float


class Settings(msgspec.Struct, frozen=True, gc=False, tag="settings", omit_defaults=True):
    """What the caller changed when it opened the session again. None keeps what was."""

    model: str | None = None
    instructions: str | None = None
    tools: tuple[ToolRecord, ...] | None = None
    settings: ModelSettings | None = None
    policy: Policy | None = None
    workspace: str | None = None


Input = Message | Interrupt | Cancel
"""What may be sent to a session; the other contents of an input_accepted are the coordinator's own."""

Content = Input | Heartbeat | Settings


# --- reasons, causes and outcomes


class Reason(enum.StrEnum):
    """Why the model was called."""

    INPUT = "input"
    RESULTS = "results"
    REJECTIONS = "rejections"
    HEARTBEAT = "heartbeat"
    CONTINUATION = "continuation"  # the provider paused its own response and asks for it back
    COMPACTION = "compaction"  # the history nears the model's window: one call that summarises the older part
    FINAL_ANSWER = "final_answer"  # a limit is reached: one last call without tools


class Cause(enum.StrEnum):
    """Why a turn was cut off."""

    INPUT = "input"
    INTERRUPT = "interrupt"
    CANCEL = "cancel"
    LIMIT = "limit"
    LOST = "lost"  # the process that had made the call ended, or the log was forked while it ran


class CallOutcome(enum.StrEnum):
    OK = "ok"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class Outcome(enum.StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    LIMIT_REACHED = "limit_reached"


# --- events


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="kind", omit_defaults=True):
    """Base of all events. `kind` is the tag in JSON and the class's `kind()`."""

    @classmethod
    def kind(cls) -> str:
        """The name that stands in the log."""
        return str(cls.__struct_config__.tag)


class SessionOpened(Event, frozen=True, gc=False, tag="session_opened"):
    """The session exists. It is the first event of every root session."""

    instructions: str
    model: str
    tools: tuple[ToolRecord, ...]
    workspace: str
    # By factory, since a value that equals a plain default would be left out of the log.
    settings: ModelSettings = msgspec.field(default_factory=ModelSettings)
    policy: Policy = msgspec.field(default_factory=Policy)
    title: str = ""


class SessionForked(Event, frozen=True, gc=False, tag="session_forked"):
    """This session is a branch: all before this event is its parent's, up to and including `parent_seq`."""

    parent_id: str
    parent_seq: int


class InputAccepted(Event, frozen=True, gc=False, tag="input_accepted"):
    """An input left the inbox. Accepted while the session is idle, a message begins the run of the same id."""

    input_id: str
    source: str
    content: Content


class TurnStarted(Event, frozen=True, gc=False, tag="turn_started"):
    """A request is about to be sent.

    digest: of the whole request. new_items: a short digest for each item that no earlier request of the log had, in
    order, so that a later difference can be named. items, chars: size of the request. run_s: seconds since the
    run began. limit: the limit that makes this the final answer. covers: how many items a summarising turn summarises.
    """

    turn_id: str
    run_id: str
    model: str
    reason: Reason
    digest: str
    new_items: tuple[str, ...]
    items: int
    chars: int
    run_s: float = 0.0
    limit: str = ""
    covers: int = 0


class TurnFinished(Event, frozen=True, gc=False, tag="turn_finished"):
    """The response came to its proper end. `seconds` is from request to end, failed attempts included.

    usage: of the attempt that succeeded, which tells how large the request was. lost: of those that failed, if known.
    """

    turn_id: str
    output: tuple[OutputItem, ...]
    stop: StopReason
    usage: Usage = NO_USAGE
    response_id: str = ""
    provider: str = ""
    attempts: int = 1
    seconds: float = 0.0
    lost: Usage = NO_USAGE

    @property
    def cost(self) -> Usage:
        """What the turn cost, failed attempts included."""
        return self.usage + self.lost


class TurnInterrupted(Event, frozen=True, gc=False, tag="turn_interrupted"):
    """The turn was cut off. text: what it had said. calls: names of the tool calls it had begun; they never run."""

    turn_id: str
    cause: Cause
    text: str = ""
    calls: tuple[str, ...] = ()
    seconds: float = 0.0


class TurnFailed(Event, frozen=True, gc=False, tag="turn_failed"):
    """The model gave no response. Nothing of it becomes history. attempts: requests made; lost: what they cost."""

    turn_id: str
    error: ErrorKind
    message: str
    status: int | None = None
    attempts: int = 1
    seconds: float = 0.0
    lost: Usage = NO_USAGE


class Wake(enum.StrEnum):
    """What a call's completion means for the next model call; the model chooses it per call."""

    EACH = "each"
    BATCH = "batch"
    QUIET = "quiet"


class ToolCallPending(Event, frozen=True, gc=False, tag="tool_call_pending"):
    """A call was translated into these operations, which start once this event is on disk."""

    turn_id: str
    call_id: str
    tool: str
    arguments: dict[str, Any]
    operations: tuple[Operation, ...]
    wake: Wake = Wake.EACH


class ToolCallRejected(Event, frozen=True, gc=False, tag="tool_call_rejected"):
    """A call could not be translated. error: what the model reads. limit: the limit that it would have gone past."""

    turn_id: str
    call_id: str
    tool: str
    error: str
    limit: str = ""


class OperationUpdated(Event, frozen=True, gc=False, tag="operation_updated"):
    """An operation took a step. `seconds` is how long it ran, with a terminal status, where known."""

    operation_id: str
    status: Status
    checkpoint: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    seconds: float | None = None


class ToolCallFinished(Event, frozen=True, gc=False, tag="tool_call_finished"):
    """Every operation of the call has ended. `parts` is the model-facing result, uncut."""

    call_id: str
    outcome: CallOutcome
    parts: tuple[Part, ...]
    seconds: float | None = None


class ContextCompacted(Event, frozen=True, gc=False, tag="context_compacted"):
    """Items before the output of turn `keep_from` were replaced by `summary`; None replaced them all.

    upto_seq: the last event that the summary covers. What it cost is in the summarising turn before it.
    """

    upto_seq: int
    summary: str
    keep_from: str | None = None


class RunFinished(Event, frozen=True, gc=False, tag="run_finished"):
    """The run is over. text: the answer. error: one line that says why it did not complete. seconds: elapsed time."""

    run_id: str
    outcome: Outcome
    turns: int
    usage: Usage = NO_USAGE
    text: str = ""
    error: str = ""
    seconds: float = 0.0


EVENT_TYPES: Final[tuple[type[Event], ...]] = (
    SessionOpened,
    SessionForked,
    InputAccepted,
    TurnStarted,
    TurnFinished,
    TurnInterrupted,
    TurnFailed,
    ToolCallPending,
    ToolCallRejected,
    OperationUpdated,
    ToolCallFinished,
    ContextCompacted,
    RunFinished,
)

BY_KIND: Final[Mapping[str, type[Event]]] = {event_type.kind(): event_type for event_type in EVENT_TYPES}

VERSIONS: Final[Mapping[str, int]] = dict.fromkeys(BY_KIND, 1)
"""The version of each kind that this code writes."""

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: Final[dict[tuple[str, int], Upcaster]] = {}
"""(kind, version) -> the step from that version's JSON object to the next version's. Empty until a shape changes."""


class Logged(msgspec.Struct, frozen=True, gc=False):
    """An event at its place in a log. recorded_at: UTC, informative; order comes from `seq` alone."""

    seq: int
    recorded_at: str
    event: Event

    @property
    def kind(self) -> str:
        """The event's kind."""
        return self.event.kind()
