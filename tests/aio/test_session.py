"""The session API from asyncio: what `harness.Session` promises, over real files and commands."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness
import harness.aio
from harness import events as ev
from harness.llm.model import Text, TextDelta
from store import MemoryStore
from tests.aio.programs import HELLO, AskedModel, run


def test_a_runbook_runs_once_for_one_key(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def main() -> None:
        async with harness.aio.open_session(store, model="runbook", workspace=tmp_path) as session:
            first = await session.run(HELLO, idempotency_key="k")
            assert (first.outcome, first.turns) == ("completed", 2)
            assert "hello" in first.text
            assert await session.run(HELLO, idempotency_key="k") == first
        async with harness.aio.open_session(store, session_id=session.id) as again:
            assert await again.run(HELLO, idempotency_key="k") == first

    run(main)


def test_events_are_read_followed_and_left(tmp_path: Path) -> None:
    async def main() -> None:
        async with harness.aio.open_session(tmp_path / "s.db", workspace=tmp_path) as session:
            run_of_it = await session.start_run(HELLO)
            async for logged in session.events(follow=True):
                if isinstance(logged.event, ev.RunFinished):
                    break
            result = await run_of_it.result()
            read = [logged async for logged in session.events()]
            assert [logged.seq for logged in read] == list(range(1, session.state.seq + 1))
            assert [logged.seq async for logged in session.events(after=3)] == [logged.seq for logged in read[3:]]
        assert result.outcome == "completed"
        assert await harness.aio.read_events(tmp_path / "s.db", session.id) == read

    run(main)


def test_deltas_come_until_the_session_closes() -> None:
    async def main() -> None:
        model = AskedModel()
        async with harness.aio.open_session(MemoryStore(), model=harness.aio.model(model), tools=[]) as session:
            left = session.deltas()
            read_later = session.deltas()
            reader = asyncio.create_task(_collect(session.deltas()))
            going = await session.start_run("hello")
            async for piece in left:
                assert isinstance(piece, harness.ModelDelta)
                assert piece.delta == TextDelta("let me see")
                break
            await left.aclose()
            await model.answers(Text("done"))
            assert (await going.result()).text == "done"
        assert [piece async for piece in read_later] == await reader == [piece]

    run(main)


async def _collect(deltas: harness.aio.Deltas) -> list[harness.Piece]:
    return [piece async for piece in deltas]


def test_steer_send_and_interrupt() -> None:
    async def main() -> None:
        model = AskedModel()
        async with harness.aio.open_session(MemoryStore(), model=harness.aio.model(model), tools=[]) as session:
            going = await session.start_run("one")
            assert session.current_run is not None
            assert session.current_run.id == going.id
            await model.asked.wait()
            model.asked.clear()
            await going.steer("two")
            await model.answers(Text("read both"))
            assert (await going.result()).text == "read both"
            assert model.cancelled == 1  # the turn that was steered was cut, in the asyncio loop too
            with pytest.raises(harness.RunEnded):
                await going.steer("three")
            sent = await session.send("four")
            await model.asked.wait()
            assert (await sent.interrupt("enough")).outcome == "interrupted"
            assert model.cancelled == 2
            assert sent.ended

    run(main)


def test_cancel_ends_a_command(tmp_path: Path) -> None:
    async def main() -> None:
        async with harness.aio.open_session(tmp_path / "s.db", workspace=tmp_path) as session:
            going = await session.start_run("# Wait\n\n~~~sh\nsleep 600\n~~~\n")
            async for logged in session.events(follow=True):
                if isinstance(logged.event, ev.ToolCallPending):
                    break
            await session.cancel("no longer needed")
            assert (await going.result()).outcome == "cancelled"

    run(main)


def test_forks_listings_replays_and_reruns(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def main() -> None:
        async with harness.aio.open_session(store, workspace=tmp_path) as session:
            result = await session.run(HELLO)
            branch = await session.fork("t1")
        other = await harness.aio.fork(store, session.id, at=2, title="other")
        assert {line.id for line in await harness.aio.sessions(store)} == {session.id, branch, other}
        async with harness.aio.open_session(store, session_id=branch) as forked:
            assert forked.current_run is not None
            assert (await forked.current_run.result()).outcome == "completed"
        replayed = await harness.aio.replay(store, session.id)
        assert replayed.check() == []
        assert (await replayed.rerun()).turns == result.turns
        assert (await harness.aio.rerun(store, session.id)).unmatched == ()

    run(main)


def test_an_input_submitted_from_elsewhere_is_taken_up(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def main() -> None:
        async with harness.aio.open_session(store, workspace=tmp_path) as session:
            pass
        assert await harness.aio.submit(store, session.id, HELLO, "mine") == "mine"
        async with harness.aio.open_session(store, session_id=session.id) as session:
            assert (await session.run(HELLO, idempotency_key="mine")).outcome == "completed"
        with pytest.raises(harness.StoreUnavailable):
            await harness.aio.submit(tmp_path / "none.db", session.id, HELLO)
        assert not (tmp_path / "none.db").exists()

    run(main)


def test_errors_come_out_as_they_were_raised(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def main() -> None:
        async with harness.aio.open_session(store, model=harness.aio.model(AskedModel()), tools=[]) as session:
            with pytest.raises(harness.SessionBusy):
                async with harness.aio.open_session(store, session_id=session.id):
                    raise AssertionError("opened twice")
            with pytest.raises(harness.BadInput):
                await session.run("  ")
            going = await session.start_run("one")
            with pytest.raises(harness.RunInProgress) as caught:
                await session.run("two")
            in_progress: object = caught.value.run
            assert isinstance(in_progress, harness.aio.Run)
            assert in_progress.id == going.id
            with pytest.raises(harness.UnknownSequence):
                await session.fork(999)
        with pytest.raises(harness.UnknownModel):
            async with harness.aio.open_session(store, model="nobody"):
                raise AssertionError("opened without a model")
        with pytest.raises(harness.UnknownSession):
            await harness.aio.read_events(store, "nothere")
        with pytest.raises(harness.SessionClosed):
            await session.run("three")
        with pytest.raises(ZeroDivisionError):
            async with harness.aio.open_session(store, session_id=session.id, model="runbook"):
                raise ZeroDivisionError

    run(main)


def test_sessions_at_once_share_a_store_and_trio(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def one(name: str) -> str:
        async with harness.aio.open_session(store, workspace=tmp_path, title=name) as session:
            return (await session.run(f"# {name}\n\n~~~sh\necho {name}\n~~~\n")).text

    async def main() -> None:
        texts = await asyncio.gather(*(one(f"number{n}") for n in range(3)))
        assert [f"number{n}" in text for n, text in enumerate(texts)] == [True] * 3
        assert len(await harness.aio.sessions(store)) == 3

    run(main)


def test_many_opens_in_sequence_start_and_end_trio_each_time() -> None:
    async def opening(store: MemoryStore, session_id: str) -> None:
        for _ in range(10):
            async with harness.aio.open_session(store, session_id=session_id) as session:
                assert session.state.config.model == "runbook"

    async def main() -> None:
        store = MemoryStore()
        await opening(store, "one")
        await asyncio.gather(*(opening(store, name) for name in "abc"))
        with pytest.raises(harness.UnknownSession):
            await harness.aio.read_events(store, "two")

    run(main)
    run(main)  # another loop in the same thread


def test_the_arguments_are_those_of_the_trio_api() -> None:
    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (harness.aio.open_session, harness.open_session),
        (harness.aio.fork, harness.fork),
        (harness.aio.sessions, harness.sessions),
        (harness.aio.read_events, harness.read_events),
        (harness.aio.replay, harness.replay),
        (harness.aio.rerun, harness.rerun),
        (harness.aio.submit, harness.submit),
        (harness.aio.tool, harness.tool),
    ]
    for kind, native in ((harness.aio.Session, harness.Session), (harness.aio.Run, harness.Run)):
        names = [name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))]
        pairs += [(getattr(kind, name), getattr(native, name)) for name in names if hasattr(native, name)]
        assert {name for name in vars(native) if not name.startswith("_")} <= set(dir(kind))
    for ours, theirs in pairs:
        left, right = inspect.signature(ours), inspect.signature(theirs)
        assert [(p.name, p.kind, p.default) for p in left.parameters.values()] == [
            (p.name, p.kind, p.default) for p in right.parameters.values()
        ], ours
