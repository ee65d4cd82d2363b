"""Record a task: run real commands one after the other and keep how long each took and how much it said.

`python -m bench.record PLAN.json OUT.json`. PLAN is a list of {"tool", "command", "needs": [indexes]}. What is kept is
a `Task` without the commands: durations, sizes, dependencies.

Belongs here: running and timing commands.
Must not know: loops.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.tasks import Step, Task, thinking


class Planned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command, and which earlier ones have to be read before it can be written."""

    tool: str
    command: str
    needs: tuple[int, ...] = ()


def recorded(name: str, plan: list[Planned]) -> Task:
    """Run the plan in the current folder."""
    steps = []
    for number, planned in enumerate(plan):
        started = time.perf_counter()
        done = subprocess.run(planned.command, shell=True, capture_output=True, check=False)
        seconds = round(time.perf_counter() - started, 3)
        said = len(done.stdout) + len(done.stderr)
        needs = tuple(f"s{need}" for need in planned.needs)
        steps.append(Step(f"s{number}", planned.tool, seconds, min(said, 50_000), len(planned.command) + 14, needs))
    return Task(name, tuple(steps), thinking(random.Random(name)))


def main() -> None:
    plan, target = map(Path, sys.argv[1:3])
    task = recorded(target.stem, msgspec.json.decode(plan.read_bytes(), type=list[Planned]))
    target.write_bytes(msgspec.json.format(msgspec.json.encode(task), indent=1) + b"\n")


if __name__ == "__main__":
    main()
