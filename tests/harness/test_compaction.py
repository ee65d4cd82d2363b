"""Histories that outgrow the model's window."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness import events as ev
from harness.llm.model import ErrorKind, ModelError, StopReason, Text, ToolResultItem, Usage, UserItem
from harness.llm.windows import BadWindows, window_of
from operations import Ended, Status
from tests.harness.world import World, call, settle


def policy(window: int) -> harness.Policy:
    return harness.Policy(window_tokens=window)


def texts(request: harness.ModelRequest) -> list[str]:
    return [part.text for item in request.items for part in getattr(item, "parts", ()) if isinstance(part, Text)]


async def a_call(world: World, session: harness.Session, tokens: int) -> None:
    """The model makes a call, whose turn counts so many tokens, and its result lands."""
    world.model.answer("I look.", [call("look")], usage=Usage(input=tokens, output=10))
    await settle()
    world.handler.end(world.handler.started[-1])
    await settle()


async def test_the_history_is_summarised_before_it_reaches_the_window() -> None:
    world = World()
    async with world.open(policy=policy(1000)) as session:
        run = await session.start_run("Tidy up the whole house, please.")
        await settle()
        await a_call(world, session, 300)
        await a_call(world, session, 850)
        asked = world.model.requests[-1]
        assert (asked.tools, asked.allow_tools) == ((), False)
        assert "Tidy up the whole house" in texts(asked)[0] and "model calls bash" in texts(asked)[0]
        world.model.answer("They want a tidy house; the kitchen is done.")
        await settle()
        following = world.model.requests[-1]
        assert texts(following)[0].startswith("Summary of the conversation so far:\nThey want a tidy house")
        assert following.tools and following.allow_tools
        world.model.answer("done")
        result = await run.result()
        assert (result.outcome, result.turns) == ("completed", 4)
        log = await world.checked(session.id)
        assert [entry.kind for entry in log].count("context_compacted") == 1


async def test_results_count_as_long_as_they_will_be_sent() -> None:
    world = World()
    async with world.open(policy=policy(10_000)) as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("one"), call("two")], usage=Usage(input=1000, output=10))
        await settle()
        for operation_id in world.handler.started:  # uncut 30,000 tokens; the request takes 20,000 characters of both
            world.handler.end(operation_id)
            world.handler.outcomes[operation_id] = Ended(
                Status.COMPLETED, {"output": "x" * 60_000, "exit_status": 0}, seconds=1.0
            )
        await settle()
        assert world.model.requests[-1].allow_tools, "a summary was asked for"
        assert 19_000 < sum(map(len, texts(world.model.requests[-1]))) < 21_000
        world.model.answer("done")
        assert (await run.result()).turns == 2
        await world.checked(session.id)


async def test_a_pending_call_survives_and_its_result_arrives_late() -> None:
    world = World()
    async with world.open(policy=policy(400)) as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("long")])
        await settle()
        await run.steer("and look here")
        await settle()
        world.model.answer("x" * 2000, usage=Usage(input=390, output=5))
        await settle()
        await run.steer("and there")
        await settle()
        world.model.answer("They want me to look.")
        await settle()
        assert (
            "Still running, with results to come in later messages: t0001c000 (bash)"
            in texts(world.model.requests[-1])[0]
        )
        world.model.answer("looking")
        await settle()
        world.handler.end(world.handler.started[0])
        await settle()
        assert texts(world.model.requests[-1])[-1].startswith("Result of call t0001c000 (bash):\nexit status 0")
        world.model.answer("done")
        assert (await run.result()).outcome == "completed"
        await world.checked(session.id)


async def test_a_dear_summary_counts_as_the_largest_step_of_a_token_limit() -> None:
    world = World()
    async with world.open(policy=policy(400), limits=harness.Limits(tokens=1600)) as session:
        run = await session.start_run("go")
        await settle()
        await a_call(world, session, 390)
        assert not world.model.requests[-1].allow_tools
        world.model.answer("They said go.", usage=Usage(input=600, output=100))
        await settle()
        assert "limit" in texts(world.model.requests[-1])[-1]  # another step like the summary would not fit
        world.model.answer("as far as I came", usage=Usage(input=10, output=1))
        assert (await run.result()).outcome == "limit_reached"
        await world.checked(session.id)


async def test_a_context_that_is_too_long_is_summarised_once_and_the_turn_tried_again() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        await a_call(world, session, 100)
        world.model.fail(ModelError(ErrorKind.CONTEXT_TOO_LONG, "prompt is too long", status=400))
        await settle()
        world.model.answer("They said go.")
        await settle()
        items = world.model.requests[-1].items
        assert isinstance(items[-1], (UserItem, ToolResultItem))
        world.model.answer("done")
        assert (await run.result()).outcome == "completed"
        await world.checked(session.id)


async def test_a_context_that_stays_too_long_blocks_the_run_and_says_what_is_large() -> None:
    world = World()
    async with world.open(instructions="x" * 5000) as session:
        run = await session.start_run("go")
        await settle()
        await a_call(world, session, 100)
        for answer in ("fail", "summary", "fail"):
            if answer == "fail":
                world.model.fail(ModelError(ErrorKind.CONTEXT_TOO_LONG, "prompt is too long", status=400))
            else:
                world.model.answer("They said go.")
            await settle()
        result = await run.result()
        assert result.outcome == "blocked"
        assert result.error.startswith("context_too_long: prompt is too long (instructions 5000, tools ")
        assert result.turns == 4
        await world.checked(session.id)


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.REFUSAL])
async def test_a_summary_that_is_none_leaves_the_history_as_it_was(stop: StopReason) -> None:
    world = World()
    async with world.open(policy=policy(100)) as session:
        run = await session.start_run("go")
        await settle()
        await a_call(world, session, 99)
        world.model.answer("They sa", stop=stop)
        await settle()
        assert texts(world.model.requests[-1])[0] == "go"
        world.model.answer("done")
        assert (await run.result()).outcome == "completed"
        log = await world.checked(session.id)
        assert not any(isinstance(entry.event, ev.ContextCompacted) for entry in log)


async def test_a_summarising_turn_that_fails_fails_the_run_and_nothing_is_lost() -> None:
    world = World()
    async with world.open(policy=policy(100)) as session:
        run = await session.start_run("go")
        await settle()
        await a_call(world, session, 99)
        world.model.fail(ModelError(ErrorKind.SERVER_ERROR, "oops", status=500, attempts=5))
        assert (await run.result()).error == "server_error: oops"
        run = await session.start_run("go on")
        await settle()
        world.model.answer("They said go.")
        await settle()
        world.model.answer("done")
        assert (await run.result()).outcome == "completed"
        await world.checked(session.id)


async def test_a_fork_between_summary_and_compaction_finishes_it() -> None:
    world = World()
    async with world.open(policy=policy(100)) as session:
        run = await session.start_run("go")
        await settle()
        await a_call(world, session, 99)
        world.model.answer("They said go.")
        await settle()
        world.model.answer("done")
        await run.result()
        log = await world.checked(session.id)
    (place,) = [entry.seq for entry in log if isinstance(entry.event, ev.ContextCompacted)]
    branch = await harness.fork(world.store, session.id, at=place - 1)
    async with world.open(branch) as session:
        await settle()
        world.model.answer("done here")
        current = session.current_run
        assert current is not None
        assert (await current.result()).text == "done here"
        assert "context_compacted" in [entry.kind for entry in await world.checked(branch)]


def test_windows_come_from_the_longest_name_that_fits_and_users_have_the_first_word(tmp_path: Path) -> None:
    assert window_of("openai:gpt-4o-mini", {}) == 128_000
    assert window_of("runbook", {}) is None
    own = tmp_path / "windows.json"
    own.write_text('{"windows": {"runbook": 77, "openai:gpt-4o": 5}}')
    environ = {"TURNLOG_WINDOWS": str(own)}
    assert (window_of("runbook", environ), window_of("openai:gpt-4o-mini", environ)) == (77, 5)
    assert window_of("anthropic:claude-x", environ) == 200_000


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "which cannot be read"),
        ("{", "which is not as it has to be"),
        ('{"windows": {"a": 0}}', "the window of 'a' has to be above zero"),
    ],
)
def test_a_windows_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, line: str) -> None:
    own = tmp_path / "windows.json"
    if content is not None:
        own.write_text(content)
    with pytest.raises(BadWindows, match=line):
        window_of("m", {"TURNLOG_WINDOWS": str(own)})
