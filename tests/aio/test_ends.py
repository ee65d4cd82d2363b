"""How things end: cancellation in both directions, Ctrl-C, loops that stop, loops that cannot have a session."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

import harness
import harness.aio
from harness.aio.places import in_trio_run
from harness.llm.model import Text
from store import MemoryStore
from tests.aio.programs import AskedModel, SayingModel, run, stopped

ROOT = Path(__file__).parents[2]


def _opened(
    model: AskedModel, store: harness.Store | Path | None = None
) -> AbstractAsyncContextManager[harness.aio.Session]:
    return harness.aio.open_session(
        MemoryStore() if store is None else store, session_id="one", model=harness.aio.model(model), tools=[]
    )


def test_a_cancelled_wait_leaves_the_run_going() -> None:
    async def main() -> None:
        model = AskedModel()
        async with _opened(model) as session:
            waiting = asyncio.create_task(session.run("go", idempotency_key="k"))
            await model.asked.wait()
            await stopped(waiting)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.run("go", idempotency_key="k"), 0.001)
            await model.answers(Text("gone"))
            assert (await session.run("go", idempotency_key="k")).text == "gone"
            assert model.cancelled == 0

    run(main)


def test_a_cancelled_follower_loses_nothing() -> None:
    async def main() -> None:
        model = AskedModel()
        async with _opened(model) as session:
            events = session.events(follow=True)
            first = await anext(events)
            await stopped(asyncio.create_task(_last(events)))
            going = await session.start_run("go")
            await model.answers(Text("gone"))
            await going.result()
            assert first.seq == 1
            assert (await anext(events)).seq == 2

    run(main)


async def _last(events: harness.aio.Events) -> None:
    async for _ in events:
        pass


def test_calls_that_wait_when_the_session_closes_raise_session_closed() -> None:
    async def main() -> None:
        model = AskedModel()
        async with _opened(model) as session:
            going = await session.start_run("go")
            await model.asked.wait()
            waiting = [asyncio.create_task(going.result()), asyncio.create_task(_last(session.events(follow=True)))]
            await asyncio.sleep(0)
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in done] == [harness.SessionClosed] * 2
        assert model.cancelled == 1
        with pytest.raises(harness.SessionClosed):
            await anext(session.events())
        await session.events().aclose()

    run(main)


@pytest.mark.parametrize("durable", [False, True])
def test_opening_and_closing_can_be_cancelled_at_any_step(tmp_path: Path, durable: bool) -> None:
    async def use(store: harness.Store | Path) -> None:
        async with _opened(AskedModel(), store) as session:
            await session.start_run("go")

    async def main() -> int:
        steps = 0
        while True:
            task = asyncio.create_task(use(tmp_path / f"{steps}.db" if durable else MemoryStore()))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
                return steps
            # Steps that wait for a thread are as many as the machine likes: some of them will do.
            steps = steps * 3 // 2 + 1 if durable else steps + 1

    assert run(main) > 10


def test_a_cancelled_block_closes_its_session_and_can_be_resumed(tmp_path: Path) -> None:
    async def main() -> None:
        model, again = AskedModel(), AskedModel()
        task = asyncio.create_task(_use(model, tmp_path / "s.db"))
        await model.asked.wait()
        await stopped(task)
        async with _opened(again, tmp_path / "s.db") as session:
            assert session.current_run is not None
            await again.answers(Text("went on"))
            assert (await session.run("go", idempotency_key="k")).text == "went on"

    run(main)


async def _use(model: AskedModel, store: Path) -> None:
    async with _opened(model, store) as session:
        await session.run("go", idempotency_key="k")


def test_the_end_of_asyncio_run_closes_what_tasks_have_open(tmp_path: Path) -> None:
    """The turn in flight is lost, not failed: the run goes on when the session is opened again."""
    store = tmp_path / "s.db"
    model = AskedModel()

    async def main() -> None:
        running.append(asyncio.create_task(_use(model, store)))
        await model.asked.wait()

    running: list[asyncio.Task[None]] = []
    run(main)
    assert running[0].cancelled()
    assert model.cancelled == 1
    (line,) = trio.run(harness.sessions, store)
    assert (line.state, line.holder) == ("unfinished", None)


def test_the_end_of_asyncio_run_closes_a_session_that_was_never_left(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    model = AskedModel()
    kept: list[AbstractAsyncContextManager[harness.aio.Session]] = []

    async def main() -> None:
        kept.append(_opened(model, store))
        session = await kept[0].__aenter__()
        await session.start_run("go")
        await model.asked.wait()

    run(main)
    assert model.cancelled == 1
    (line,) = trio.run(harness.sessions, store)
    assert (line.state, line.holder) == ("unfinished", None)


def test_a_session_lives_through_several_starts_of_a_loop(tmp_path: Path) -> None:
    model = AskedModel()
    with asyncio.Runner(debug=True) as runner:
        opened = _opened(model, tmp_path / "s.db")
        session = runner.run(opened.__aenter__())
        going = runner.run(session.start_run("go"))
        runner.run(model.answers(Text("gone")))
        assert runner.run(going.result()).text == "gone"
        runner.run(opened.__aexit__(None, None, None))
        assert not in_trio_run()


INTERRUPTED = """
import asyncio, sys, harness.aio
from harness.llm.model import ModelResponse

class Endless:
    name = "endless"
    async def respond(self, request, *, emit):
        print("asked", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            print("stopped", flush=True)

async def main():
    async with harness.aio.open_session(sys.argv[1], model=harness.aio.model(Endless()), tools=[]) as session:
        await session.run("go")

try:
    asyncio.run(main(), debug=True)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", INTERRUPTED, str(store)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    os.kill(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=30)
    assert (said, complained, process.returncode) == ("stopped\ninterrupted\n", "", 0)
    (line,) = trio.run(harness.sessions, store)
    assert (line.state, line.holder) == ("unfinished", None)


def test_an_interrupt_that_hits_trio_itself_ends_the_loop() -> None:
    """Without asyncio.Runner the interpreter's own handler is there, and trio puts its own in that place."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    @trio.lowlevel.enable_ki_protection  # as all of trio's own code is
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    @harness.tool
    async def interrupted() -> None:
        interrupt()
        await trio.sleep_forever()

    async def main() -> None:
        saying = harness.aio.model(SayingModel("interrupted"))
        async with harness.aio.open_session(MemoryStore(), model=saying, tools=[interrupted]) as session:
            with pytest.raises(harness.SessionClosed):
                await session.run("go")
            await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(main())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        assert not in_trio_run()
        task.cancel()
        with pytest.raises(BaseExceptionGroup) as caught:
            loop.run_until_complete(task)
        assert caught.group_contains(KeyboardInterrupt)
    finally:
        loop.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_iterators_that_were_left_are_gone() -> None:
    async def main() -> None:
        async with _opened(AskedModel()) as session:
            await session.start_run("go")
            deltas, events = session.deltas(), session.events(follow=True)
            async for _ in events:
                break
            left: list[weakref.ref[Any]] = [weakref.ref(deltas), weakref.ref(events)]
            del deltas, events
            assert [ref() for ref in left] == [None, None]

    run(main)


CLOSED = """
import asyncio, sys, threading, harness.aio

loop = asyncio.new_event_loop()
opened = harness.aio.open_session(sys.argv[1], session_id="one")
loop.run_until_complete(opened.__aenter__())
loop.close()

def elsewhere():
    print([line.state for line in asyncio.run(harness.aio.sessions(sys.argv[1]))])

thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
"""


def test_a_loop_that_is_closed_with_a_session_open_leaves_it_to_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, str(tmp_path / "s.db")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "['idle']\n"


def test_a_failure_inside_the_session_is_raised_at_the_end_of_the_block() -> None:
    class Broken(MemoryStore):
        async def wait_for_input(self, session_id: str, *, after: int) -> None:
            raise ZeroDivisionError("a defect")

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with _opened(AskedModel(), Broken()) as session:
                with pytest.raises(harness.SessionClosed):
                    await session.run("go")
        assert caught.group_contains(ZeroDivisionError)

    run(main)


def test_another_guest_run_in_the_loop_is_told_in_one_line() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        leave = trio.Event()
        trio.lowlevel.start_guest_run(
            leave.wait, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended.set_result
        )
        with pytest.raises(harness.aio.LoopInUse, match="another trio run is the guest"):
            await harness.aio.sessions("s.db")
        leave.set()
        await ended

    run(main)


def test_trio_code_and_code_without_a_loop_are_told_so() -> None:
    with pytest.raises(harness.aio.LoopInUse, match="no asyncio loop runs here"):
        trio.run(harness.aio.sessions, "s.db")

    @harness.tool
    async def inside() -> str:
        await trio.lowlevel.checkpoint()
        await harness.aio.sessions("s.db")
        return "went well"

    async def main() -> None:
        model = harness.aio.model(SayingModel("inside"))
        async with harness.aio.open_session(MemoryStore(), model=model, tools=[inside]) as session:
            assert "Use harness itself from trio code" in (await session.run("go")).text

    run(main)


def test_a_session_is_of_one_loop() -> None:
    async def main() -> None:
        async with _opened(AskedModel()) as session:
            problems: list[BaseException] = []

            def elsewhere() -> None:
                try:
                    asyncio.run(session.run("go"))
                except harness.aio.LoopInUse as error:
                    problems.append(error)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            await asyncio.to_thread(thread.join)
            assert ["belongs to another asyncio loop" in str(problem) for problem in problems] == [True]

    run(main)


def test_loops_of_two_threads_have_sessions_at_once() -> None:
    meet = threading.Barrier(2)

    async def main() -> str:
        model = AskedModel()
        async with _opened(model) as session:
            await asyncio.to_thread(meet.wait)
            going = await session.start_run("go")
            await model.answers(Text("gone"))
            return (await going.result()).text

    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(run(main))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["gone", "gone"]
