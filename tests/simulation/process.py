"""A process of a simulation: it opens a session, lives until it fails or is killed, and leaves what a process leaves.

Belongs here: opening, dying, and whether a process may start what it starts.
Must not know: what happens to it when (story.py), or what the outsides do.
"""

from __future__ import annotations

from typing import Any

import trio

import harness
from store import StoreError
from tests.simulation.disk import Disk
from tests.simulation.outsides import SimulatedModel, manager, tools
from tests.simulation.world import World


class Process:
    """settled: it is open, or it never will be. ended: all of it is gone. error: what stopped it, if something did."""

    def __init__(self, world: World, session_id: str, limit: int, options: dict[str, Any]) -> None:
        self.world, self.session_id = world, session_id
        self.dead = False
        self.disk = Disk(world.store, world, world.location)
        self.session: harness.Session | None = None
        self.settled, self.ended = trio.Event(), trio.Event()
        self.error: StoreError | None = None
        self.nursery: trio.Nursery | None = None  # of the code around the session, which dies with the process
        self._options, self._limit = options, limit
        self._scope = trio.CancelScope()
        self._closing = trio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the session is open here and nothing has stopped it yet."""
        return self.session is not None and not self.dead and not self.ended.is_set()

    def kill(self) -> None:
        """End it as SIGKILL does: between two steps, with nothing cleaned up."""
        self.dead = self.disk.dead = True
        self._scope.cancel()

    def close(self) -> None:
        """Leave the session in order."""
        self._closing.set()

    def starting(self, what: str) -> None:
        """Broken when the lease was taken over before this very moment."""
        self.world.crash_point()
        lease = self.disk.lease
        if self.dead or lease is None or self.world.store.holds(lease.inner):
            return
        epoch, taken_s = self.world.leases.get(self.session_id, (0, 0.0))
        # At the same moment the two are in a race that no check can decide.
        if epoch > lease.epoch and taken_s < trio.current_time():
            self.world.broken.append(f"{what} is started by a process whose lease was taken over")

    async def main(self) -> None:
        """From opening to the end."""
        try:
            with self._scope:
                async with harness.open_session(
                    self.disk,  # type: ignore[arg-type]
                    session_id=self.session_id,
                    model=SimulatedModel(self.world, self),
                    tools=tools(self.world, self),
                    manager=manager(self.world, self, self._limit),
                    workspace="/",  # the same in every run of a seed
                    **self._options,
                ) as session:
                    self.session = session
                    await self._until_stopped(session)
        except StoreError as error:
            self.error = error
        finally:
            self.settled.set()
            self.ended.set()

    async def _until_stopped(self, session: harness.Session) -> None:
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            nursery.start_soon(self._watch_failure, session)
            self.settled.set()
            await self._closing.wait()
            nursery.cancel_scope.cancel()
        # A coordinator that failed has said why; the first wait raises it.
        coordinator = session._coordinator
        if coordinator.failure is not None and not self.dead:
            raise coordinator.failure

    async def _watch_failure(self, session: harness.Session) -> None:
        coordinator = session._coordinator
        while coordinator.failure is None:
            await coordinator.journal.wait_for_change()
        self._closing.set()
