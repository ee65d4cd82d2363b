"""Tasks as graphs of tool calls: what a model has to do, whatever loop it works in.

Belongs here: the three generated shapes, and reading recorded tasks.
Must not know: loops, models, the harness.

A shape's numbers were chosen once, for loops that are not ours (what one call a turn, blocking and polling cost),
and are the same for every seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

RECORDED: Final = Path(__file__).parent / "recorded"


class Step(msgspec.Struct, frozen=True):
    """One tool call. needs: the steps whose results have to be read before it can be written."""

    id: str
    tool: str
    seconds: float
    result_chars: int
    argument_chars: int = 80
    needs: tuple[str, ...] = ()


class Task(msgspec.Struct, frozen=True):
    """What there is to do, in an order in which every step comes after what it needs.

    thinking_s: seconds of each turn, one after the other and round again. prompt_chars: what the user says.
    """

    name: str
    steps: tuple[Step, ...]
    thinking_s: tuple[float, ...]
    prompt_chars: int = 1000


class Tool(msgspec.Struct, frozen=True):
    """How long calls of a tool take (a lognormal: median and spread), and how much they return."""

    median_s: float
    spread: float
    result_chars: int


TOOLS: Final[Mapping[str, Tool]] = {
    "read": Tool(0.5, 0.6, 4000),
    "search": Tool(3.0, 0.8, 2000),
    "edit": Tool(0.5, 0.5, 300),
    "check": Tool(12.0, 0.7, 1000),
    "test": Tool(30.0, 0.8, 2500),
    "build": Tool(300.0, 0.5, 3000),
}

THINKING_MEDIAN_S: Final = 8.0
THINKING_SPREAD: Final = 0.35


def thinking(rng: random.Random, median_s: float = THINKING_MEDIAN_S) -> tuple[float, ...]:
    """Thinking times for as many turns as any loop needs before they repeat."""
    return tuple(round(_lognormal(rng, median_s, THINKING_SPREAD), 3) for _ in range(64))


def _lognormal(rng: random.Random, median: float, spread: float) -> float:
    return rng.lognormvariate(math.log(median), spread)


def _step(rng: random.Random, number: int, tool: str, needs: tuple[str, ...]) -> Step:
    kind = TOOLS[tool]
    return Step(
        f"s{number}",
        tool,
        round(_lognormal(rng, kind.median_s, kind.spread), 3),
        round(_lognormal(rng, kind.result_chars, 0.7)),
        round(_lognormal(rng, 80, 0.6)),
        needs,
    )


def quick(seed: int) -> Task:
    """Three quick calls: two that can be made together and one that needs both."""
    rng = random.Random(f"quick {seed}")
    tools = [rng.choice(["read", "search", "edit"]) for _ in range(3)]
    steps = [_step(rng, 0, tools[0], ()), _step(rng, 1, tools[1], ()), _step(rng, 2, tools[2], ("s0", "s1"))]
    return Task("quick", tuple(steps), thinking(rng))


def fan(seed: int) -> Task:
    """Twenty-four calls of very unequal durations at once; every second one leads to a quick edit and a check of it."""
    rng = random.Random(f"fan {seed}")
    steps = [_step(rng, number, rng.choice(["search", "check", "test", "test"]), ()) for number in range(24)]
    for opener in rng.sample(steps, 12):
        steps.append(_step(rng, len(steps), "edit", (opener.id,)))
        steps.append(_step(rng, len(steps), "check", (steps[-1].id,)))
    return Task("fan", tuple(steps), thinking(rng))


LAYERS: Final = 15
MIX: Final = {"read": 3, "search": 3, "edit": 2, "check": 3, "test": 4}


def sixty(seed: int) -> Task:
    """Sixty calls in fifteen layers: each needs one to three results of the layers just before it.

    Five of them are builds, which take minutes; the others are drawn from the quicker tools.
    """
    rng = random.Random(f"sixty {seed}")
    sizes = [1] * LAYERS
    for _ in range(60 - LAYERS):
        sizes[rng.choice([layer for layer in range(LAYERS) if sizes[layer] < 7])] += 1
    builds = set(rng.sample(range(4, 56), 5))
    steps: list[Step] = []
    layers: list[list[str]] = []
    for size in sizes:
        made = []
        for _ in range(size):
            number = len(steps)
            tool = "build" if number in builds else rng.choices(list(MIX), list(MIX.values()))[0]
            steps.append(_step(rng, number, tool, _needs(rng, layers)))
            made.append(steps[-1].id)
        layers.append(made)
    return Task("sixty", tuple(steps), thinking(rng))


def _needs(rng: random.Random, layers: list[list[str]]) -> tuple[str, ...]:
    """At least one of the layer before, and perhaps some of that or of the two before it."""
    if not layers:
        return ()
    near = [step for layer in layers[-3:] for step in layer]
    chosen = {rng.choice(layers[-1])}
    chosen.update(rng.sample(near, min(len(near), rng.choice([0, 0, 1, 2]))))
    return tuple(sorted(chosen, key=lambda step: int(step[1:])))


SHAPES: Final[Mapping[str, Callable[[int], Task]]] = {"quick": quick, "fan": fan, "sixty": sixty}


def recorded() -> list[Task]:
    """Tasks whose calls were really made once, with the durations and sizes that they had."""
    return [msgspec.json.decode(path.read_bytes(), type=Task) for path in sorted(RECORDED.glob("*.json"))]
