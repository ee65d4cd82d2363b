"""Record the golden logs of a release: a session with every kind of event, a branch of it, and their store.

Belongs here: driving a session through everything that can happen in it.
Must not know: what later versions make of the log.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import trio
from PIL import Image

import harness
from harness import events as ev
from harness.llm.model import ErrorKind, ModelError, ToolCall
from operations import OperationManager
from operations.handlers.image import ImageHandler
from store import SqliteStore
from store.maintenance import backup, export_session
from tests.harness.world import TestHandler, TestModel, call

SESSION = "golden"
POLICY = ev.Policy(coalesce_s=0.0, heartbeat_s=0.4, window_tokens=100_000)


class Stage:
    """A session in a file, with its outsides in our hands."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.model, self.handler = store, TestModel(), TestHandler()
        self.manager = OperationManager([self.handler, ImageHandler()])

    def open(self, session_id: str, **options: object):
        return harness.open_session(
            self.store, session_id=session_id, model=self.model, manager=self.manager, workspace="/", **options
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(10):
            while not condition():  # noqa: ASYNC110  (the writer's thread sets no event of ours)
                await trio.sleep(0.01)

    async def asked(self) -> TestModel:
        await self.until(lambda: self.model.asked)
        return self.model


async def first_runs(stage: Stage, session: harness.Session, picture: str) -> None:
    run = await session.start_run("List the files, and look at the picture.", idempotency_key="in-1")
    look = ToolCall("view_image", f'{{"path": "{picture}"}}')
    (await stage.asked()).answer("Two things at once.", [call("ls", wake="batch"), look, call(raw="{")])
    (await stage.asked()).answer("I see the picture.")
    await stage.until(lambda: bool(stage.handler.running))
    await trio.sleep(0.6)  # long enough for a heartbeat
    (await stage.asked()).answer("Still waiting.")
    stage.handler.end(stage.handler.started[0])
    (await stage.asked()).says("There are")
    await run.steer("Only count them.", input_id="in-2")
    (await stage.asked()).fail(ModelError(ErrorKind.SERVER_ERROR, "it does not work", status=500, attempts=3))
    await run.result()
    run = await session.start_run("Again.", idempotency_key="in-3")
    (await stage.asked()).answer("", [call("sleep 100")])
    await stage.until(lambda: bool(stage.handler.running))
    await session.cancel("no more")
    run = await session.start_run("Once more.", idempotency_key="in-4")
    await stage.asked()
    await run.interrupt("enough")


async def later_run(stage: Stage, session: harness.Session, input_id: str) -> None:
    run = await session.start_run("What do you remember?", idempotency_key=input_id)
    while not run.ended:
        (await stage.asked()).answer("There was a picture, and a list of files.")
        await trio.sleep(0.1)


async def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        picture = Path(scratch) / "dot.png"
        Image.new("RGB", (2, 1), "red").save(picture)
        made = Path(scratch) / "store.db"
        async with SqliteStore.open(made) as store:
            stage = Stage(store)
            tools = [harness.bash(), harness.view_image()]
            async with stage.open(SESSION, tools=tools, policy=POLICY, title="everything") as session:
                await first_runs(stage, session, str(picture).lstrip("/"))
            small = harness.Policy(coalesce_s=0.0, heartbeat_s=0.0, window_tokens=40)
            async with stage.open(SESSION, policy=small, instructions="Be brief.") as session:
                await later_run(stage, session, "in-5")
                branch = await session.fork()
            async with stage.open(branch) as session:
                await later_run(stage, session, "in-6")
            for name, session_id in (("session", SESSION), ("branch", branch)):
                lines = [line async for line in export_session(store, session_id)]
                (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
        await backup(made, folder / "store.db")
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        connection.execute("DELETE FROM leases")  # they name the machine that this was recorded on
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")


if __name__ == "__main__":
    target = Path(__file__).parent / sys.argv[1]
    target.mkdir()
    trio.run(record, target)
    print(*sorted(path.name for path in target.iterdir()))
