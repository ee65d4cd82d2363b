"""The turn benchmark's tasks with nothing simulated, beside the simulation: is what it says true of the product?

`python -m bench.realtime [--seeds N] [--speed FACTOR] [--json FILE]`. A real clock, a store on disk, and a model server
in a process of its own over HTTP on loopback, streamed. All seconds (of tools, of thinking, of a fixed wait) are
divided by the factor; what the harness and the machine take is not, so that it weighs as much more. The longest
adaptive wait (30 s) is not divided either: only thinking times above 15 s come near it.

Belongs here: running sessions side by side and comparing their logs with those of the simulation.
Must not know: how the simulation or the server work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

import harness
from bench import product
from bench.loopback import loopback
from bench.tasks import SHAPES, Task
from bench.worker import result_of

AT_ONCE: Final = 6
"""Sessions side by side: more would wait for each other's processor time."""


class Loop(msgspec.Struct, frozen=True):
    """A loop of ours. fixed_s: the seconds of a fixed wait, None for the default policy."""

    fixed_s: float | None
    uses_wake: bool

    def policy(self, speed: float = 1.0) -> harness.Policy:
        """Its policy where everything is that much faster."""
        return harness.Policy(coalesce_s=None if self.fixed_s is None else self.fixed_s / speed)


LOOPS: Final[Mapping[str, Loop]] = {
    "fixed-1s": Loop(1.0, uses_wake=False),
    "turnlog, no wake": Loop(None, uses_wake=False),
    "turnlog": Loop(None, uses_wake=True),
}


class Found(msgspec.Struct, frozen=True):
    """What one task took: turns, characters of all requests, seconds (at the task's own speed)."""

    turns: float
    sent: float
    wall_s: float


def simulated(task: Task, loop: Loop) -> Found:
    """The task in virtual time."""
    outcome, _ = product.in_virtual_time(task, loop.policy(), uses_wake=loop.uses_wake)
    return Found(len(outcome.turns), sum(turn.chars for turn in outcome.turns), outcome.wall_s)


async def real(task: Task, loop: Loop, url: str, folder: Path, speed: float) -> Found:
    """The task in real time, over HTTP, on disk."""
    model = harness.make_model("openai-chat:m", base_url=url)
    async with harness.open_session(
        folder / "sessions.db",
        model=model,
        tools=[_tool(name, task, speed) for name in sorted({step.tool for step in task.steps})],
        instructions=product.INSTRUCTIONS,
        workspace=folder,
        policy=loop.policy(speed),
    ) as session:
        result = await session.run("p" * task.prompt_chars)
        log = await harness.read_events(session.store, session.id)
    await model.aclose()
    if result.outcome != "completed" or harness.check(log) or len(result.tool_calls) != len(task.steps):
        raise RuntimeError(f"{task.name} was not done: {result.outcome} {result.error} {harness.check(log)[:1]}")
    sent = sum(logged.event.chars for logged in log if isinstance(logged.event, harness.TurnStarted))
    return Found(result.turns, sent, result.seconds * speed)


def _tool(name: str, task: Task, speed: float) -> Any:
    steps = {step.id: step for step in task.steps}

    @harness.tool(name=name, description=f"{name} something")
    async def call(step: str, detail: str = "") -> str:
        await trio.sleep(steps[step].seconds / speed)
        return result_of(steps[step])

    return call


async def measure(shape: str, seeds: range, speed: float) -> dict[str, list[tuple[Found, Found]]]:
    """For each loop, (simulated, real) of every seed's task."""
    found: dict[str, list[tuple[Found, Found]]] = {name: [] for name in LOOPS}
    places = trio.CapacityLimiter(AT_ONCE)

    async def one(name: str, seed: int, address: str, folder: Path) -> None:
        loop, task = LOOPS[name], SHAPES[shape](seed)
        conversation = f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
        url = f"{address}/{conversation}/{shape}/{seed}/{'wake' if loop.uses_wake else 'plain'}/{speed}/v1"
        async with places:
            found[name].append((expected[name, seed], await real(task, loop, url, folder, speed)))

    # Before anything runs in real time: a simulation would hold it up.
    expected = {
        (name, seed): await trio.to_thread.run_sync(simulated, SHAPES[shape](seed), loop)
        for name, loop in LOOPS.items()
        for seed in seeds
    }
    with loopback("bench.thinking") as address, tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            for seed in seeds:
                for name in LOOPS:
                    nursery.start_soon(one, name, seed, address, Path(folder))
    return found


def lines(found: Mapping[str, list[tuple[Found, Found]]]) -> list[str]:
    """A row a loop: means of both, and the mean ratio of real to simulated."""
    rows = [f"{'':<18}" + "".join(f"{column + ': simulated, real, ratio':>38}" for column in Found.__struct_fields__)]
    for name, pairs in found.items():
        cells = ""
        for column in Found.__struct_fields__:
            both = [(getattr(simulated, column), getattr(real, column)) for simulated, real in pairs]
            means = [statistics.fmean(values) for values in zip(*both, strict=True)]
            ratio = statistics.fmean(real / simulated for simulated, real in both)
            cells += f"{means[0]:>20,.1f}{means[1]:>12,.1f}{ratio:>6.2f}"
        rows.append(f"{name:<18}{cells}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8, metavar="N", help="tasks (8)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (0)")
    parser.add_argument("--speed", type=float, default=20.0, metavar="FACTOR", help="how much faster than life (20)")
    parser.add_argument("--shape", choices=list(SHAPES), default="sixty", help="what kind of tasks (sixty)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    given = parser.parse_args()
    found = trio.run(measure, given.shape, range(given.first, given.first + given.seeds), given.speed)
    print(
        f"{given.shape}, seeds {given.first} to {given.first + given.seeds - 1}, {given.speed:g} times as fast as life"
    )
    print("\n".join(lines(found)))
    if given.json is not None:
        given.json.write_text(json.dumps(msgspec.to_builtins(found), indent=2) + "\n")


if __name__ == "__main__":
    main()
