"""Everything comes to an end, and nothing takes the session with it: cases that once did not."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

import harness
from harness import events as ev
from harness.llm.model import Emit, ErrorKind, ModelError, ModelRequest, ModelResponse, StopReason, Text
from harness.tools.bash import Bash
from harness.tools.registry import Presented
from operations import Operation, OperationSpec
from tests.harness.test_compaction import a_call, policy, texts
from tests.harness.world import SOME_TOKENS, World, call, settle


async def test_a_summary_that_is_itself_too_long_is_asked_for_once() -> None:
    world = World()
    async with world.open(policy=policy(100)) as session:
        run = await session.start_run("go")
        await settle()
        await a_call(world, session, 99)
        world.model.fail(ModelError(ErrorKind.CONTEXT_TOO_LONG, "prompt is too long", status=400))
        result = await run.result()
        assert (result.outcome, len(world.model.requests)) == ("blocked", 2)
        await world.checked(session.id)


async def test_a_summary_that_is_cut_off_does_not_enter_the_history() -> None:
    world = World()
    async with world.open(policy=policy(100)) as session:
        run = await session.start_run("go")
        await settle()
        await a_call(world, session, 99)
        world.model.says("They wan")
        assert (await run.interrupt()).outcome == "interrupted"
        run = await session.start_run("go on")
        await settle()
        world.model.answer("They said go.")
        await settle()
        assert not any("They wan" in text or "cut off" in text for text in texts(world.model.requests[-1]))
        world.model.answer("done")
        await run.result()
        await world.checked(session.id)


async def test_two_messages_that_waited_become_one_run_for_both_senders() -> None:
    world = World()
    async with world.open(limits=harness.Limits(turns=1)) as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a")])
        await settle()
        first = await session.send("one more")
        second = await session.send("and another")
        world.model.answer("as far as I came")
        assert (await run.result()).outcome == "limit_reached"
        await settle()
        world.model.answer("both done")
        with trio.fail_after(5):
            assert (await first.result()).text == (await second.result()).text == "both done"
        assert first.ended and second.ended
        await world.checked(session.id)


async def test_a_failed_run_does_not_wait_past_its_time_limit(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with world.open(limits=harness.Limits(seconds=20)) as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("long")])
        await settle()
        await run.steer("and?")
        await settle()
        world.model.fail(ModelError(ErrorKind.SERVER_ERROR, "oops", status=500))
        with trio.fail_after(60):
            result = await run.result()
        assert [made.outcome for made in result.tool_calls] == ["cancelled"]
        assert result.outcome == "failed"
        await world.checked(session.id)


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.PAUSED])
async def test_a_model_that_always_breaks_off_is_not_called_for_ever(stop: StopReason) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        for _ in range(20):
            await settle()
            if run.ended:
                break
            world.model.answer("and so", [call()] if stop is StopReason.LENGTH else [], stop=stop)
        result = await run.result()
        assert (result.outcome, result.turns) == ("failed", 5)
        assert result.error == "the model broke off 5 responses in a row"
        await world.checked(session.id)


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.PAUSED])
async def test_a_model_that_always_breaks_off_is_not_called_for_ever_while_a_call_is_pending(stop: StopReason) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("long")])
        await settle()
        await run.steer("and?")

        async def break_off() -> int:
            before = len(world.model.requests)
            for _ in range(20):
                await settle()
                if not world.model.asked:
                    break
                world.model.answer("and so", [call()] if stop is StopReason.LENGTH else [], stop=stop)
            return len(world.model.requests) - before

        await settle()
        assert await break_off() == 4  # after the one that is asked for already
        world.handler.end(world.handler.started[-1])
        await settle()
        assert world.model.asked  # the result is news
        await break_off()
        result = await run.result()
        assert (result.outcome, result.turns) == ("failed", 7)
        await world.checked(session.id)


async def test_an_interrupt_that_comes_too_late_leaves_the_next_run_alone() -> None:
    world = World()
    async with world.open() as session:
        first = await session.start_run("go")
        await settle()
        world.model.answer("done")
        await first.result()
        second = await session.start_run("again")
        await settle()
        await harness.submit(world.store, session.id, ev.Interrupt("enough", first.id))
        await settle()
        assert session.current_run is not None and session.current_run.id == second.id
        world.model.answer("done again")
        assert (await second.result()).outcome == "completed"
        await world.checked(session.id)


class BrokenTool(Bash):
    """Raises where the contract says that nothing is raised."""

    def __init__(self, *, translating: bool = False, presenting: bool = False, empty: bool = False) -> None:
        super().__init__()
        self._translating, self._presenting, self._empty = translating, presenting, empty

    def translate(self, arguments: dict[str, Any], workspace: str) -> Any:
        if self._translating:
            raise ZeroDivisionError("in translate")
        return () if self._empty else (OperationSpec("shell", 1, {}),)

    def present(self, operations: Sequence[Operation]) -> Presented:
        if self._presenting:
            raise ZeroDivisionError("in present")
        return super().present(operations)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"translating": True}, "the tool 'bash' failed: ZeroDivisionError: in translate"),
        ({"empty": True}, "the tool 'bash' asked for no work"),
        ({"presenting": True}, "could not tell its result (ZeroDivisionError: in present)"),
    ],
)
async def test_a_tool_that_breaks_its_contract_costs_its_call_and_no_more(
    broken: dict[str, bool], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    world = World()
    async with world.open(tools=[BrokenTool(**broken)]) as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call()])
        await settle()
        for operation_id in list(world.handler.running):
            world.handler.end(operation_id)
        await settle()
        world.model.answer("I see")
        result = await run.result()
        assert (result.outcome, result.tool_calls[0].outcome) == ("completed", "failed")
        assert said in result.tool_calls[0].text
        await world.checked(session.id)


async def test_an_image_that_is_not_in_the_store_is_refused_where_it_is_sent() -> None:
    world = World()
    async with world.open() as session:
        message = harness.Message("look", (harness.Image("00" * 16, "image/png"),))
        with pytest.raises(harness.BadInput, match="is not in the store"):
            await session.run(message)
        assert await world.store.inputs(session.id) == []


@pytest.mark.parametrize(
    "options",
    [
        {"policy": harness.Policy(coalesce_share=float("nan"))},
        {"policy": harness.Policy(compact_at=0)},
        {"limits": harness.Limits(calls={"turns": 0})},
        {"settings": harness.ModelSettings(temperature=float("inf"))},
        {"settings": harness.ModelSettings(max_output_tokens=0)},
    ],
)
async def test_numbers_that_no_rule_can_work_with_are_refused(options: dict[str, Any]) -> None:
    world = World()
    with pytest.raises(harness.BadInput):
        async with world.open(**options):
            raise AssertionError("never reached")
    assert await world.store.sessions() == []


@pytest.mark.parametrize("limits", [harness.Limits(seconds=float("nan")), harness.Limits(turns=-3)])
async def test_limits_of_one_run_are_checked_too(limits: harness.Limits) -> None:
    world = World()
    async with world.open() as session:
        with pytest.raises(harness.BadInput, match="has to be above zero"):
            await session.run("go", limits=limits)


async def test_a_limit_on_a_tool_that_the_session_has_not_is_refused_wherever_it_is_given() -> None:
    world, mistyped = World(), harness.Limits(calls={"bsh": 1})
    line = "there is a limit on calls of 'bsh', and no such tool. The tools are: bash."
    for options in ({"limits": mistyped}, {"policy": harness.Policy(limits=mistyped)}):
        with pytest.raises(harness.BadInput) as caught:
            async with world.open(**options):
                raise AssertionError("never reached")
        assert str(caught.value) == line
    assert await world.store.sessions() == []
    async with world.open() as session:
        for send in (session.run("go", limits=mistyped), session.send(harness.Message("go", limits=mistyped))):
            with pytest.raises(harness.BadInput) as caught:
                await send
            assert str(caught.value) == line
    assert await world.store.inputs(session.id) == []
    with pytest.raises(harness.BadInput, match="'bsh'"):
        async with world.open(session.id, limits=mistyped):
            raise AssertionError("never reached")
    await world.checked(session.id)


async def test_a_limit_may_be_on_a_tool_that_comes_with_it_or_that_only_the_log_knows(
    autojump_clock: trio.testing.MockClock,
) -> None:
    @harness.tool
    def note() -> str:
        return ""

    world, limits = World(), harness.Limits(calls={"note": 1})
    async with world.open(tools=[harness.skills()], limits=harness.Limits(calls={"skill": 1})) as session:
        pass
    async with world.open(session.id, tools=[note]) as again:
        run = await again.start_run("go", limits=limits)  # before the log has the tool
        await settle()
        world.model.answer("done")
        await run.result()
    async with world.open(session.id, limits=limits) as again:  # the skill's limit is gone, and nothing asks for it
        assert again.state.config.policy.limits == limits
    await world.checked(session.id)


async def test_a_recorded_limit_on_no_tool_stops_neither_a_resume_nor_a_rerun(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with world.open(tools=[harness.skills()], limits=harness.Limits(calls={"skill": 1})) as session:
        assert session.state.config.tools == ()
    async with world.open(session.id) as again:
        run = await again.start_run("go")
        await settle()
        world.model.answer("done")
        assert (await run.result()).outcome == "completed"

    class Says:
        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            return ModelResponse((Text("done"),), StopReason.END, SOME_TOKENS)

    rerun = await harness.rerun(world.store, session.id, model=Says())
    assert [result.outcome for result in rerun.results] == ["completed"]


def test_what_an_event_gives_out_of_its_limits_cannot_change_another_event() -> None:
    for limits in (harness.Limits(), harness.Limits(calls={"bash": 1}), harness.Policy().limits):
        for change in (
            lambda calls: calls.update(bash=5),
            lambda calls: calls.clear(),
            lambda calls: calls.pop("bash"),
        ):
            with pytest.raises(TypeError, match="cannot be changed"):
                change(limits.calls)
        assert pickle.loads(pickle.dumps(limits)) == copy.deepcopy(limits) == limits
    assert ev.Message("go").limits.calls == {}


async def test_limits_given_on_resume_leave_the_rest_of_the_policy_as_it_was() -> None:
    world = World()
    async with world.open(policy=harness.Policy(heartbeat_s=5, coalesce_s=0.5)) as session:
        pass
    async with world.open(session.id, limits=harness.Limits(turns=3)) as again:
        kept = again.state.config.policy
        assert (kept.heartbeat_s, kept.coalesce_s, kept.limits) == (5, 0.5, harness.Limits(turns=3))


async def test_what_a_replay_gives_out_can_be_changed_without_changing_the_replay() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call()])
        await settle()
        replay = harness.Replay(session.id, await world.log(session.id))
        state = replay.state_at(len(replay.events))
        next(iter(state.operations.values())).spec.args["command"] = "changed"
        state.config.tools[0].schema.parameters["properties"].clear()
        assert replay.check() == []
        assert "changed" not in str(replay.state_at(len(replay.events)).operations)
        for operation_id in list(world.handler.running):
            world.handler.end(operation_id)
        await settle()
        world.model.answer("done")
        await run.result()


def test_a_policy_is_recorded_whole() -> None:
    opened = ev.SessionOpened(instructions="", model="m", tools=(), workspace="/")
    recorded = msgspec.json.decode(msgspec.json.encode(opened))
    assert set(recorded["policy"]) == set(ev.Policy.__struct_fields__)


async def test_a_key_that_is_used_for_other_content_is_refused() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go", "k")
        await settle()
        world.model.answer("done")
        first = await run.result()
        assert await session.run("go", "k") == first
        with pytest.raises(harness.CallerError, match="'k'"):
            await session.run("something else", "k")
        await world.checked(session.id)


async def test_a_session_of_a_model_object_says_that_it_wants_it_again() -> None:
    world = World()
    async with world.open() as session:
        pass
    with pytest.raises(harness.BadInput, match="the session's model 'test' is no model that can be made"):
        async with harness.open_session(world.store, session_id=session.id, manager=world.manager):
            raise AssertionError("never reached")
