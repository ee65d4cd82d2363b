"""One simulation: a seed's story of inputs and disasters, the rest that it comes to, and what has to hold then.

Belongs here: what happens when, and every promise that is checked.
Must not know: how the outsides do what they do (outsides.py, world.py, disk.py).
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing

import harness
from harness import events as ev
from harness.ids import new_input_id
from store import CallerError, SessionBusy, StoreUnavailable
from tests.simulation.chance import Steps, seeded
from tests.simulation.disk import Disk
from tests.simulation.process import Process
from tests.simulation.program import Program
from tests.simulation.world import Broken, World

LONGEST_S = 6 * 3600.0
"""Simulated seconds in which a session has to come to rest once nothing more goes wrong."""

MANY_TOKENS = 1_000_000


class Report(msgspec.Struct, frozen=True):
    """What a seed amounted to. order: a checksum of the order in which tasks ran. logs: the events of each session."""

    seed: int
    counts: Counter[str]
    steps: int
    order: int
    logs: tuple[tuple[bytes, ...], ...]


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings of failures: they are ours."""
    log = logging.getLogger("turnlog")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def simulate(seed: int) -> Report:
    """Run the story of a seed. Raises what it found wrong."""
    steps = Steps()
    clock = trio.testing.MockClock(autojump_threshold=0)
    with quiet(), seeded(seed) as chance, tempfile.TemporaryDirectory(prefix="turnlog-simulation-") as folder:
        story = Story(World(chance, steps, Path(folder)), clock)
        logs = trio.run(story.tell, clock=clock, instruments=[steps])
    return Report(seed, story.world.counts, steps.count, steps.order, logs)


class Story:
    """The driver: it stands for users, for the machine, and for whoever starts the process again."""

    def __init__(self, world: World, clock: trio.testing.MockClock) -> None:
        self.world, self.chance, self.clock = world, world.chance, clock
        self.client = Disk(world.store, world, world.location)
        self.process: Process | None = None  # the one that is meant to have the session open
        self.sessions = ["first"]
        self.sent: dict[str, dict[str, ev.Content]] = {"first": {}}
        self._checked: Counter[str] = Counter()  # how far the rules were seen to hold, by session
        self.messages = 0
        self.programs: list[Program] = []
        self._crash_in = 0
        world.crash_point = self._point
        chance = self.chance
        self._limit = chance.choice([1, 2, 64])
        self._options: dict[str, Any] = {
            "policy": ev.Policy(
                coalesce_s=chance.choice([None, 0.0, 1.0]),
                heartbeat_s=chance.choice([0.0, 300.0]),
                window_tokens=chance.choice([MANY_TOKENS] * 4 + [300, 60, 12]),
                limits=chance.choice(
                    [ev.Limits()] * 4
                    + [
                        ev.Limits(turns=3),
                        ev.Limits(tokens=60),
                        ev.Limits(seconds=45.0),
                        ev.Limits(calls={"bash": 3, "note": 1}),
                    ]
                ),
            )
        }

    async def tell(self) -> tuple[tuple[bytes, ...], ...]:
        """The whole story. Returns the data of every session's events."""
        logs: list[tuple[bytes, ...]] = []
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.world.steps.on_too_many = self._too_many
            for _ in range(self.chance.randint(4, 40)):
                await self._opened()
                await self._happening()
                self._raise_broken()
                await trio.sleep(self.chance.choice([0.0, 0.01, 0.5, 1.0, 5.0, 5.0, 20.0, 60.0]))
            self.world.calm = True
            logs = [await self._finished(session_id) for session_id in self.sessions]
            await self._let_go()
        self._account()
        return tuple(logs)

    def _too_many(self) -> None:
        self.world.broken.append("the story goes round in circles and time stands still")
        self._nursery.cancel_scope.cancel()

    # --- the process

    async def _opened(self, session_id: str | None = None) -> Process:
        """The process that has the session open, a new one if need be."""
        wanted = session_id or self.sessions[-1]
        while self.process is None or not self.process.is_open or self.process.session_id != wanted:
            await self._let_go()
            self.process = await self._started(wanted)
            if self.process.error is not None:
                await trio.sleep(self.chance.choice([0.1, 1.0, 3.0]))
        return self.process

    async def _started(self, session_id: str) -> Process:
        process = Process(self.world, session_id, self._limit, self._options)
        self._nursery.start_soon(process.main)
        await process.settled.wait()
        return process

    async def _let_go(self) -> None:
        """No process is left; what a killed one leaves is whole."""
        process, self.process = self.process, None
        if process is None:
            return
        process.close()
        await process.ended.wait()
        if process.dead:
            self.world.counts["crashes"] += 1
            await self._check(process.session_id)
            if self.chance.random() < 0.5:  # its death can be seen; otherwise its lease has to run out
                self._drop_lease(process.session_id)
        elif process.error is not None:
            self.world.counts[f"stopped by {type(process.error).__name__}"] += 1

    def _drop_lease(self, session_id: str) -> None:
        with suppress(CallerError):  # it may have been killed before there was a session
            self.world.store.drop_lease(session_id)

    def _kill(self) -> None:
        if self.process is not None and not self.world.calm and not self.process.ended.is_set():
            self.process.kill()

    def _point(self) -> None:
        if self._crash_in:
            self._crash_in -= 1
            if not self._crash_in:
                self.world.counts["crashes at an effect or a commit"] += 1
                self._kill()

    # --- what happens

    async def _happening(self) -> None:
        self.world.counts["happenings"] += 1
        happenings: list[tuple[int, Any]] = [
            (8, self._say),
            (4, self._call),
            (2, self._repeat),
            (2, self._interrupt),
            (1, self._cancel),
            (2, self._crash),
            (2, self._crash_later),
            (2, self._crash_soon),
            (1, self._restart_machine),
            (1, self._close),
            (2, self._store_fails),
            (1, self._freeze),
            (2, self._contend),
            (1, self._fork),
            (1, self._change_settings),
        ]
        weights = [weight for weight, _ in happenings]
        ((_, happening),) = self.chance.choices(happenings, weights)
        await happening()

    async def _say(self) -> None:
        self.messages += 1
        await self._send(ev.Message(f"message {self.messages}."))

    async def _call(self) -> None:
        """A program calls the session that is open; nobody waits for it here."""
        self.messages += 1
        verb = self.chance.choice(["run", "run", "steer", "cancel", "interrupt"])
        program = Program(self.sessions[-1], verb, f"message {self.messages}.", new_input_id())
        self.world.counts[f"programs that {verb}"] += 1
        self.programs.append(program)
        self._nursery.start_soon(self._drive, program)

    async def _drive(self, program: Program) -> None:
        while not program.done:
            process = self.process
            if process is not None and process.session_id == program.session_id:
                await program.attempt(process)
            if not program.done:
                await trio.sleep(self.chance.choice([0.1, 1.0, 5.0]))
        if program.results:
            self.sent[program.session_id][program.key] = ev.Message(program.text)

    async def _interrupt(self) -> None:
        await self._send(ev.Interrupt("enough"))

    async def _cancel(self) -> None:
        await self._send(ev.Cancel("no more"))

    async def _send(self, content: ev.Content, session_id: str | None = None) -> None:
        """As a client does that is told of a failure: again, with the same id, until it is told that it worked."""
        session = session_id or self.sessions[-1]
        input_id = new_input_id()
        while True:
            try:
                await harness.submit(self.client, session, content, input_id)  # type: ignore[arg-type]
            except StoreUnavailable:
                await trio.sleep(1.0)
            else:
                break
        self.sent[session][input_id] = content
        self.world.counts["inputs"] += 1

    async def _repeat(self) -> None:
        """The same input again is nothing new; another one of its id is refused."""
        session = self.sessions[-1]
        if not self.sent[session]:
            return
        input_id, content = self.chance.choice(list(self.sent[session].items()))
        self.world.counts["repeated inputs"] += 1
        try:
            if self.chance.random() < 0.7:
                await harness.submit(self.client, session, content, input_id)  # type: ignore[arg-type]
                return
            await harness.submit(self.client, session, "something else", input_id)  # type: ignore[arg-type]
        except CallerError:
            return
        except StoreUnavailable:
            return
        raise Broken(f"input id {input_id} was taken for two contents")

    async def _crash(self) -> None:
        self._kill()

    async def _crash_later(self) -> None:
        """At one of the next commits or effects, before or after it."""
        self._crash_in = self.chance.randint(1, 25)

    async def _crash_soon(self) -> None:
        """Between any two steps of any tasks."""
        self.world.counts["crashes at a step"] += 1
        self.world.steps.before(self.chance.randint(1, 150), self._kill)

    async def _restart_machine(self) -> None:
        self.world.counts["machine restarts"] += 1
        self._kill()
        self.world.restart_machine()

    async def _close(self) -> None:
        await self._let_go()

    async def _store_fails(self) -> None:
        self.world.counts["times of a failing store"] += 1
        self.world.fail_for(self.chance.choice([0.1, 1.0, 4.0, 15.0]))

    async def _freeze(self) -> None:
        """The process is stopped for longer than its lease, while the clock goes on."""
        self.world.counts["freezes"] += 1
        self.clock.jump(self.chance.choice([4.0, 9.9, 11.0, 40.0]))
        if self.chance.random() < 0.7:
            await self._contend()

    async def _contend(self) -> None:
        """Another process opens the session: it is refused, or it takes over and the first one stops."""
        old = self.process
        if old is None or not old.is_open:
            return
        if self.chance.random() < 0.5:
            self._drop_lease(old.session_id)
        new = await self._started(old.session_id)
        if new.error is not None:
            self.world.counts["openings refused" if isinstance(new.error, SessionBusy) else "openings failed"] += 1
            return
        self.world.counts["takeovers"] += 1
        self.process = new
        with trio.move_on_after(30.0) as waiting:
            await old.ended.wait()
        if waiting.cancelled_caught:
            raise Broken("a process whose lease was taken over has not stopped")

    async def _fork(self) -> None:
        session = self.sessions[-1]
        length = (await self.world.store.session(session)).length
        try:
            branch = await harness.fork(self.client, session, at=self.chance.randint(1, length))  # type: ignore[arg-type]
        except StoreUnavailable:
            return
        self.world.counts["forks"] += 1
        if len(self.sessions) < 4:
            self.sessions.append(branch)
            self.sent[branch] = {}

    async def _change_settings(self) -> None:
        await self._let_go()
        self._options = {**self._options, "instructions": f"be brief {self.chance.randint(1, 3)}"}

    # --- what holds

    async def _check(self, session_id: str) -> list[ev.Logged]:
        try:
            log = await harness.read_events(self.world.store, session_id)
        except CallerError:
            return []
        for length in range(self._checked[session_id], len(log)):  # each append might have been the last before a crash
            if broken := harness.check(log[: length + 1]):
                raise Broken(f"after event {length + 1}: {'; '.join(map(str, broken))}")
        self._checked[session_id] = len(log)
        if differing := harness.Replay(session_id, log).check():
            raise Broken("; ".join(divergence.what for divergence in differing))
        return log

    async def _finished(self, session_id: str) -> tuple[bytes, ...]:
        """The session, once it has come to rest with nothing in its way."""
        await self._rested(session_id)  # programs may still interrupt what is going on
        await self._send(ev.Message(f"finally, {session_id}"), session_id)
        await self._rested(session_id)
        log = await self._check(session_id)
        await self._check_inputs(session_id, log)
        if damage := await self.world.store.verify(session_id):
            raise Broken(f"verify finds {damage}")
        self.world.counts["turns"] += sum(isinstance(entry.event, ev.TurnStarted) for entry in log)
        self.world.counts["events"] += len(log)
        return tuple(msgspec.json.encode(entry.event) for entry in log)

    async def _rested(self, session_id: str) -> None:
        """Return when the session is at rest. What had gone wrong may still stop its process, but no later one."""
        last = await self._opened(session_id)
        with trio.move_on_after(LONGEST_S) as waiting:
            while not await self._at_rest(last):
                await trio.sleep(1.0)
                if not last.is_open:
                    last = await self._opened(session_id)
                    self.world.counts["openings in the calm"] += 1
        if waiting.cancelled_caught:
            raise Broken(f"session {session_id} never comes to rest: {last.session and last.session.state.run}")
        if self.world.counts["openings in the calm"] > len(self.sessions):
            raise Broken("sessions stop again and again though nothing is wrong")

    async def _at_rest(self, process: Process) -> bool:
        if not process.is_open or process.session is None:
            return False
        state = process.session.state
        waiting = [
            entry for entry in await self.world.store.inputs(process.session_id) if entry.input_id not in state.accepted
        ]
        calling = [
            program for program in self.programs if program.session_id == process.session_id and not program.done
        ]
        return state.run is None and not state.pending and not waiting and not calling

    async def _check_inputs(self, session_id: str, log: list[ev.Logged]) -> None:
        accepted = Counter(entry.event.input_id for entry in log if isinstance(entry.event, ev.InputAccepted))
        for input_id, content in self.sent[session_id].items():
            if accepted[input_id] != 1:
                raise Broken(f"input {input_id} was accepted {accepted[input_id]} times")
            if isinstance(content, ev.Message) and content.text not in self.world.heard:
                raise Broken(f"no request has shown {content.text!r}")
        folded = harness.Replay(session_id, log).state_at(len(log))
        if folded.undelivered and folded.undelivered[-1].kind is ev.Reason.INPUT:
            raise Broken(f"a message was never delivered in {session_id}")

    def _raise_broken(self) -> None:
        if self.world.broken:
            raise Broken("; ".join(self.world.broken))

    def _account(self) -> None:
        self._raise_broken()
        world = self.world
        world.counts["operations"] = sum(world.starts.values()) + sum(world.effects.values())
        twice = [
            key for key, times in (world.starts + world.effects).items() if times > 1 and not key.startswith("again ")
        ]
        if twice:
            raise Broken(f"{', '.join(twice)} ran twice")


def reason(error: BaseException) -> str:
    """The innermost error, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
