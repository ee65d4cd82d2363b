"""How many turns a task needs under different loops, in virtual time, with one scripted model policy.

`python -m bench.turns [--seeds N] [--first SEED] [--json FILE] [--plot FILE.svg]`. No key, no network, no waiting.
The three loops of others are simulated (bench/loops.py); the non-blocking ones are sessions of the harness itself on
a clock that jumps (bench/product.py). Nothing here is fitted to a seed: try others with --first.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

import harness
from bench import loops, product
from bench.outcome import Figures, Outcome, Prices, figures, prices
from bench.plot import Point, scatter
from bench.stats import Mean, mean_of, ratio_of
from bench.tasks import SHAPES, Task, recorded, thinking

Loop = Callable[[Task], Outcome]


def _ours(policy: harness.Policy, *, uses_wake: bool = False) -> Loop:
    return lambda task: product.in_virtual_time(task, policy, uses_wake=uses_wake)[0]


LOOPS: Final[Mapping[str, Loop]] = {
    "serial": lambda task: loops.blocking(task, product.head_chars(task), calls_a_turn=1),
    "barrier": lambda task: loops.blocking(task, product.head_chars(task), calls_a_turn=None),
    "polling": lambda task: loops.polling(task, product.head_chars(task), waits_s=0.0),
    "polling, 10 s": lambda task: loops.polling(task, product.head_chars(task), waits_s=10.0),
    "first-result": _ours(harness.Policy(coalesce_s=0.0)),
    "fixed-1s": _ours(harness.Policy(coalesce_s=1.0)),
    "turnlog, no wake": _ours(harness.Policy()),
    "turnlog": _ours(harness.Policy(), uses_wake=True),
}
REFERENCE: Final = "fixed-1s"
OURS: Final = ("turnlog, no wake", "turnlog")
COLUMNS: Final = {
    "turns": "turns", "overhead": "overhead", "sent": "chars sent", "new": "not cached", "cost": "cost $",
    "cost_uncached": "no cache $", "wall_s": "wall s", "delay_s": "delay s",
}  # fmt: skip


class Row(msgspec.Struct, frozen=True):
    """A loop's figures on one kind of task, and the three that the goals are about against the published design."""

    loop: str
    means: dict[str, Mean]
    against: dict[str, Mean]


class Goal(msgspec.Struct, frozen=True):
    """A ratio on the sixty-call shape, and what it should be at most."""

    what: str
    ratio: Mean
    at_most: float

    @property
    def met(self) -> bool:
        return self.ratio.mean <= self.at_most


Measured = Mapping[str, Sequence[Figures]]
"""For each loop, one figure a task; all loops have the same tasks in the same order."""


def measure(tasks: Sequence[Task], price: Prices) -> Measured:
    """Work every task in every loop."""
    return {name: [figures(loop(task), price) for task in tasks] for name, loop in LOOPS.items()}


def rows(measured: Measured) -> list[Row]:
    """A row a loop."""
    return [Row(name, _means(found), _against(found, measured[REFERENCE])) for name, found in measured.items()]


def _means(found: Sequence[Figures]) -> dict[str, Mean]:
    return {column: mean_of(_column(found, column)) for column in COLUMNS}


def _against(found: Sequence[Figures], reference: Sequence[Figures]) -> dict[str, Mean]:
    return {name: ratio_of(_column(found, name), _column(reference, name)) for name in ("turns", "sent", "wall_s")}


def _column(found: Sequence[Figures], name: str) -> list[float]:
    return [float(getattr(one, name)) for one in found]


def goals(sixty: Measured) -> list[Goal]:
    """What the design asks of the sixty-call shape."""

    def ratio(loop: str, column: str, other: str = REFERENCE) -> Mean:
        return ratio_of(_column(sixty[loop], column), _column(sixty[other], column))

    quiet, using = OURS
    return [
        Goal("turnlog: turns, of fixed-1s", ratio(using, "turns"), 0.60),
        Goal("turnlog: characters, of fixed-1s", ratio(using, "sent"), 0.60),
        Goal("turnlog: wall-clock, of fixed-1s", ratio(using, "wall_s"), 1.03),
        Goal("turnlog: turns, of polling", ratio(using, "turns", "polling"), 0.25),
        Goal("turnlog: turns, of polling that waits 10 s", ratio(using, "turns", "polling, 10 s"), 0.25),
        Goal("no wake: turns, of fixed-1s", ratio(quiet, "turns"), 0.80),
        Goal("no wake: wall-clock, of fixed-1s", ratio(quiet, "wall_s"), 1.03),
    ]


# --- showing


def table(title: str, found: Sequence[Row]) -> Iterator[str]:
    """A table as lines."""
    yield f"{title:<18} " + " ".join(f"{head:>10}" for head in COLUMNS.values()) + "   turns/chars/wall of fixed-1s"
    for row in found:
        cells = " ".join(f"{row.means[column]!s:>10}" for column in COLUMNS)
        ratios = "  ".join(f"{ratio.mean:.2f} ±{ratio.within:.2f}" for ratio in row.against.values())
        yield f"{row.loop:<18} {cells}   {ratios}"


def goal_lines(found: Sequence[Goal]) -> Iterator[str]:
    """The goals as lines."""
    for goal in found:
        verdict = "met" if goal.met else "MISSED"
        ratio = f"{goal.ratio.mean:>5.3f} ±{goal.ratio.within:.3f}"
        yield f"{goal.what:<44} {ratio}  (at most {goal.at_most:.2f}) {verdict}"


def plotted(measured: Measured) -> str:
    """Turns against wall-clock, a point a loop."""
    points = []
    for name, found in measured.items():
        wall, turns = mean_of(_column(found, "wall_s")), mean_of(_column(found, "turns"))
        points.append(Point(name, wall.mean, turns.mean, wall.within, turns.within, name in OURS))
    count = len(next(iter(measured.values())))
    return scatter(
        points, title=f"Sixty calls, mean of {count} seeds", x_label="seconds until the answer", y_label="turns"
    )


class Options(msgspec.Struct, frozen=True):
    """What to measure and where to write it. thinking_s: median seconds of a turn, where not the tasks' own."""

    seeds: int = 20
    first: int = 0
    json: Path | None = None
    plot: Path | None = None
    thinking_s: float | None = None


def run(options: Options, say: Callable[[str], None]) -> bool:
    """Measure and show. Returns whether every goal was met."""
    price = prices()
    seeds = range(options.first, options.first + options.seeds)
    say(
        f"seeds {seeds.start} to {seeds.stop - 1}; means of a task; prices and sizes: bench/prices.json, bench/tasks.py"
    )
    groups = {name: [_thought(shape(seed), seed, options) for seed in seeds] for name, shape in SHAPES.items()}
    groups.update({f"recorded: {task.name}": [task] for task in recorded()})
    shown: dict[str, object] = {"seeds": [seeds.start, seeds.stop - 1], "prices": msgspec.to_builtins(price)}
    measured: Measured = {}
    for name, tasks in groups.items():
        found = measure(tasks, price)
        if name == "sixty":
            measured = found
        for line in ("", *table(name, rows(found))):
            say(line)
        shown[name] = msgspec.to_builtins(rows(found))
    met = goals(measured)
    for line in ("", *goal_lines(met)):
        say(line)
    shown["goals"] = [{**msgspec.to_builtins(goal), "met": goal.met} for goal in met]
    if options.json is not None:
        options.json.write_text(json.dumps(shown, indent=2) + "\n")
    if options.plot is not None:
        options.plot.write_text(plotted(measured))
    return all(goal.met for goal in met)


def _thought(task: Task, seed: int, options: Options) -> Task:
    """The task, with other thinking times if they are asked for."""
    if options.thinking_s is None:
        return task
    rng = random.Random(f"thinking {task.name} {seed}")
    return msgspec.structs.replace(task, thinking_s=thinking(rng, options.thinking_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="tasks of each shape (20)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (0)")
    parser.add_argument("--thinking", type=float, metavar="S", help="median seconds of a turn in generated tasks (8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write turns against wall-clock as SVG")
    given = parser.parse_args()
    run(Options(given.seeds, given.first, given.json, given.plot, given.thinking), lambda line: print(line, flush=True))
    sys.exit(0)


if __name__ == "__main__":
    main()
