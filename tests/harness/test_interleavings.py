"""The coordinator under random interleavings, on virtual time, with every trace rule checked after every step,
and every request by the rules of each provider.

A step is an input, an answer of the model with any mix of good and bad calls, a failure, the end of any operation, an
interrupt, a cancel, time going by, a crash with a new opening, or a fork that goes on as a session of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import harness
from harness import events as ev
from harness.llm.model import AssistantItem, ErrorKind, ModelError, StopReason, ToolCall, Usage
from operations import Status
from tests.harness.world import Reopened, World, call, settle
from tests.llm.test_requests import CHECKS as PROVIDERS_RULES

CALLS = st.one_of(
    st.builds(call, wake=st.sampled_from([None, "each", "batch", "quiet"])),
    st.sampled_from(
        [
            call(raw="{"),
            call(raw='{"command": 5}'),
            call(raw='{"command": "ls", "wake": "never"}'),
            call(name="no_such_tool"),
            call(raw=""),
        ]
    ),
)

STEPS = st.one_of(
    st.tuples(st.just("say"), st.text(alphabet="abc\u2028\ud800", max_size=3).map("say {}".format)),
    st.tuples(st.just("answer"), st.lists(CALLS, max_size=4), st.sampled_from(["", "thinking", "\n"])),
    st.tuples(st.just("answer"), st.lists(CALLS, max_size=4), st.sampled_from(["", "thinking", "\n"])),
    st.tuples(st.just("dear answer"), st.integers(12, 60), st.text(max_size=3)),
    st.tuples(st.just("stop"), st.sampled_from([StopReason.LENGTH, StopReason.REFUSAL, StopReason.PAUSED])),
    st.tuples(st.just("stream"), st.sampled_from(["so far", " "])),
    st.tuples(st.just("fail"), st.sampled_from([ErrorKind.SERVER_ERROR, ErrorKind.CONTEXT_TOO_LONG])),
    st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from(list(Status)[3:]), st.integers(0, 1)),
    st.tuples(st.just("end"), st.integers(0, 5), st.just(Status.COMPLETED), st.just(0)),
    st.tuples(st.just("interrupt")),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 30.0, 600.0])),
    st.tuples(st.just("crash")),
    st.tuples(st.just("fork")),
)

LIMITS = st.sampled_from(
    [
        harness.Limits(),
        harness.Limits(),
        harness.Limits(turns=2),
        harness.Limits(tokens=40),
        harness.Limits(tokens=80),
        harness.Limits(seconds=45),
        harness.Limits(calls={"bash": 2}),
    ]
)

WINDOWS = st.sampled_from([None, 200, 30, 12])
"""Tokens of the model's context: small ones make compactions frequent."""

Step = tuple[Any, ...]


async def perform(world: World, place: Reopened, clock: trio.testing.MockClock, step: Step) -> None:
    """One step, as far as it makes sense where the session stands."""
    session, model, handler = place.session, world.model, world.handler
    match step:
        case ("say", text):
            await harness.submit(world.store, session.id, ev.Message(text))
        case ("answer", calls, text) if model.asked:
            model.answer(text, calls)
        case ("dear answer", tokens, text) if model.asked:
            model.answer(text, usage=Usage(input=tokens, output=1))
        case ("stop", stop) if model.asked:
            model.answer("cut", [call()] if stop is StopReason.LENGTH else (), stop=stop)
        case ("stream", text) if model.asked:
            model.says(text)
        case ("fail", kind) if model.asked:
            model.fail(ModelError(kind, "it does not work"))
        case ("end", index, status, exit_status) if handler.running:
            ids = sorted(handler.running, key=handler.started.index)
            handler.end(ids[index % len(ids)], status, exit_status)
        case ("interrupt",):
            await harness.submit(world.store, session.id, ev.Interrupt("enough"))
        case ("cancel",):
            await harness.submit(world.store, session.id, ev.Cancel("no more"))
        case ("wait", seconds):
            clock.jump(seconds)
        case ("crash",):
            await place.close()
            await place.open()
        case ("fork",):
            parent = await world.log(session.id)
            branch = await session.fork(at=max(1, len(parent) - 1))
            await place.close()
            assert await world.log(session.id) == parent
            place.id = branch
            await place.open()
        case _:
            pass


async def drive(steps: list[Step], limits: harness.Limits, window: int | None, clock: trio.testing.MockClock) -> None:
    world = World()
    policy = harness.Policy(coalesce_s=1.0, heartbeat_s=300.0, window_tokens=window)
    place = Reopened(world, limits=limits, policy=policy)
    await place.open()
    try:
        for step in steps:
            await perform(world, place, clock, step)
            await settle()
            await world.checked(place.session.id)
        await finish(world, place, clock)
    finally:
        await place.close()
    assert len(world.handler.started) == len(set(world.handler.started)), "an operation was started twice"
    for request in world.model.requests:
        # One protocol knows paused responses, and has them sent back as the last thing said.
        paused = isinstance(request.items[-1], AssistantItem)
        for protocol, check in PROVIDERS_RULES.items():
            if protocol == "messages" or not paused:
                check(request)


async def finish(world: World, place: Reopened, clock: trio.testing.MockClock) -> None:
    """Whatever happened, the session comes to rest when everything ends and the model has no more to ask for."""
    for _ in range(200):
        state = place.session.state
        if state.run is None and not world.handler.running:
            break
        if world.model.asked:
            world.model.answer("done")
        for operation_id in list(world.handler.running):
            world.handler.end(operation_id)
        await settle()
        clock.jump(1.0)
        await settle()
    log = await world.checked(place.session.id)
    assert place.session.state.run is None, "the run never ended"
    assert not place.session.state.pending
    inputs = [entry.input_id for entry in await world.store.inputs(place.session.id)]
    accepted = [entry.event.input_id for entry in log if isinstance(entry.event, ev.InputAccepted)]
    assert [name for name in inputs if accepted.count(name) != 1] == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=25), limits=LIMITS, window=WINDOWS)
@example(
    steps=[("say", "a"), ("answer", [call(), call()], "x"), ("end", 0, Status.COMPLETED, 0), ("crash",)],
    limits=harness.Limits(),
    window=None,
)
@example(steps=[("say", "a"), ("answer", [call()], ""), ("fork",), ("say", "b")], limits=harness.Limits(), window=None)
@example(steps=[("say", "a"), ("answer", [call()], ""), ("cancel",), ("crash",)], limits=harness.Limits(), window=None)
@example(  # a summary that is the dearest turn of a run with a limit of tokens
    steps=[("say", "a"), ("answer", [call()], ""), ("end", 0, Status.COMPLETED, 0), ("dear answer", 60, "s")],
    limits=harness.Limits(tokens=80),
    window=12,
)
def test_every_interleaving_keeps_the_trace_rules_and_makes_requests_that_every_provider_takes(
    steps: list[Step], limits: harness.Limits, window: int | None
) -> None:
    clock = trio.testing.MockClock()
    trio.run(drive, steps, limits, window, clock, clock=clock)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=60), limits=LIMITS, window=WINDOWS)
def test_long_interleavings_keep_the_trace_rules(steps: list[Step], limits: harness.Limits, window: int | None) -> None:
    clock = trio.testing.MockClock()
    trio.run(drive, steps, limits, window, clock, clock=clock)


def test_the_calls_of_a_test_are_calls() -> None:
    assert isinstance(call(), ToolCall)
