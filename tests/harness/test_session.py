"""Sessions as a program uses them: every outside in the test's hand, on virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

import harness
from harness import events as ev
from harness.llm.model import ErrorKind, ModelError, StopReason, Text, UserItem
from operations import Status
from tests.harness.world import Reopened, World, call, settle


def last_said(world: World) -> str:
    """The text of the last item of the last request."""
    item = world.model.requests[-1].items[-1]
    return " ".join(part.text for part in item.parts if isinstance(part, Text)) if isinstance(item, UserItem) else ""


async def answered(world: World, run: harness.Run, text: str = "done") -> harness.RunResult:
    """The run, once the model has given this answer."""
    world.model.answer(text)
    return await run.result()


async def test_a_run_ends_with_the_models_answer(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with world.open(instructions="Be brief.") as session:
        run = await session.start_run("What is 1 + 1?", idempotency_key="q1")
        await settle()
        assert world.model.requests[0].instructions == "Be brief."
        result = await answered(world, run, "2")
        assert (result.outcome, result.text, result.turns, result.usage.input) == ("completed", "2", 1, 10)
        assert (run.id, session.current_run, result.error) == ("q1", None, "")
        await world.checked(session.id)


async def test_calls_run_at_once_and_the_model_reads_all_that_landed_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("one"), call("two")])
        await settle()
        assert len(world.handler.running) == 2
        for operation_id in list(world.handler.running):
            world.handler.end(operation_id, exit_status=len(operation_id) % 2)
        await settle()
        result = await answered(world, run)
        assert (result.turns, [made.name for made in result.tool_calls]) == (2, ["bash", "bash"])
        assert {made.arguments["command"] for made in result.tool_calls} == {"one", "two"}
        await world.checked(session.id)


async def test_the_same_key_returns_the_first_result_and_runs_nothing() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go", idempotency_key="k")
        await settle()
        first = await answered(world, run, "one")
        assert await session.run("go", idempotency_key="k") == first
        session_id = session.id
    async with world.open(session_id) as session:
        assert await session.run("go", idempotency_key="k") == first
    assert len(world.model.requests) == 1


async def test_the_same_key_while_its_run_is_going_joins_it() -> None:
    world = World()
    async with world.open() as session, trio.open_nursery() as nursery:
        results: list[harness.RunResult] = []

        async def ask() -> None:
            results.append(await session.run("go", idempotency_key="k"))

        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await settle()
        world.model.answer("one")
        await settle()
        assert len(results) == 2 and results[0] == results[1]
        assert len(world.model.requests) == 1


async def test_a_second_run_is_refused_while_one_is_going() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        with pytest.raises(harness.RunInProgress, match="still going") as caught:
            await session.run("and this")
        assert caught.value.run.id == run.id
        await settle()
        await answered(world, run)


async def test_steering_cuts_the_turn_and_what_it_had_said_stays() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.says("Plan: 1. rename")
        await run.steer("no, list the files")
        await settle()
        said = [part.text for item in world.model.requests[-1].items for part in getattr(item, "parts", ())]
        assert said == ["go", "(Your reply was cut off here by a new message.)", "no, list the files"]
        assert await answered(world, run) and run.ended
        with pytest.raises(harness.RunEnded, match="has ended"):
            await run.steer("too late")
        await world.checked(session.id)


async def test_send_starts_a_run_when_idle_and_steers_otherwise() -> None:
    world = World()
    async with world.open() as session:
        first = await session.send("go")
        second = await session.send("and this")
        assert first.id == second.id
        await settle()
        await answered(world, first)
        third = await session.send("again")
        assert third.id != first.id
        await settle()
        await answered(world, third)


async def test_interrupt_leaves_operations_running_and_their_results_to_the_next_run() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("long")])
        await settle()
        result = await run.interrupt("enough")
        assert (result.outcome, result.tool_calls[0].outcome) == ("interrupted", None)
        (operation,) = world.handler.running
        world.handler.end(operation)
        await settle()
        assert len(world.model.requests) == 1, "a result does not start a run"
        run = await session.start_run("go on")
        await settle()
        texts = [part.text for item in world.model.requests[-1].items for part in getattr(item, "parts", ())]
        assert any("exit status 0" in text for text in texts)
        await answered(world, run)
        await world.checked(session.id)


async def test_cancel_returns_when_every_operation_has_ended() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a"), call("b")])
        await settle()
        await session.cancel("no more")
        assert not world.handler.running
        result = await run.result()
        assert (result.outcome, [made.outcome for made in result.tool_calls]) == (
            "cancelled",
            [harness.CallOutcome.CANCELLED] * 2,
        )
        await session.cancel("again")
        await world.checked(session.id)


async def test_a_crash_loses_the_turn_in_flight_and_nothing_else() -> None:
    world = World()
    place = Reopened(world)
    await place.open()
    run = await place.session.start_run("go", idempotency_key="k")
    await settle()
    await place.close()
    assert not world.model.asked
    await place.open()
    current = place.session.current_run
    assert current is not None and current.id == run.id == "k"
    await settle()
    result = await answered(world, current, "after all")
    assert (result.text, result.turns) == ("after all", 2)
    await world.checked(place.session.id)
    await place.close()


async def test_operations_are_taken_up_again_and_started_once() -> None:
    world = World()
    place = Reopened(world)
    await place.open()
    run = await place.session.start_run("go")
    await settle()
    world.model.answer(calls=[call("a"), call("b")])
    await settle()
    await place.close()
    first, second = world.handler.started
    world.handler.end(first)
    await place.open()
    await settle()
    assert sorted(world.handler.recovered) == sorted([first, second])
    world.handler.end(second)
    await settle()
    current = place.session.current_run
    assert current is not None and current.id == run.id
    result = await answered(world, current)
    assert [made.outcome for made in result.tool_calls] == [harness.CallOutcome.OK] * 2
    assert len(world.handler.started) == 2
    await place.close()


async def test_a_fork_at_every_event_of_a_finished_session_opens_and_runs_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a"), call("b", wake="batch"), call(raw="{")])
        await settle()
        for operation_id in list(world.handler.running):
            world.handler.end(operation_id)
        await settle()
        await answered(world, run)
        parent = await world.store.read(session.id)
        for seq in range(1, len(parent) + 1):
            branch = await session.fork(at=seq)
            await runs_on(world, branch)
            assert (await world.store.read(branch))[:seq] == parent[:seq]
        assert await world.store.read(session.id) == parent


async def test_a_fork_at_every_event_of_a_running_session_opens_and_runs_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a"), call("b")])
        await settle()
        ours = list(world.handler.running)
        world.handler.end(ours[0])
        await trio.sleep(2)
        await settle()
        parent = await world.log(session.id)
        branches = [await session.fork(at=seq) for seq in range(1, len(parent) + 1)]
        assert await world.log(session.id) == parent
        world.handler.end(ours[1])
        world.model.answer("waiting")
        await settle()
        await answered(world, run)
        await world.checked(session.id)
    for branch in branches:
        await runs_on(world, branch)


async def runs_on(world: World, session_id: str) -> None:
    """Open a session, let whatever is under way end, and have one more run."""
    async with world.open(session_id) as session:
        for _ in range(20):
            for operation_id in list(world.handler.running):
                world.handler.end(operation_id)
            if world.model.asked:
                world.model.answer("so be it")
            await settle()
            if session.current_run is None:
                break
        run = await session.start_run("one more")
        await settle()
        assert (await answered(world, run)).outcome == "completed"
        await world.checked(session_id)


async def test_a_branch_is_told_that_pending_calls_are_its_parents() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a")])
        await settle()
        branch = await session.fork()
        async with world.open(branch) as other:
            await settle()
            assert "outcome unknown: it belongs to the parent session" in str(world.model.requests[-1].items)
            current = other.current_run
            assert current is not None
            await answered(world, current)
            await world.checked(branch)
        world.handler.end(world.handler.started[0])
        await settle()
        await answered(world, run)
    assert len(world.handler.started) == 1


async def test_a_fork_at_a_turn_keeps_that_turn() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        await answered(world, run)
        log = await world.log(await session.fork(at="t1"))
        assert [entry.kind for entry in log][-2:] == ["turn_finished", "session_forked"]
        with pytest.raises(harness.UnknownTurn, match="no ended turn 't9'"):
            await session.fork(at="t9")
        with pytest.raises(harness.UnknownSequence, match="has events 1 to"):
            await session.fork(at=999)


async def test_an_input_at_the_last_turn_of_a_limit_is_kept() -> None:
    world = World()
    async with world.open(limits=harness.Limits(turns=1)) as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a")])
        await settle()
        assert not world.model.requests[-1].allow_tools
        await run.steer("wait, one more thing")
        result = await answered(world, run, "as far as I came")
        assert (result.outcome, result.text) == ("limit_reached", "as far as I came")
        await settle()
        following = session.current_run
        assert following is not None and last_said(world) == "wait, one more thing"
        await answered(world, following)
        await world.checked(session.id)


async def test_a_request_can_ask_for_less_but_not_for_more() -> None:
    world = World()
    async with world.open(limits=harness.Limits(turns=1)) as session:
        run = await session.start_run("go", limits=harness.Limits(turns=50, calls={"bash": 1}))
        await settle()
        assert session.state.run is not None
        assert session.state.run.limits == harness.Limits(turns=1, calls={"bash": 1})
        await answered(world, run)


async def test_the_time_limit_cuts_a_turn_and_asks_for_the_answer(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with world.open(limits=harness.Limits(seconds=30)) as session:
        run = await session.start_run("go")
        await trio.sleep(31)
        await settle()
        assert "limit of 30 seconds" in last_said(world)
        result = await answered(world, run, "nothing yet")
        assert (result.outcome, result.error) == ("limit_reached", "the limit of 30 seconds is reached")
        await world.checked(session.id)


async def test_silence_while_a_call_runs_ends_in_a_heartbeat(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a")])
        await trio.sleep(601)
        assert last_said(world).startswith("Nothing has happened for 600 s. Still running: ")
        world.model.answer("still waiting")
        await trio.sleep(300)
        assert len(world.model.requests) == 2
        world.handler.end(world.handler.started[0])
        await settle()
        await answered(world, run)
        await world.checked(session.id)


@pytest.mark.parametrize(
    ("kind", "outcome"), [(ErrorKind.AUTHENTICATION, "failed"), (ErrorKind.CONTEXT_TOO_LONG, "blocked")]
)
async def test_a_turn_that_failed_for_good_ends_the_run(kind: ErrorKind, outcome: str) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.fail(ModelError(kind, "the reason", status=400, attempts=3))
        result = await run.result()
        assert result.outcome == outcome
        assert result.error.startswith(f"{kind.value}: the reason")
        await world.checked(session.id)


async def test_a_bug_in_a_model_object_fails_the_run_and_not_the_program(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.fail(ZeroDivisionError("oops"))
        assert (await run.result()).error == "unexpected: ZeroDivisionError: oops"
        assert "the model object failed in turn t1" in caplog.text


async def test_calls_of_a_response_that_was_cut_off_do_not_run() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("rm -rf build")], stop=StopReason.LENGTH)
        await settle()
        assert world.handler.started == []
        assert "this call was not run" in str(world.model.requests[-1].items[-1])
        await answered(world, run)


async def test_replay_check_names_the_turn_when_the_context_builder_is_another(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a"), call("b")])
        await settle()
        world.handler.end(world.handler.started[0])
        await trio.sleep(1)
        await settle()
        world.model.answer("waiting")
        await settle()
        world.handler.end(world.handler.started[1])
        await settle()
        await answered(world, run)
        log = await world.checked(session.id)
    monkeypatch.setattr("harness.transcript._running_text", lambda entry: "have patience")
    (divergence,) = harness.Replay(session.id, log).check()
    assert divergence.turn_id == "t2"
    assert divergence.item in (2, 3), "the call that ran on, whichever of the two that was"
    assert divergence.what == f"item {divergence.item} (ToolResultItem) is not what was sent"


async def test_the_errors_of_the_block_come_out_as_they_were() -> None:
    world = World()
    with pytest.raises(ZeroDivisionError):
        async with world.open():
            raise ZeroDivisionError


async def test_a_store_that_fails_fails_the_run_with_its_line_and_loses_nothing() -> None:
    world = World()
    full = harness.StoreUnavailable("the disk is full. Make room and open the session again.")

    def fail(method: str) -> None:
        if method == "append":
            raise full

    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.store.fail = fail
        world.model.answer(calls=[call("a")])
        with pytest.raises(harness.StoreUnavailable, match="the disk is full"):
            await run.result()
        assert world.handler.started == [], "no effect runs ahead of the log"
        with pytest.raises(harness.StoreUnavailable):
            await session.run("more")
    world.store.fail = None
    async with world.open(session.id) as again:
        await settle()
        current = again.current_run
        assert current is not None
        assert (await answered(world, current)).outcome == "completed"
        await world.checked(session.id)


async def test_a_session_that_is_open_cannot_be_opened_again() -> None:
    world = World()
    async with world.open() as session:
        with pytest.raises(harness.SessionBusy, match=f"session '{session.id}' is open in"):
            async with world.open(session.id):
                raise AssertionError("never reached")


async def test_deltas_show_text_and_output_and_end_with_the_session() -> None:
    world = World()
    async with world.open() as session:
        deltas = session.deltas()
        await session.start_run("go")
        await settle()
        world.model.says("hello")
        world.model.answer("hello")
        await settle()
        piece = await anext(deltas)
        assert isinstance(piece, harness.ModelDelta) and piece.delta == harness.TextDelta("hello")
    assert [piece async for piece in deltas] == []


async def test_a_reader_of_deltas_that_is_too_slow_is_told_what_it_lost() -> None:
    world = World()
    async with world.open() as session:
        deltas = session.deltas()
        await session.start_run("go")
        await settle()
        for _ in range(2000):
            world.model.says("x")
        assert await anext(deltas) == harness.Dropped(2000 - 1024)
        async for _ in deltas:
            break


async def test_events_follow_the_log_and_may_be_left_at_any_point() -> None:
    world = World()
    async with world.open() as session:
        kinds = []
        with trio.fail_after(5):
            run = await session.start_run("go")
            await settle()
            world.model.answer("done")
            async for entry in session.events(follow=True):
                kinds.append(entry.kind)
                if entry.kind == "run_finished":
                    break
        assert kinds == ["session_opened", "input_accepted", "turn_started", "turn_finished", "run_finished"]
        assert [entry.seq async for entry in session.events(after=3)] == [4, 5]
        await run.result()


def nothing_in(folder: Path) -> bool:
    return not list(folder.iterdir())


@harness.tool
async def order_status(order_id: str, detail: bool = False) -> str:
    """Look up an order."""
    return f"order {order_id} is on its way" + (" with every detail" if detail else "")


async def test_a_resume_that_lacks_a_needed_function_is_refused_before_anything_runs() -> None:
    world = World()
    store = world.store
    started = trio.Event()

    @harness.tool
    async def slow() -> str:
        """Take long."""
        started.set()
        await trio.sleep_forever()
        return ""

    async with harness.open_session(store, model=world.model, tools=[slow]) as session:
        await session.start_run("go")
        await settle()
        world.model.answer(calls=[call(name="slow", raw="")])
        await started.wait()
    before = await world.log(session.id)
    with pytest.raises(harness.ToolUnavailable, match="needs the tool 'slow'"):
        async with harness.open_session(store, session_id=session.id, model=world.model):
            raise AssertionError("never reached")
    assert await world.log(session.id) == before
    async with harness.open_session(store, session_id=session.id, model=world.model, tools=[slow]) as again:
        await settle()
        assert str(world.model.requests[-1].items).count("outcome unknown: the process that ran") == 1
        current = again.current_run
        assert current is not None
        await answered(world, current)
        await world.checked(session.id)


async def test_a_branch_of_a_branch_needs_no_function_for_a_call_that_stays_unknown(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    started = trio.Event()

    @harness.tool
    async def slow() -> str:
        """Take long."""
        started.set()
        await trio.sleep_forever()
        return ""

    async with harness.open_session(world.store, model=world.model, tools=[slow]) as session:
        await session.start_run("go")
        await settle()
        world.model.answer(calls=[call(name="slow", raw="")])
        await started.wait()
        branch = await session.fork()
    async with world.open(branch):
        await settle()
    log = await world.log(branch)
    updates = [each for each in log if isinstance(each.event, ev.OperationUpdated)]
    ended = next(each.seq for each in updates if "parent" in str(each.event))
    assert isinstance(log[ended].event, ev.ToolCallFinished)
    for at in range(ended - 1, ended + 2):  # before, between the two, and after
        of_branch = await harness.fork(world.store, branch, at=at)
        async with world.open(of_branch) as other:
            await settle()
            current = other.current_run
            assert current is not None
            assert "outcome unknown: it belongs to the parent session" in str(world.model.requests[-1].items)
            await answered(world, current)
        await world.checked(of_branch)


async def test_functions_are_tools() -> None:
    world = World()
    async with harness.open_session(world.store, model=world.model, tools=[order_status]) as session:
        run = await session.start_run("Where is order 7?")
        await settle()
        schema = world.model.requests[0].tools[0]
        assert (schema.name, schema.description) == ("order_status", "Look up an order.")
        assert schema.parameters["required"] == ["order_id"]
        world.model.answer(
            calls=[
                call(name="order_status", raw='{"order_id": "7", "detail": true}'),
                call(name="order_status", raw='{"order_id": 7}'),
                call(name="order_status", raw='{"order_id": "7", "x": 1}'),
            ]
        )
        while not world.model.asked:
            await settle()
        result = await answered(world, run)
        assert [made.text for made in result.tool_calls] == [
            "order 7 is on its way with every detail",
            "the arguments do not fit: Expected `str`, got `int` - at `$.order_id`. Correct them and call again.",
            "the arguments do not fit: Object contains unknown field `x`. Correct them and call again.",
        ]
        await world.checked(session.id)
    assert await order_status("7") == "order 7 is on its way"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"resume": "maybe"}, "resume has to be auto, must or never, not 'maybe'."),
        ({"resume": "must"}, "resume='must' needs the session_id to resume."),
        (
            {"workspace": "/no/such/folder"},
            "the workspace '/no/such/folder' is not a folder. Make it, or name another.",
        ),
        ({"limits": harness.Limits(turns=0)}, "the limit turns has to be above zero, not 0."),
        ({"limits": harness.Limits(seconds=float("nan"))}, "the limit seconds has to be above zero, not nan."),
        ({"policy": harness.Policy(coalesce_s=-1)}, "coalesce_s has to be a number of seconds, zero or more, not -1."),
        ({"session_id": "../x"}, "session_id '../x' is not usable: it may not begin with '.' or hold '/'."),
    ],
)
async def test_bad_arguments_are_refused_in_one_line_and_make_no_file(
    options: dict[str, object], line: str, tmp_path: Path
) -> None:
    with pytest.raises(harness.BadInput) as caught:
        async with harness.open_session(tmp_path / "s.db", **options):  # type: ignore[arg-type]  # wrong on purpose
            raise AssertionError("never reached")
    assert str(caught.value) == line
    assert nothing_in(tmp_path)


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_message_is_refused_before_anything_is_logged(text: str) -> None:
    world = World()
    async with world.open() as session:
        before = await world.log(session.id)
        with pytest.raises(harness.BadInput, match="the message is empty"):
            await session.run(text)
        assert await world.log(session.id) == before
        assert await world.store.inputs(session.id) == []


async def test_a_resume_that_must_find_its_session_does_not_make_one(tmp_path: Path) -> None:
    world = World()
    with pytest.raises(harness.UnknownSession, match="no session 'nobody'"):
        async with world.open("nobody", resume="must"):
            raise AssertionError("never reached")
    with pytest.raises(harness.StoreUnavailable):
        async with harness.open_session(tmp_path / "none.db", session_id="nobody", resume="must"):
            raise AssertionError("never reached")
    assert nothing_in(tmp_path)


async def test_what_is_changed_on_resume_is_recorded() -> None:
    world = World()
    async with world.open(instructions="Be brief.") as session:
        pass
    async with world.open(session.id, instructions="Be thorough.", tools=[order_status]) as session:
        run = await session.start_run("go")
        await settle()
        assert world.model.requests[0].instructions == "Be thorough."
        assert [tool.name for tool in world.model.requests[0].tools] == ["bash", "order_status"]
        await answered(world, run)
        log = await world.checked(session.id)
        assert isinstance(log[1].event, ev.InputAccepted) and isinstance(log[1].event.content, ev.Settings)


async def test_an_operation_that_cannot_be_cancelled_does_not_stop_the_log() -> None:
    world = World()
    world.handler.obeys_cancel = False
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a")])
        await settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.cancel)
            await settle()
            assert session.state.run is not None, "the run waits for the operation"
            world.handler.end(world.handler.started[0], Status.COMPLETED)
        assert (await run.result()).outcome == "cancelled"
        await world.checked(session.id)


async def test_a_message_that_comes_while_a_run_is_being_cancelled_starts_the_next_one() -> None:
    world = World()
    world.handler.obeys_cancel = False
    async with world.open() as session, trio.open_nursery() as nursery:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a")])
        await settle()
        nursery.start_soon(session.cancel)
        await settle()
        await run.steer("and then this")
        world.handler.end(world.handler.started[0])
        assert (await run.result()).outcome == "cancelled"
        await settle()
        following = session.current_run
        assert following is not None and last_said(world) == "and then this"
        await answered(world, following)
        await world.checked(session.id)


async def with_one_call(world: World, session: harness.Session) -> harness.Run:
    """A run that has made one call, which runs."""
    run = await session.start_run("go")
    await settle()
    world.model.answer(calls=[call("a")])
    await settle()
    return run


async def test_a_message_that_comes_while_an_idle_session_cancels_waits_for_the_end_of_that(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    world.handler.obeys_cancel = False
    async with world.open() as session:
        run = await with_one_call(world, session)
        await run.interrupt()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.cancel)
            await settle()
            following = await session.send("and then this")
            await settle()
            assert session.current_run is None and len(nursery.child_tasks) == 1, "both wait for the operation"
            world.handler.end(world.handler.started[0], Status.CANCELLED)
        await settle()
        assert last_said(world) == "and then this"
        await answered(world, following)
        await world.checked(session.id)


async def test_a_cancel_and_a_message_that_come_together_cancel_all_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with world.open() as session:
        run = await with_one_call(world, session)
        await run.interrupt()
        await harness.submit(world.store, session.id, harness.Cancel())
        message = await harness.submit(world.store, session.id, "and then this")
        await settle()
        assert not session.state.pending
        assert session.current_run is not None and session.current_run.id == message
        await answered(world, session.current_run)
        await world.checked(session.id)


async def test_interrupting_by_a_message_that_joined_another_run_stops_that_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    world.handler.obeys_cancel = False
    async with world.open() as session:
        await with_one_call(world, session)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.cancel)
            await settle()
            await session.send("one")
            joined = await session.send("two")
            world.handler.end(world.handler.started[0], Status.CANCELLED)
        await settle()
        assert session.current_run is not None and session.current_run.id != joined.id
        assert (await joined.interrupt()).outcome == "interrupted"
        assert session.current_run is None
        await world.checked(session.id)


async def test_an_interrupt_of_a_run_that_has_not_begun_is_of_that_run(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    world.handler.obeys_cancel = False
    async with world.open() as session:
        await with_one_call(world, session)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.cancel)
            await settle()
            waiting = await session.send("later")

            async def interrupt() -> None:
                assert (await waiting.interrupt()).run_id == waiting.id

            nursery.start_soon(interrupt)
            await settle()
            world.handler.end(world.handler.started[0], Status.CANCELLED)
        await world.checked(session.id)


async def test_the_blocks_own_group_of_errors_comes_out_as_it_was() -> None:
    world = World()
    mine = ExceptionGroup("mine", [ValueError(1)])
    with pytest.raises(ExceptionGroup) as caught:
        async with world.open():
            raise mine
    assert caught.value is mine


async def test_two_that_open_a_session_at_once_make_it_once(tmp_path: Path) -> None:
    outcomes: list[str] = []

    async def open_one() -> None:
        try:
            async with harness.open_session(tmp_path / "s.db", session_id="a", model="runbook") as session:
                outcomes.append((await session.run("nothing to run")).outcome)
        except harness.SessionBusy:
            outcomes.append("busy")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_one)
        nursery.start_soon(open_one)
    assert set(outcomes) <= {"completed", "busy"} and "completed" in outcomes


async def test_a_follower_that_outlives_its_session_is_told_that_it_is_closed(tmp_path: Path) -> None:
    async with harness.open_session(tmp_path / "s.db", model="runbook") as session:
        following = session.events(follow=True)
        await following.__anext__()
    with pytest.raises(harness.SessionClosed):
        async for _ in following:
            pass


async def test_a_rejected_call_shows_what_the_model_wrote(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call(raw='{"command": 5}'), call(raw="no json")])
        await settle()
        result = await answered(world, run)
    assert [made.arguments for made in result.tool_calls] == [{"command": 5}, {}]
