"""What a session is after an event.  Pure.

Belongs here: `SessionState`, what it is made of, and what can be asked of it.
Must not know: how an event leads to it (folding.py), or what to do next (decide.py).

A state is an unchanging value; the long collections in it share their memory with the states before and after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from harness import events as ev
from harness import transcript as tr
from harness.coalescing import Pace
from harness.llm.model import NO_USAGE, Image, Item, ModelSettings, StopReason, Usage
from harness.persistent import Ledger, Vector
from operations import TERMINAL, Operation, Status


class Config(msgspec.Struct, frozen=True, gc=False):
    """What every request of the session starts from, and the rules it lives by."""

    instructions: str = ""
    model: str = ""
    tools: tuple[ev.ToolRecord, ...] = ()
    workspace: str = ""
    settings: ModelSettings = ModelSettings()
    policy: ev.Policy = ev.Policy()
    title: str = ""


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call that has not ended, or whose result no request has shown yet.

    arguments: the text that the model gave. finished: set once its result (or rejection) is in the log. shown: a
    request has answered it with a placeholder, so that its result will come late.
    """

    call_id: str
    turn_id: str
    tool: str
    arguments: str
    wake: ev.Wake = ev.Wake.EACH
    translated: bool = False
    rejected: bool = False
    operations: tuple[str, ...] = ()
    finished: tr.Result | None = None
    shown: bool = False
    seq: int = 0  # of its tool_call_pending


class Turn(msgspec.Struct, frozen=True, gc=False):
    """The turn in flight."""

    turn_id: str
    seq: int
    reason: ev.Reason
    covers: int = 0


class Run(msgspec.Struct, frozen=True, gc=False):
    """The run that is going on. largest_step: tokens of its dearest turn. over: a limit that a call went past."""

    run_id: str
    seq: int
    limits: ev.Limits
    turns: int = 0
    usage: Usage = NO_USAGE
    largest_step: int = 0
    calls: dict[str, int] = {}
    stop: ev.Cause | None = None
    over: str = ""
    last_text: str = ""
    fruitless: int = 0  # turns in a row that were cut off at their output limit or paused
    answered: bool = False  # the final answer of a limit has been given
    failure: ev.TurnFailed | None = None  # the last turn failed and no other was started
    seconds: float = 0.0  # elapsed time of the run that the log knows of


class Undelivered(msgspec.Struct, frozen=True, gc=False):
    """Something in the log that is in no request of a finished turn."""

    seq: int
    kind: ev.Reason  # the reason for a call that it would be
    turn_id: str = ""
    wake: ev.Wake = ev.Wake.EACH
    failed: bool = False


class RunSpan(msgspec.Struct, frozen=True, gc=False):
    """Where a run stands in the log."""

    first_seq: int
    last_seq: int


NO_ITEMS: Final[Vector[Item]] = Vector()


class Sent:
    """The items that are fixed: they were in a request, or are the model's own. An unchanging value.

    images: the images among them, so that nobody has to look through all items for a few. digest chains
    over the items and chars counts them; both are worked out when asked for, from what an earlier version knew on.
    """

    __slots__ = ("_known", "images", "items")

    def __init__(
        self,
        items: Vector[Item] = NO_ITEMS,
        images: tuple[Image, ...] = (),
        known: tuple[int, bytes, int] = (0, b"", 0),  # of how many items, digest and characters
    ) -> None:
        self.items, self.images, self._known = items, images, known

    def extended(self, items: list[Item]) -> Sent:
        """A version with more items at its end; this one stays as it is."""
        found = tr.images(items)
        return Sent(self.items.extended(items), (*self.images, *found) if found else self.images, self._known)

    @property
    def digest(self) -> bytes:
        """The digest of all items, see `chain`."""
        return self._counted()[1]

    @property
    def chars(self) -> int:
        """Characters of all items."""
        return self._counted()[2]

    def _counted(self) -> tuple[int, bytes, int]:
        count, digest, chars = self._known
        if count < len(self.items):
            for item in self.items[count:]:
                digest = chain(digest, item)
                chars += tr.size(item)
            self._known = (len(self.items), digest, chars)
        return self._known

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sent) and self.items == other.items

    __hash__ = None  # type: ignore[assignment]  # unhashable, as its items are

    def __repr__(self) -> str:
        return f"Sent({self.items!r})"


class SessionState(msgspec.Struct, frozen=True, gc=False):
    """Everything a session is, after the event `seq`.

    calls: open ones by id, see `Call`. operations: of open calls, by id. unanswered: calls of the last response that no
    request has answered yet. fresh: entries for the next request that are not answers. foreign: operations that run in
    the parent session. runs: finished runs by id. accepted: every input id, with its sequence number.
    outputs: (turn id, index of its output among the sent items), in order, for compaction.
    counted_tokens: what the provider counted for the first counted_items items and counted_images images of the
    history. compacted: no turn has finished since the last compaction. summary: what a summarising turn wrote about
    the first `covers` items, until its compaction is recorded.
    """

    seq: int = 0
    config: Config = Config()
    sent: Sent = Sent()
    calls: Mapping[str, Call] = {}
    operations: Mapping[str, Operation] = {}
    unanswered: tuple[str, ...] = ()
    fresh: tuple[tr.Entry, ...] = ()
    undelivered: tuple[Undelivered, ...] = ()
    turn: Turn | None = None
    run: Run | None = None
    turns: int = 0
    last_stop: StopReason | None = None
    last_turn_id: str = ""
    cancel_idle: bool = False
    foreign: frozenset[str] = frozenset()
    runs: Ledger[RunSpan] = Ledger()
    accepted: Ledger[int] = Ledger()
    outputs: Vector[tuple[str, int]] = Vector()
    usage: Usage = NO_USAGE
    pace: Pace = Pace()
    counted_tokens: int = 0
    counted_items: int = 0
    counted_images: int = 0
    compacted: bool = False
    summary: str = ""
    covers: int = 0

    @property
    def pending(self) -> list[Call]:
        """Calls that were translated and have no result yet, oldest first."""
        return [call for call in self.calls.values() if call.translated and call.finished is None]

    @property
    def untranslated(self) -> list[Call]:
        """Calls of the last finished turn that are neither pending nor rejected yet."""
        return [call for call in self.calls.values() if not call.translated]

    @property
    def ripe(self) -> list[Call]:
        """Pending calls all of whose operations have ended."""
        return [
            call
            for call in self.pending
            if all(self.operations[operation].status in TERMINAL for operation in call.operations)
        ]


def segment(state: SessionState, *, limit: str = "") -> list[tr.Entry]:
    """What the next request adds to the items that are fixed: answers to the last calls first, then news in order."""
    entries: list[tr.Entry] = []
    for call_id in state.unanswered:
        call = state.calls[call_id]
        entries.append(call.finished or tr.Running(call_id, call.tool))
    entries.extend(state.fresh)
    if limit:
        entries.append(tr.LastCall(limit))
    return entries


def chain(previous: bytes, item: Item) -> bytes:
    """The digest of a sequence of items, from that of all but the last one."""
    return hashlib.blake2b(previous + msgspec.json.encode(item), digest_size=16).digest()


def open_operations(state: SessionState) -> list[Operation]:
    """Operations that have not ended, in the order of their calls."""
    return [operation for operation in state.operations.values() if operation.status not in TERMINAL]


def is_cancelling(operation: Operation) -> bool:
    """Whether a cancellation of the operation is under way already."""
    return operation.status is Status.CANCELLING
