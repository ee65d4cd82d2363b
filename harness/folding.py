"""The fold: what each event makes of a state.  Pure.

Belongs here: `apply`, the only way from one state to the next, and a step for each kind of event.
Must not know: clocks, disks, models, handlers; nor what to do next (that is `decide`).

`apply` is total over every log that the trace rules allow and deterministic: same log, same state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from harness import events as ev
from harness import transcript as tr
from harness.llm.model import AssistantItem, ErrorKind, StopReason, Text, ToolCall
from harness.llm.refused import without
from harness.persistent import Vector
from harness.state import Call, Config, Run, RunSpan, Sent, SessionState, Turn, Undelivered, segment
from operations import TERMINAL, IllegalTransition, Update, moved

E = TypeVar("E", bound=ev.Event)
_Step = Callable[[SessionState, Any, int], SessionState]
_STEPS: Final[dict[type[ev.Event], _Step]] = {}


def _step(event_type: type[E]) -> Callable[[Callable[[SessionState, E, int], SessionState]], _Step]:
    def register(function: Callable[[SessionState, E, int], SessionState]) -> _Step:
        step = cast("_Step", function)
        _STEPS[event_type] = step
        return step

    return register


def apply(state: SessionState, logged: ev.Logged) -> SessionState:
    """The state after `logged`, which must be the event that follows `state.seq`.

    Raises DoesNotFit when it is not the next one, or speaks of what the log does not know: a fold never skips.
    """
    if logged.seq != state.seq + 1:
        raise DoesNotFit(f"event {logged.seq} cannot follow event {state.seq}")
    try:
        return _STEPS[type(logged.event)](state, logged.event, logged.seq)
    except (LookupError, IllegalTransition) as error:
        raise DoesNotFit(f"event {logged.seq} ({logged.kind}) does not fit what came before: {error}") from error


class DoesNotFit(ValueError):
    """An event cannot follow the events before it: the log was not written by the rules."""


@_step(ev.SessionOpened)
def _session_opened(state: SessionState, event: ev.SessionOpened, seq: int) -> SessionState:
    config = Config(
        instructions=event.instructions,
        model=event.model,
        tools=event.tools,
        workspace=event.workspace,
        settings=event.settings,
        policy=event.policy,
        title=event.title,
    )
    return replace(state, seq=seq, config=config)


@_step(ev.SessionForked)
def _session_forked(state: SessionState, event: ev.SessionForked, seq: int) -> SessionState:
    running = frozenset(op.id for op in state.operations.values() if op.status not in TERMINAL)
    return replace(state, seq=seq, foreign=state.foreign | running)


@_step(ev.InputAccepted)
def _input_accepted(state: SessionState, event: ev.InputAccepted, seq: int) -> SessionState:
    state = replace(state, seq=seq, accepted=state.accepted.added(event.input_id, seq))
    match event.content:
        case ev.Message() as message:
            return _message(state, event.input_id, message, seq)
        case ev.Heartbeat() as heartbeat:
            tools = tuple(state.calls[call_id].tool for call_id in heartbeat.running)
            news = Undelivered(seq, ev.Reason.HEARTBEAT)
            return replace(
                state,
                fresh=(*state.fresh, tr.Silence(heartbeat, tools)),
                undelivered=(*state.undelivered, news),
            )
        case ev.Interrupt() as interrupt:
            if interrupt.run_id and (state.run is None or state.run.run_id != interrupt.run_id):
                return state  # it came too late: that run is over
            return _stopped(state, ev.Cause.INTERRUPT)
        case ev.Cancel():
            return _stopped(state, ev.Cause.CANCEL)
        case ev.Settings() as settings:
            changes = {
                name: value for name in settings.__struct_fields__ if (value := getattr(settings, name)) is not None
            }
            return replace(state, config=replace(state.config, **changes))


def _message(state: SessionState, input_id: str, message: ev.Message, seq: int) -> SessionState:
    run = state.run
    if run is None:
        run = Run(input_id, seq, state.config.policy.limits.narrowed(message.limits))
        state = replace(state, compacted=False)  # a summary that failed may be tried again
    return replace(
        state,
        run=replace(run, failure=None),
        cancel_idle=False,
        fresh=(*state.fresh, tr.Said(message)),
        undelivered=(*state.undelivered, Undelivered(seq, ev.Reason.INPUT)),
    )


def _stopped(state: SessionState, cause: ev.Cause) -> SessionState:
    if state.run is None:
        return replace(state, cancel_idle=bool(state.pending)) if cause is ev.Cause.CANCEL else state
    if state.run.stop is ev.Cause.CANCEL:  # an interrupt does not soften a cancel
        return state
    return replace(state, run=replace(state.run, stop=cause))


@_step(ev.TurnStarted)
def _turn_started(state: SessionState, event: ev.TurnStarted, seq: int) -> SessionState:
    if event.reason is ev.Reason.COMPACTION:  # it reads the history and is not part of it
        turn = Turn(event.turn_id, seq, event.reason, event.covers)
        return replace(state, seq=seq, turn=turn, turns=state.turns + 1, run=_one_more_turn(state.run, event))
    items, _ = tr.render(segment(state, limit=event.limit), state.config.policy)
    calls = dict(state.calls)
    for call_id in state.unanswered:
        call = calls[call_id]
        if call.finished is None:
            calls[call_id] = replace(call, shown=True)
        else:
            del calls[call_id]
    return replace(
        state,
        seq=seq,
        sent=state.sent.extended(items),
        calls=calls,
        unanswered=(),
        fresh=(),
        turn=Turn(event.turn_id, seq, event.reason),
        turns=state.turns + 1,
        run=_one_more_turn(state.run, event),
    )


def _one_more_turn(run: Run | None, event: ev.TurnStarted) -> Run | None:
    if run is None:
        return None
    # A limit that was reached stays reached, whatever a crash makes of the seconds that led to it.
    over = event.limit or run.over
    return replace(run, turns=run.turns + 1, failure=None, seconds=max(run.seconds, event.run_s), over=over)


@_step(ev.TurnFinished)
def _turn_finished(state: SessionState, event: ev.TurnFinished, seq: int) -> SessionState:
    turn = state.turn
    if turn is not None and turn.reason is ev.Reason.COMPACTION:
        return _summary_written(state, event, turn.covers, seq)
    started = turn.seq if turn else seq
    cost = event.cost
    made = {
        item.call_id: Call(item.call_id, event.turn_id, item.name, item.arguments)
        for item in event.output
        if isinstance(item, ToolCall)
    }
    spoken = tr.spoken(event.output, event.provider)
    sent = state.sent.extended([spoken]) if spoken else state.sent
    run = state.run
    if run is not None:
        run = replace(
            run,
            usage=run.usage + cost,
            largest_step=max(run.largest_step, event.usage.total),
            last_text=tr.answer(event.output),
            fruitless=run.fruitless + 1 if event.stop in (StopReason.LENGTH, StopReason.PAUSED) else 0,
            answered=turn is not None and turn.reason is ev.Reason.FINAL_ANSWER,
            seconds=run.seconds + event.seconds,
        )
    return replace(
        state,
        seq=seq,
        turn=None,
        run=run,
        calls={**state.calls, **made} if made else state.calls,
        unanswered=tuple(made),
        outputs=state.outputs.extended([(event.turn_id, len(state.sent.items))]),
        sent=sent,
        undelivered=tuple([news for news in state.undelivered if news.seq > started]),
        last_stop=event.stop,
        last_turn_id=event.turn_id,
        usage=state.usage + cost,
        pace=state.pace.thought(event.seconds, event.attempts),
        compacted=False,
        **_counted(sent, event),
    )


def _counted(sent: Sent, event: ev.TurnFinished) -> dict[str, int]:
    """What the provider's count says about the history up to and including this response.

    How many items it covers, not how many characters: a fold must not look into each item for what is asked once.
    """
    if event.usage.input is None:
        return {}
    return {
        "counted_tokens": event.usage.total,
        "counted_items": len(sent.items),
        "counted_images": len(sent.images),
    }


def _summary_written(state: SessionState, event: ev.TurnFinished, covers: int, seq: int) -> SessionState:
    run = state.run
    text = tr.answer(event.output)
    if run is not None:
        run = replace(
            run,
            usage=run.usage + event.cost,
            largest_step=max(run.largest_step, event.usage.total),
            seconds=run.seconds + event.seconds,
        )
    # A summary with nothing in it, or one that broke off, is none: the history stays, and no second try is made.
    good = bool(text) and event.stop is StopReason.END
    return replace(
        state,
        seq=seq,
        turn=None,
        run=run,
        summary=text if good else "",
        covers=covers,
        compacted=not good,
        usage=state.usage + event.cost,
    )


@_step(ev.TurnInterrupted)
def _turn_interrupted(state: SessionState, event: ev.TurnInterrupted, seq: int) -> SessionState:
    summarising = state.turn is not None and state.turn.reason is ev.Reason.COMPACTION
    # The cut note stands where the turn ended: before whatever came while it was in flight is told.
    fresh = state.fresh if summarising else (tr.Cut(event), *state.fresh)
    run = _longer(state.run, event.seconds)
    if run is not None and state.turn is not None and state.turn.reason is ev.Reason.FINAL_ANSWER:
        # Its time is over as well: there is no other one. Lost with its process, it is asked for again.
        run = replace(run, answered=run.answered or event.cause is ev.Cause.LIMIT)
    return replace(state, seq=seq, turn=None, fresh=fresh, run=run)


@_step(ev.TurnFailed)
def _turn_failed(state: SessionState, event: ev.TurnFailed, seq: int) -> SessionState:
    run = _longer(state.run, event.seconds)
    turn = state.turn
    reason = None if turn is None else turn.reason
    final = reason is ev.Reason.FINAL_ANSWER
    # What was said since is a reason to ask again: the run must not end over a message that no request has shown.
    unheard = turn is not None and any(
        news.kind is ev.Reason.INPUT and news.seq > turn.seq for news in state.undelivered
    )
    if run is not None:
        run = replace(
            run,
            failure=None if unheard else event,
            answered=run.answered or final,
            usage=run.usage + event.lost,
        )
    # A summary that cannot be had is not asked for again and again: see `can_compact`.
    compacted = state.compacted or reason is ev.Reason.COMPACTION
    state = replace(state, seq=seq, turn=None, run=run, usage=state.usage + event.lost, compacted=compacted)
    return state if reason is ev.Reason.COMPACTION else _without_refused(state, event.error, final=final)


def _without_refused(state: SessionState, kind: ErrorKind, *, final: bool) -> SessionState:
    """What the provider refused to read would fail every later turn: it goes, and the turn is made again without it."""
    items = without(state.sent.items, kind)
    if items is None:
        return state
    sent = Sent().extended(items)
    run = None if state.run is None else replace(state.run, failure=state.run.failure if final else None)
    return replace(state, sent=sent, run=run, counted_images=min(state.counted_images, len(sent.images)))


def _longer(run: Run | None, seconds: float) -> Run | None:
    return None if run is None else replace(run, seconds=run.seconds + seconds)


@_step(ev.ToolCallPending)
def _tool_call_pending(state: SessionState, event: ev.ToolCallPending, seq: int) -> SessionState:
    call = replace(
        state.calls[event.call_id],
        translated=True,
        seq=seq,
        wake=event.wake,
        operations=tuple(operation.id for operation in event.operations),
    )
    operations = {**state.operations, **{operation.id: operation for operation in event.operations}}
    run = state.run
    if run is not None:
        run = replace(run, calls={**run.calls, event.tool: run.calls.get(event.tool, 0) + 1})
    return replace(state, seq=seq, calls={**state.calls, event.call_id: call}, operations=operations, run=run)


@_step(ev.ToolCallRejected)
def _tool_call_rejected(state: SessionState, event: ev.ToolCallRejected, seq: int) -> SessionState:
    result = tr.Result(event.call_id, event.tool, (Text(event.error),), ev.CallOutcome.FAILED)
    call = replace(state.calls[event.call_id], translated=True, rejected=True, finished=result)
    news = Undelivered(seq, ev.Reason.REJECTIONS, call.turn_id)
    run = state.run
    if run is not None and event.limit:
        run = replace(run, over=event.limit)
    return replace(
        state,
        seq=seq,
        run=run,
        calls={**state.calls, event.call_id: call},
        undelivered=(*state.undelivered, news),
    )


@_step(ev.OperationUpdated)
def _operation_updated(state: SessionState, event: ev.OperationUpdated, seq: int) -> SessionState:
    update = Update(event.operation_id, event.status, event.checkpoint, event.result, event.seconds)
    operation = moved(state.operations[event.operation_id], update)
    foreign = state.foreign - {operation.id} if event.status in TERMINAL else state.foreign
    return replace(state, seq=seq, operations={**state.operations, operation.id: operation}, foreign=foreign)


@_step(ev.ToolCallFinished)
def _tool_call_finished(state: SessionState, event: ev.ToolCallFinished, seq: int) -> SessionState:
    call = state.calls[event.call_id]
    result = tr.Result(event.call_id, call.tool, event.parts, event.outcome, late=call.shown)
    calls = dict(state.calls)
    fresh = state.fresh
    if call.shown:
        del calls[event.call_id]
        fresh = (*fresh, result)
    else:
        calls[event.call_id] = replace(call, finished=result)
    failed = event.outcome is not ev.CallOutcome.OK
    news = Undelivered(seq, ev.Reason.RESULTS, call.turn_id, call.wake, failed)
    operations = {key: value for key, value in state.operations.items() if key not in call.operations}
    state = replace(
        state,
        seq=seq,
        calls=calls,
        fresh=fresh,
        operations=operations,
        undelivered=(*state.undelivered, news),
        pace=state.pace.took(call.tool, event.seconds),
    )
    return replace(state, cancel_idle=False) if state.cancel_idle and not state.pending else state


@_step(ev.ContextCompacted)
def _context_compacted(state: SessionState, event: ev.ContextCompacted, seq: int) -> SessionState:
    items = state.sent.items
    places = dict(state.outputs)
    first = len(items) if event.keep_from is None else places.get(event.keep_from, len(items))
    if state.unanswered:  # the calls of the last response still need their answers right behind it
        first = min(first, state.outputs[-1][1])
    kept = items[first:]
    shown = {id_ for item in kept if isinstance(item, AssistantItem) for id_ in _call_ids(item)}
    running = tuple(
        tr.Running(call.call_id, call.tool) for call in state.pending if call.shown and call.call_id not in shown
    )
    summary, _ = tr.render([tr.Summary(event.summary, running)], state.config.policy)
    outputs = [(turn_id, place - first + len(summary)) for turn_id, place in state.outputs if place >= first]
    return replace(
        state,
        seq=seq,
        sent=Sent().extended([*summary, *kept]),
        outputs=Vector(outputs),
        counted_tokens=0,
        counted_items=0,
        counted_images=0,
        compacted=True,
        summary="",
    )


def _call_ids(item: AssistantItem) -> list[str]:
    return [part.call_id for part in item.output if isinstance(part, ToolCall)]


@_step(ev.RunFinished)
def _run_finished(state: SessionState, event: ev.RunFinished, seq: int) -> SessionState:
    first = state.run.seq if state.run else seq
    return replace(state, seq=seq, run=None, runs=state.runs.added(event.run_id, RunSpan(first, seq)))
