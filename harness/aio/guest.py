"""Trio as a guest of an asyncio loop: one run for all sessions of the loop, and calls that cross into it.

Belongs here: starting and ending the guest run, carrying outcomes and cancellation from one loop to the other.
Must not know: sessions, models, tools.

Both loops share one thread, so that a crossing needs no lock: trio's synchronous functions (start_soon, cancel,
Event.set) may be called from asyncio code, and futures may be resolved from trio code.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import outcome
import trio

from harness.aio.places import LoopInUse, in_trio_run, running_loop
from harness.errors import HarnessError

T = TypeVar("T")


class Stopped(HarnessError):
    """The trio side of a call was stopped, and not by its caller."""

    def __init__(self) -> None:
        super().__init__("trio was stopped under this call. Open the session again.")


class _Here(threading.local):
    guest: Guest | None = None


_here = _Here()


class Guest:
    """The trio run of one asyncio loop. Made with the first user, ended with the last; get it with `enter`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ended: asyncio.Future[None] = loop.create_future()
        self.leaving = False
        self.crossings: set[Crossing[Any]] = set()
        self._users = 0
        self._ready: asyncio.Future[None] = loop.create_future()
        self._last_left = trio.Event()
        self._failure: BaseException | None = None
        hooks = sys.get_asyncgen_hooks()
        try:
            trio.lowlevel.start_guest_run(
                self._main,
                run_sync_soon_threadsafe=self._soon_from_any_thread,
                run_sync_soon_not_threadsafe=self._soon,
                done_callback=self._done,
                host_uses_signal_set_wakeup_fd=True,
            )
        except RuntimeError as error:
            raise LoopInUse(f"trio cannot run inside this asyncio loop ({error}). Use another loop.") from error
        # Trio's hooks are for trio's own steps only: asyncio sets its own anew whenever the loop is started again, and
        # a generator of the one that is registered with the other would be closed in the wrong loop.
        self._hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(*hooks)

    async def join(self) -> None:
        """Become a user, and wait until trio runs. To be paired with `leave`."""
        self._users += 1
        try:
            await asyncio.wait([self._ready, self.ended], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.leave()
            raise

    async def leave(self) -> None:
        """Stop being a user. The last one ends trio and waits until no task of it is left."""
        self._users -= 1
        if self._users:
            return
        self.leaving = True
        self._last_left.set()
        await settled(self.ended)
        if self._failure is not None:
            raise self._failure

    def start(self, function: Callable[[], Awaitable[T]]) -> Crossing[T]:
        """Begin `await function()` in trio, with the context variables of here."""
        self.check_loop()
        if self.ended.done():
            raise Stopped
        return Crossing(self, function)

    def spawn(
        self, run: Callable[[Callable[[], Awaitable[T]]], Awaitable[None]], of: Callable[[], Awaitable[T]]
    ) -> None:
        """A task of trio's; for Crossing."""
        self._nursery.start_soon(run, of)

    def check_loop(self) -> None:
        """Raises LoopInUse when the caller runs in another loop."""
        if running_loop() is not self.loop:
            raise LoopInUse("the session belongs to another asyncio loop. Use it from the loop that opened it.")

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            if not self._ready.done():
                self._ready.set_result(None)
            await self._last_left.wait()

    def _done(self, result: outcome.Outcome[None]) -> None:
        _here.guest = None
        if isinstance(result, outcome.Error):
            self._failure = result.error
        for crossing in list(self.crossings):  # only when trio broke down: otherwise every task of it has ended
            crossing.settle(outcome.Error(Stopped()))
        self.ended.set_result(None)
        if _interrupted(self._failure):
            raise KeyboardInterrupt  # out of the loop, as it would have gone without trio

    def _soon(self, step: Callable[[], object]) -> None:
        self.loop.call_soon(self._step, step)

    def _soon_from_any_thread(self, step: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed with a session open: nobody is there any more
            self.loop.call_soon_threadsafe(self._step, step)

    def _step(self, step: Callable[[], object]) -> None:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(*self._hooks)
        try:
            step()
        finally:
            sys.set_asyncgen_hooks(*hooks)


class Crossing(Generic[T]):
    """A coroutine function that runs in trio for somebody in asyncio."""

    def __init__(self, guest: Guest, function: Callable[[], Awaitable[T]]) -> None:
        self.ended: asyncio.Future[None] = guest.loop.create_future()
        self._guest = guest
        self._scope = trio.CancelScope()
        self._outcome: outcome.Outcome[T] | None = None
        guest.crossings.add(self)
        guest.spawn(self._run, function)

    def cancel(self) -> None:
        """Cancel the trio side."""
        self._scope.cancel()

    async def wait(self) -> T:
        """What the function returned or raised.

        Cancelled: so is the trio side, and this waits for its end; an error that it ends with goes before the
        cancellation. Raises Stopped when somebody else cancelled it.
        """
        try:
            await settled(self.ended, self.cancel)
        except asyncio.CancelledError:
            if isinstance(self._outcome, outcome.Error):
                self._outcome.unwrap()
            raise
        if self._outcome is None:
            raise Stopped
        return self._outcome.unwrap()

    def settle(self, result: outcome.Outcome[T] | None) -> None:
        """The trio side is over. None: it was cancelled."""
        self._guest.crossings.discard(self)
        self._outcome = result
        if not self.ended.done():
            self.ended.set_result(None)

    async def _run(self, function: Callable[[], Awaitable[T]]) -> None:
        result: outcome.Outcome[T] | None = None
        try:
            with self._scope:
                result = outcome.Value(await function())
        except BaseException as error:
            if _cancelled(error):  # trio as a whole is being stopped
                result = outcome.Error(Stopped())
                raise
            result = outcome.Error(error)
        finally:
            self.settle(result)


class Hosted(Generic[T]):
    """A context manager of trio's, held open for an asyncio program."""

    def __init__(self, guest: Guest, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._make = make
        self._leave = trio.Event()
        self._entered: asyncio.Future[T] = guest.loop.create_future()
        self._crossing = guest.start(self._hold)

    async def enter(self) -> T:
        """Wait for what the manager gives. Raises what entering it raised. Cancelled: it has been left again."""
        ended = self._crossing.ended
        either: list[asyncio.Future[Any]] = [self._entered, ended]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._crossing.cancel()
            await settled(ended)
            raise
        if not self._entered.done():
            await self._crossing.wait()
        return self._entered.result()

    async def leave(self) -> None:
        """Leave the manager and wait for that. Raises what it raised, also when it ended by itself before."""
        self._leave.set()
        await self._crossing.wait()

    async def _hold(self) -> None:
        async with self._make() as given:
            self._entered.set_result(given)
            await self._leave.wait()


async def enter() -> Guest:
    """The guest run of the running asyncio loop, started if need be; `await guest.leave()` when done with it.

    Raises LoopInUse where there is no asyncio loop, or one that cannot have ours.
    """
    loop = running_loop()
    while (guest := _here.guest) is not None and guest.loop is loop and guest.leaving:
        await asyncio.wait([guest.ended])
    if guest is None or guest.loop is not loop:
        if in_trio_run():
            raise LoopInUse(_why_not(guest))
        guest = _here.guest = Guest(loop)
    await guest.join()
    return guest


async def cross(function: Callable[[], Awaitable[T]]) -> T:
    """`await function()` in trio, for which trio is started when it does not run yet. Raises what it raises."""
    guest = await enter()
    try:
        return await guest.start(function).wait()
    finally:
        await guest.leave()


async def settled(future: asyncio.Future[None], on_cancel: Callable[[], None] = lambda: None) -> None:
    """Wait for the future, whatever comes. A cancellation calls `on_cancel` and is raised when the wait is over."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        raise cancelled


def _why_not(guest: Guest | None) -> str:
    if guest is not None:
        return "an asyncio loop of this thread was closed with a session open. Go on in another thread or process."
    return "another trio run is the guest of this thread's loop. Use harness itself there, or harness.aio elsewhere."


def _cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(trio.Cancelled) is not None
    return isinstance(error, trio.Cancelled)


def _interrupted(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt) or (error is not None and _interrupted(error.__cause__))
