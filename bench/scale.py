"""Many things at once in one process: sessions that wait, timers, shell commands.

`python -m bench.scale [--quick] [--json FILE]`. Memory is what this process grew by; that of the small supervisor
that each command has, two shells and the `head` that writes its output, is a figure of its own. Latency is from an
operation's end to the model call that it triggers, the log on disk; for commands, which all end at about the same
moment, from the end of the last one to the one call.

Belongs here: the three loads.
Must not know: anything about turns beyond that a result leads to one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

import harness
from harness.llm.model import AssistantItem, Emit, ModelRequest, ModelResponse, StopReason, Text, ToolCall, Usage
from operations import Operation, OperationManager, OperationSpec, Status
from store import SqliteStore


class Load(msgspec.Struct, frozen=True):
    """One load. start_s: until all were running. kb_each: memory for each. median_ms, p99_ms: end to model call.

    supervisor_pss_kb, supervisor_rss_kb: memory of one command's supervisor, with what processes share divided among
    them, and with it counted for each.
    """

    what: str
    count: int
    start_s: float
    kb_each: float
    median_ms: float | None = None
    p99_ms: float | None = None
    supervisor_pss_kb: float | None = None
    supervisor_rss_kb: float | None = None


def memory_kb() -> float:
    """Resident memory of this process, in kB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def supervisors_kb() -> tuple[float, float]:
    """(PSS, RSS) in kB of the supervisor of one running command: the mean of all that this process has started."""
    found = [pid for pid in children(os.getpid()) if is_supervisor(pid)]
    parts = [part for pid in found for part in (pid, *(inner for inner in children(pid) if is_supervisor(inner)))]
    parts += [writer for part in set(parts) - set(found) for writer in children(part)]
    sizes = [mapped_kb(part) for part in parts]
    return sum(pss for pss, _ in sizes) / len(found), sum(rss for _, rss in sizes) / len(found)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_supervisor(pid: int) -> bool:
    return b"\0turnlog-supervisor\0" in Path(f"/proc/{pid}/cmdline").read_bytes()


def mapped_kb(pid: int) -> tuple[int, int]:
    """(PSS, RSS) of a process in kB."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return int(fields["Pss"].split()[0]), int(fields["Rss"].split()[0])


class OneCall:
    """A model whose first answer is these calls, and whose every later one is the end; called_s: when it was asked."""

    name = "one call"

    def __init__(self, *calls: ToolCall) -> None:
        self.calls = calls
        self.called_s: list[float] = []
        self.called_unix_s = 0.0
        self.request: ModelRequest | None = None
        self.called_again = trio.Event()

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        self.called_s.append(time.perf_counter())
        self.called_unix_s, self.request = time.time(), request
        if len(self.called_s) == 2:
            self.called_again.set()
        await trio.lowlevel.checkpoint()
        if len(self.called_s) == 1:
            return ModelResponse(self.calls, StopReason.TOOL_CALLS, Usage())
        return ModelResponse((Text("done"),), StopReason.END, Usage())


class Gate:
    """A tool whose calls wait until they are let go; ended_s: when each was."""

    def __init__(self) -> None:
        self.waiting = 0
        self.all_here = trio.Event()
        self.expected = 0
        self.opened: dict[int, trio.Event] = {}
        self.ended_s: dict[int, float] = {}

    def tool(self) -> Any:
        async def wait(number: int) -> str:
            event = self.opened.setdefault(number, trio.Event())
            self.waiting += 1
            if self.waiting == self.expected:
                self.all_here.set()
            await event.wait()
            self.ended_s[number] = time.perf_counter()
            return "gone through"

        return harness.tool(name="wait", description="Waits.")(wait)


def percentiles(values_s: Sequence[float]) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds."""
    ordered = sorted(values_s)
    return statistics.median(ordered) * 1000, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000


async def sessions(folder: Path, count: int) -> Load:
    """So many open sessions, each with a pending operation; then they end one after the other, 5 ms apart."""
    gate, models = Gate(), [OneCall(ToolCall("wait", json.dumps({"number": number}))) for number in range(count)]
    gate.expected = count
    manager = _manager(count)
    async with SqliteStore.open(folder / "sessions.db") as store, AsyncExitStack() as stack:
        before, started = memory_kb(), time.perf_counter()
        for model in models:
            session = await stack.enter_async_context(
                harness.open_session(
                    store, model=model, tools=[gate.tool()], workspace=folder, manager=manager, instructions=""
                )
            )
            await session.start_run("go")
        await gate.all_here.wait()
        start_s, grown = time.perf_counter() - started, memory_kb() - before
        for number in range(count):
            gate.opened[number].set()
            await trio.sleep(0.005)
        with trio.fail_after(60):
            for model in models:
                await model.called_again.wait()
    delays = [model.called_s[1] - gate.ended_s[number] for number, model in enumerate(models)]
    return Load("sessions, one operation each", count, start_s, grown / count, *percentiles(delays))


def _manager(functions: int) -> OperationManager:
    return OperationManager(limits={"function": functions})


@asynccontextmanager
async def _group(folder: Path, **limits: int) -> AsyncIterator[Any]:
    async with OperationManager(limits=limits).open_group(folder) as group:
        group.recover([])
        yield group


async def timers(folder: Path, count: int, seconds: float = 20.0) -> Load:
    """So many pending timers of one owner, and the memory they take."""
    operations = [Operation(f"t{n}", OperationSpec("timer", 1, {"seconds": seconds})) for n in range(count)]
    async with _group(folder / "timers") as group:
        before, started = memory_kb(), time.perf_counter()
        group.start(operations)
        await _all(group, count, Status.RUNNING)
        return Load("timers", count, time.perf_counter() - started, (memory_kb() - before) / count)


async def _all(group: Any, count: int, status: Status) -> list[float]:
    """Wait until so many operations have this status; when each had it."""
    at_s: list[float] = []
    async for update in group.updates:
        if update.status is status:
            at_s.append(time.perf_counter())
            if len(at_s) == count:
                break
    return at_s


async def commands(folder: Path, count: int, seconds: float = 12.0) -> Load:
    """So many commands at once, made by one response of a model; all end at about the same moment."""
    model = OneCall(*[ToolCall("bash", json.dumps({"command": f"sleep {seconds}; date +%s.%N"})) for _ in range(count)])
    manager = OperationManager(limits={"shell": count})
    async with SqliteStore.open(folder / "commands.db") as store:
        before, started = memory_kb(), time.perf_counter()
        async with harness.open_session(
            store, model=model, tools=[harness.bash()], workspace=folder, manager=manager, instructions=""
        ) as session:
            run = await session.start_run("go")
            while sum(op.status is Status.RUNNING for op in session.state.operations.values()) < count:
                await trio.sleep(0.02)
                if time.perf_counter() - started > 60:
                    raise RuntimeError("the commands did not all start")
            start_s, grown = time.perf_counter() - started, memory_kb() - before
            pss_kb, rss_kb = await trio.to_thread.run_sync(supervisors_kb)
            await run.result()
    late_ms = (model.called_unix_s - max(_ends(model.request))) * 1000
    return Load(
        "shell commands of one response",
        count,
        start_s,
        grown / count,
        late_ms,
        supervisor_pss_kb=pss_kb,
        supervisor_rss_kb=rss_kb,
    )


def _ends(request: ModelRequest | None) -> list[float]:
    """When the commands ended, as they said themselves."""
    assert request is not None
    parts = [part for item in request.items if not isinstance(item, AssistantItem) for part in item.parts]
    texts = [part.text for part in parts if isinstance(part, Text)]
    return [float(found) for text in texts for found in re.findall(r"\b\d{10}\.\d{9}\b", text)]


LOADS: Final = {"sessions": (sessions, 1_000), "timers": (timers, 10_000), "commands": (commands, 500)}


def measure_alone(name: str, *, quick: bool) -> Load:
    """One load in a process of its own: memory that another one has freed would be used again and not be seen."""
    command = [sys.executable, "-m", "bench.scale", "--only", name, *(["--quick"] if quick else [])]
    return msgspec.json.decode(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout, type=Load)


def measure(name: str, *, quick: bool) -> Load:
    """One load, here."""
    load, count = LOADS[name]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a disk: the usual temporary folder may be in memory
        return trio.run(load, Path(folder), count // 20 if quick else count)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the load")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--only", choices=list(LOADS), help="one load, its figures as JSON")
    options = parser.parse_args()
    if options.only:
        print(msgspec.json.encode(measure(options.only, quick=options.quick)).decode())
        return
    found = [measure_alone(name, quick=options.quick) for name in LOADS]
    print(f"{'':<32}{'count':>8}{'start s':>10}{'kB each':>10}{'median ms':>11}{'p99 ms':>9}")
    for load in found:
        latency = "".join(
            f"{'-' if value is None else f'{value:.1f}':>{width}}"
            for value, width in ((load.median_ms, 11), (load.p99_ms, 9))
        )
        print(f"{load.what:<32}{load.count:>8,}{load.start_s:>10.2f}{load.kb_each:>10.1f}{latency}")
        if load.supervisor_pss_kb is not None:
            pss_kb, rss_kb = load.supervisor_pss_kb, load.supervisor_rss_kb
            print(
                f"  and the supervisor of each: {pss_kb:.0f} kB of its own share (PSS), {rss_kb:.0f} kB resident (RSS)"
            )
    if options.json is not None:
        options.json.write_text(json.dumps(msgspec.to_builtins(found), indent=2) + "\n")


if __name__ == "__main__":
    main()
