"""A program that uses a session's own methods, and tries again with the same key when its process is gone.

Belongs here: what a caller of `Session` may expect of it.
Must not know: what the session is, or what happens to it.
"""

from __future__ import annotations

import trio

import harness
from store import StoreError
from tests.simulation.process import Process
from tests.simulation.world import Broken

GIVES_UP = (harness.RunInProgress, harness.RunEnded, harness.SessionClosed, StoreError)


class Program:
    """One call of a session, made until it is answered. result: of the run; once only, whatever was tried before."""

    def __init__(self, session_id: str, verb: str, text: str, key: str) -> None:
        self.session_id, self.verb, self.text, self.key = session_id, verb, text, key
        self.done = False
        self.results: list[harness.RunResult] = []

    async def attempt(self, process: Process) -> None:
        """Make the call in this process; returns when it was answered, refused, or the process has ended."""
        tried = trio.Event()

        async def call() -> None:
            try:
                assert process.session is not None
                await self._call(process.session)
                self.done = True
            except GIVES_UP:
                self.done = self.verb != "run"
            finally:
                tried.set()

        if process.nursery is None or not process.is_open:
            return
        process.nursery.start_soon(call)
        with trio.move_on_after(30.0):  # a process that ends before the call begins would never say so
            await tried.wait()

    async def _call(self, session: harness.Session) -> None:
        match self.verb:
            case "run":
                result = await session.run(self.text, idempotency_key=self.key)
                again = await session.run(self.text, idempotency_key=self.key)
                self.results += [result, again]
                if any(found != result for found in self.results):
                    raise Broken(f"run {self.key} has two results")
            case "cancel":
                await session.cancel("by a program")
            case "interrupt" if (run := session.current_run) is not None:
                await run.interrupt("by a program")
            case "steer" if (run := session.current_run) is not None:
                await run.steer(self.text, input_id=self.key)
            case _:
                pass
