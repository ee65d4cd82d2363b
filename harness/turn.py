"""One turn in flight: a model call that can be cut off at any moment, with what it had said so far.

Belongs here: running `Model.respond`, gathering its deltas, and making its response fit for the log.
Must not know: the log, the turn rules, or what comes after.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec
import trio

from harness import ids
from harness.deltas import DeltaHub, ModelDelta
from harness.events import Cause, Event, TurnFailed, TurnFinished, TurnInterrupted
from harness.llm.model import (
    AttemptDropped,
    Delta,
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
)
from harness.transcript import clean

log = logging.getLogger("turnlog.turn")


class TurnTask:
    """A turn that has been announced in the log. `ended` holds the event that ends it, once it has."""

    def __init__(self, number: int, hub: DeltaHub, *, may_call: bool = True) -> None:
        """may_call: False drops tool calls from the response, for a turn that has no tools to call."""
        self.number, self.turn_id = number, ids.turn_id(number)
        self.ended: Event | None = None
        self.cause: Cause | None = None
        self._hub, self._may_call = hub, may_call
        self._scope = trio.CancelScope()
        self._text: list[str] = []
        self._calls: dict[int, str] = {}

    def cut(self, cause: Cause) -> None:
        """Stop the model call. `ended` is set a moment later; the first cause counts."""
        if self.cause is None:
            self.cause = cause
            self._scope.cancel()

    async def run(self, model: Model, prepare: Callable[[], Awaitable[ModelRequest]], done: Callable[[], None]) -> None:
        """Make the call. prepare: completes the request (it may read blobs). done: called once `ended` is set."""
        started = trio.current_time()
        ended: Event | None = None
        with self._scope:
            ended = await self._call(model, prepare, started)
        if ended is None:
            if self.cause is None:  # the session is closing: nothing is recorded, the next opener sees a lost turn
                return
            ended = TurnInterrupted(
                self.turn_id,
                self.cause,
                text=clean("".join(self._text)),
                calls=tuple(self._calls.values()),
                seconds=_since(started),
            )
        self.ended = ended
        done()

    async def _call(self, model: Model, prepare: Callable[[], Awaitable[ModelRequest]], started: float) -> Event:
        request = await prepare()  # outside: what the store raises is not the model's failure
        try:
            response = await model.respond(request, emit=self._emit)
        except ModelError as error:
            return msgspec.structs.replace(
                self._failed(error.kind, error.message, started),
                status=error.status,
                attempts=error.attempts,
                lost=error.usage,
            )
        except Exception as error:  # a model object is foreign code: its bug fails the run, not the process
            log.exception("the model object failed in turn %s", self.turn_id)
            return self._failed(ErrorKind.UNEXPECTED, f"{type(error).__name__}: {error}", started)
        return TurnFinished(
            self.turn_id,
            output=_normalized(response, self.number, may_call=self._may_call),
            stop=response.stop,
            usage=response.usage,
            response_id=clean(response.response_id),
            provider=response.provider,
            attempts=response.attempts,
            seconds=_since(started),
            lost=response.lost_usage,
        )

    def _failed(self, kind: ErrorKind, message: str, started: float) -> TurnFailed:
        line = clean(message).strip() or "no reason given"
        return TurnFailed(self.turn_id, kind, line, seconds=_since(started))

    def _emit(self, delta: Delta) -> None:
        match delta:
            case TextDelta():
                self._text.append(delta.text)
            case ToolCallDelta():
                self._calls.setdefault(delta.index, delta.name)
            case AttemptDropped():
                self._text.clear()
                self._calls.clear()
            case _:
                pass
        self._hub.put(ModelDelta(self.turn_id, delta))


def _since(started: float) -> float:
    return round(trio.current_time() - started, 3)


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
    return tuple(output)
