"""One turn in flight: a model call that can be cut off at any moment, with what it had said so far.

Belongs here: running `Model.respond`, gathering its deltas, and making its response fit for the log.
Must not know: the log, the turn rules, or what comes after.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from harness import ids
from harness.deltas import DeltaHub, ModelDelta
from harness.events import Cause, Event, TurnFailed, TurnFinished, TurnInterrupted
from harness.llm.model import (
    NO_USAGE,
    AttemptDropped,
    Delta,
    Emit,
    ErrorKind,
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    OutputItem,
    Reasoning,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from harness.transcript import clean
from operations.driving import Abandoned, Leash, driven
from operations.wording import error_text

log = logging.getLogger("turnlog.turn")

GRACE_S: Final = 5.0
"""How long a model may take to stop once its turn is cut off, before the turn ends without it."""


class TurnTask:
    """A turn that has been announced in the log. `ended` holds the event that ends it, once it has."""

    def __init__(self, number: int, hub: DeltaHub, *, may_call: bool = True) -> None:
        """may_call: False drops tool calls from the response, for a turn that has no tools to call."""
        self.number, self.turn_id = number, ids.turn_id(number)
        self.ended: Event | None = None
        self.cause: Cause | None = None
        self._hub, self._may_call = hub, may_call
        self._scope = trio.CancelScope()
        self._leash = Leash()
        self._stopping, self._over = trio.Event(), trio.Event()
        self._text: list[str] = []
        self._calls: dict[int, str] = {}
        self._started_s = trio.current_time()

    def cut(self, cause: Cause) -> None:
        """Stop the model call. `ended` is set a moment later; the first cause counts."""
        if self.cause is None:
            self.cause = cause
            self._leash.stopping = True
            self._scope.cancel()
            self._stopping.set()

    def cannot_be_recorded(self, problem: str) -> TurnFailed:
        """What ends the turn when the log could not hold what `ended` has."""
        return self._failed(ErrorKind.UNEXPECTED, f"the model object's response cannot be recorded: {problem}")

    async def run(self, model: Model, prepare: Callable[[], Awaitable[ModelRequest]], done: Callable[[], None]) -> None:
        """Make the call. prepare: completes the request (it may read blobs). done: called once `ended` is set."""
        self._started_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up_late, done)
            try:
                ended: Event | None = None
                with self._scope:
                    ended = await self._call(model, await prepare())
                self._end(ended, done)
            finally:
                self._over.set()
                nursery.cancel_scope.cancel()

    def _end(self, ended: Event | None, done: Callable[[], None]) -> None:
        if self.ended is not None:
            return
        # What a model raises while it is being stopped is not why the turn ended.
        if self.cause is not None and not isinstance(ended, TurnFinished):
            ended = TurnInterrupted(
                self.turn_id,
                self.cause,
                text=clean("".join(self._text)),
                calls=tuple(map(clean, self._calls.values())),
                seconds=self._seconds(),
            )
        if ended is not None:  # else the session is closing: nothing is recorded, the next opener sees a lost turn
            self.ended = ended
            done()

    async def _give_up_late(self, done: Callable[[], None]) -> None:
        """End the turn without a model that does not stop, whether it was cut off or the session is closing."""
        try:
            await self._stopping.wait()
        finally:
            self._leash.stopping = True
            with trio.move_on_after(GRACE_S, shield=True):
                await self._over.wait()
            if not self._over.is_set():
                log.warning("the model object does not stop in turn %s; it is given up", self.turn_id)
                self._leash.abandoned = True
                self._scope.cancel()
                self._end(None, done)

    async def _call(self, model: Model, request: ModelRequest) -> Event | None:
        """Ask the model. It is foreign code: whatever it raises or returns fails the turn, not the session."""
        try:
            return self._finished(await driven(_response(model, request, self._emit), self._leash))
        except Abandoned:
            return None
        except ModelError as error:
            return msgspec.structs.replace(
                self._failed(error.kind, error.message, status=error.status),
                attempts=error.attempts,
                lost=error.usage,
            )
        except (trio.Cancelled, KeyboardInterrupt):
            raise
        except BaseExceptionGroup as group:
            return self._group_failed(group)
        except BaseException as error:
            log.exception("the model object failed in turn %s", self.turn_id)
            return self._failed(ErrorKind.UNEXPECTED, error_text(error))

    def _group_failed(self, group: BaseExceptionGroup[BaseException]) -> Event | None:
        """A model's own nursery may put a cancellation, which is ours, together with what its tasks raised."""
        if group.subgroup(KeyboardInterrupt) is not None:
            raise group
        stopped, rest = group.split((trio.Cancelled, Abandoned))
        if rest is not None:
            log.error("the model object failed in turn %s", self.turn_id, exc_info=rest)
        cancelled = None if stopped is None else stopped.subgroup(trio.Cancelled)
        if cancelled is not None:
            raise cancelled
        return None if rest is None else self._failed(ErrorKind.UNEXPECTED, error_text(rest))

    def _finished(self, response: ModelResponse) -> TurnFinished:
        return TurnFinished(
            self.turn_id,
            output=_normalized(response, self.number, may_call=self._may_call),
            stop=response.stop,
            usage=_counted(response.usage),
            response_id=clean(response.response_id),
            provider=clean(response.provider),
            attempts=max(1, response.attempts),
            seconds=self._seconds(),
            lost=_counted(response.lost_usage),
        )

    def _failed(self, kind: ErrorKind, message: object, *, status: int | None = None) -> TurnFailed:
        line = clean(str(message or "")).strip() or "no reason given"
        return TurnFailed(self.turn_id, kind, line, status=status, seconds=self._seconds())

    def _seconds(self) -> float:
        return round(trio.current_time() - self._started_s, 3)

    def _emit(self, delta: Delta) -> None:
        if self.ended is not None:  # a model that was given up
            return
        match delta:
            case TextDelta():
                self._text.append(str(delta.text))
            case ToolCallDelta():
                self._calls.setdefault(delta.index, str(delta.name))
            case AttemptDropped():
                self._text.clear()
                self._calls.clear()
            case _:
                pass
        self._hub.put(ModelDelta(self.turn_id, delta))


async def _response(model: Model, request: ModelRequest, emit: Emit) -> ModelResponse:
    return await model.respond(request, emit=emit)


def _counted(usage: Usage) -> Usage:
    """The usage, with a count that cannot be true as unknown: limits are kept by these."""
    known = msgspec.structs.asdict(usage)
    counted = Usage(**{name: None if count is None or count < 0 else count for name, count in known.items()})
    return counted if counted != NO_USAGE else NO_USAGE


def _normalized(response: ModelResponse, number: int, *, may_call: bool) -> tuple[OutputItem, ...]:
    """The response's output with our own call ids, and with text that every encoder takes."""
    output: list[OutputItem] = []
    calls = 0
    for item in response.output:
        match item:
            case Text():
                output.append(Text(clean(item.text)))
            case Reasoning():
                output.append(msgspec.structs.replace(item, text=clean(item.text), opaque=clean(item.opaque)))
            case ToolCall() if may_call:
                output.append(
                    msgspec.structs.replace(
                        item,
                        name=clean(item.name),
                        arguments=clean(item.arguments),
                        provider_id=clean(item.provider_id),
                        opaque=clean(item.opaque),
                        call_id=ids.call_id(number, calls),
                    )
                )
                calls += 1
            case ToolCall():
                pass
            case _:
                raise TypeError(f"an output item has to be Text, Reasoning or ToolCall, not {type(item).__name__}")
    return tuple(output)
