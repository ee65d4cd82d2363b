"""A session that stops its own process at a point that was asked for.

Usage: crashing.py STORE WORKSPACE POINT HOW. POINT counts from 1; 0 lets it finish. HOW: exit or kill.

A point is a moment before or after an append, an input, a blob, the start or the end of an operation, a model call, and
before each COMMIT of SQLite, in the writer's own thread. Their names go to points.txt in the workspace.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

import harness
from harness.llm.model import Emit, ModelRequest, ModelResponse, StopReason, Text, ToolCall, ToolResultItem, UserItem
from operations import Context, Ended, Handler, Operation, OperationManager
from operations.handlers import default_handlers
from store import SqliteStore

SESSION = "crashed"
LINES = ("a", "b", "c")


class Points:
    """Counts the points and stops the process at one of them, with nothing cleaned up."""

    def __init__(self, at: int, how: str, names: Path) -> None:
        self._at, self._how, self._names, self._count = at, how, names, 0

    def point(self, name: str) -> None:
        self._count += 1
        with self._names.open("a") as file:
            file.write(name + "\n")
        if self._count == self._at:
            if self._how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(77)


class CrashingStore:
    """A store with a point before and after every change."""

    def __init__(self, inner: SqliteStore, points: Points) -> None:
        self._inner, self._points = inner, points

    @property
    def location(self) -> str:
        return self._inner.location

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in ("append", "submit", "put_blobs", "create", "acquire"):
            return method
        return self._between(name, method)

    def _between(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **options: Any) -> Any:
            self._points.point(f"before {name}")
            result = await method(*arguments, **options)
            self._points.point(f"after {name}")
            return result

        return call


class CrashingHandler:
    """A handler with points around the beginning and at the end of each operation."""

    def __init__(self, inner: Handler, points: Points) -> None:
        self._inner, self._points = inner, points
        self.type, self.version, self.limit = inner.type, inner.version, inner.limit
        self.enforces_timeout = getattr(inner, "enforces_timeout", False)

    async def start(self, operation: Operation, context: Context) -> Ended:
        return await self._around("start", self._inner.start, operation, context)

    async def recover(self, operation: Operation, context: Context) -> Ended:
        return await self._around("recover", self._inner.recover, operation, context)

    async def cancel(self, operation: Operation) -> bool:
        return await self._inner.cancel(operation)

    async def _around(
        self,
        name: str,
        verb: Callable[[Operation, Context], Awaitable[Ended]],
        operation: Operation,
        context: Context,
    ) -> Ended:
        self._points.point(f"before {name} {self.type}")
        ended = await verb(operation, _Telling(context, self._points, self.type))  # type: ignore[arg-type]
        self._points.point(f"after {name} {self.type}")
        return ended


class _Telling:
    """A context with a point where a handler has begun its work, and has told nobody yet."""

    def __init__(self, inner: Context, points: Points, kind: str) -> None:
        self._inner, self._points, self._kind = inner, points, kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def running(self, checkpoint: dict[str, Any] | None = None) -> None:
        self._points.point(f"running {self._kind}")
        await self._inner.running(checkpoint)


class Model:
    """Asks for everything at once, and says at the end how each call ended, from what the request holds alone."""

    name = "crashing"

    def __init__(self, points: Points) -> None:
        self._points = points

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        self._points.point("before the model call")
        await trio.lowlevel.checkpoint()
        response = self._response(request)
        self._points.point("after the model call")
        return response

    def _response(self, request: ModelRequest) -> ModelResponse:
        results: dict[str, str] = {}
        for item in request.items:
            text = "\n".join(part.text for part in getattr(item, "parts", ()) if isinstance(part, Text))
            if isinstance(item, ToolResultItem):
                results[item.call_id] = text
            elif isinstance(item, UserItem) and text.startswith("Result of call "):
                results[text.split()[3]] = text.partition("\n")[2]
        if not results:
            work = "echo {0} >> lines.txt; echo said {0}"
            commands = [f"sleep 0.0{i}; " + work.format(line) for i, line in enumerate(LINES)]
            calls = [ToolCall("bash", msgspec.json.encode({"command": command}).decode()) for command in commands]
            calls += [ToolCall("note", '{"line": "noted"}'), ToolCall("view_image", '{"path": "dot.png"}')]
            return ModelResponse(tuple(calls), StopReason.TOOL_CALLS)
        said = []
        for call_id in sorted(results):
            text = results[call_id]
            said.append("unknown" if "unknown" in text else "running" if "running" in text else _last_line(text))
        return ModelResponse((Text("; ".join(said)),))


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


async def main(path: str, workspace: str, at: int, how: str) -> None:
    folder = Path(workspace)
    points = Points(at, how, folder / "points.txt")

    @harness.tool
    async def note(line: str) -> str:
        """Write a line, which must not be done twice."""
        with (folder / "notes.txt").open("a") as file:
            file.write(line + "\n")
        points.point("the function has done its work")
        return line

    def trace(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(lambda sql: points.point("before COMMIT") if sql == "COMMIT" else None)

    async with SqliteStore.open(path) as store:
        await store.write(trace)
        async with harness.open_session(
            CrashingStore(store, points),  # type: ignore[arg-type]
            session_id=SESSION,
            workspace=workspace,
            model=Model(points),
            tools=[harness.bash(), harness.view_image(), note],
            manager=OperationManager([CrashingHandler(handler, points) for handler in default_handlers()]),
            policy=harness.Policy(coalesce_s=0.3, window_tokens=100_000),
        ) as session:
            result = await session.run("go", idempotency_key="the-run")
            print(result.outcome.value, result.text, flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
