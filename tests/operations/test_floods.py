"""Output without bound, output that is not text, and disks without room."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from operations import ShellHandler, Status, Update
from operations.process import HEAD_SEGMENTS, TAIL_SEGMENTS, Traces
from operations.segments import Segments
from tests.operations.helpers import ends, group_of, memory_bytes, read, run, shell, until

SMALL = 65_536
MB = 1_000_000


async def finished(folder: Path, command: str, *, segment_bytes: int | None = None, **more: Any) -> Update:
    handler = ShellHandler() if segment_bytes is None else ShellHandler(segment_bytes=segment_bytes)
    async with group_of(folder / "operations", handlers=[handler]) as group:
        return await run(group, shell("op", command, folder, **more))


def kept_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "operations" / "op").iterdir())


async def test_a_flood_is_bounded_in_memory_and_on_disk_and_keeps_both_ends(tmp_path: Path) -> None:
    (tmp_path / "warm").mkdir()
    await finished(tmp_path / "warm", "true")
    before = memory_bytes()
    command = "echo FIRST; head -c 200000000 /dev/zero | tr '\\0' a; echo; echo FINAL-ERROR >&2; exit 3"
    end = await finished(tmp_path, command)
    grown = memory_bytes() - before
    assert end.result is not None
    assert (end.status, end.result["exit_status"]) == (Status.COMPLETED, 3)
    output = end.result["output"]
    assert len(output) <= 50_000
    assert output.startswith("FIRST\naaa")
    assert output.endswith("aaa\nFINAL-ERROR\n")
    assert end.result["truncated"] is True
    assert end.result["omitted_bytes"] == 200_000_019 - len(output) + output.count("[...") * len(cut_line(output))
    assert cut_line(output)
    assert kept_bytes(tmp_path) <= 65 * 1024 * 1024
    assert grown < 20 * MB, f"{grown / MB:.1f} MB"


def cut_line(output: str) -> str:
    start = output.index("\n[... ")
    return output[start : output.index("...]\n") + 5]


async def test_the_time_limit_fires_while_output_pours(tmp_path: Path) -> None:
    async with group_of(tmp_path / "operations") as group:
        end = await run(group, shell("op", "yes", tmp_path, timeout_s=0.5), within_s=6)
    assert end.status is Status.FAILED
    assert (end.result or {})["output"].startswith("y\ny\n")
    assert kept_bytes(tmp_path) <= 65 * 1024 * 1024


@pytest.mark.parametrize(
    "size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 4 * SMALL, 8 * SMALL, 8 * SMALL + 1, 30 * SMALL + 7]
)
async def test_every_byte_that_is_kept_is_where_it_was_printed(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "data").write_bytes(data)
    end = await finished(tmp_path, "cat data", segment_bytes=SMALL)
    segments = Segments(tmp_path / "operations" / "op", SMALL)
    assert end.status is Status.COMPLETED
    assert segments.total() == size
    head = segments.read(0, HEAD_SEGMENTS * SMALL)
    assert head == data[: HEAD_SEGMENTS * SMALL]
    tail = (TAIL_SEGMENTS - 2) * SMALL
    assert segments.read(max(0, size - tail), tail) == data[max(0, size - tail) :]
    assert kept_bytes(tmp_path) <= (HEAD_SEGMENTS + TAIL_SEGMENTS) * SMALL + 1000


async def test_bytes_that_are_no_text_are_shown_and_kept_raw(tmp_path: Path) -> None:
    end = await finished(tmp_path, r"printf 'A\360\237\nB\377\000C\n'; head -c 100000 /dev/urandom > r; cat r")
    assert end.result is not None
    assert end.result["output"].startswith("A\ufffd\nB\ufffd\u2400C\n")
    raw = await trio.Path(end.result["output_path"]).read_bytes()
    assert raw == b"A\xf0\x9f\nB\xff\x00C\n" + (tmp_path / "r").read_bytes()
    end.result["output"].encode()


async def test_a_cut_inside_a_character_shows_no_broken_one(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x" + "\u00e9" * 600_000)
    end = await finished(tmp_path, "cat data", max_output=10_000)
    assert end.result is not None
    assert "\ufffd" not in end.result["output"]
    assert len(end.result["output"]) <= 10_000


async def test_a_command_that_closes_its_output_goes_on(tmp_path: Path) -> None:
    end = await finished(tmp_path, "echo before; exec >&- 2>&-; sleep 0.2; echo x > after; exit 5")
    assert end.result is not None
    assert (end.result["output"], end.result["exit_status"], read(tmp_path / "after")) == ("before\n", 5, "x\n")


async def test_output_of_what_was_left_running_stays_visible_after_the_head(tmp_path: Path) -> None:
    command = "head -c 1000000 /dev/zero | tr '\\0' a; echo END; sleep 5 & exit 4"
    async with group_of(tmp_path / "operations", handlers=[ShellHandler(segment_bytes=SMALL)]) as group:
        end = await run(group, shell("op", command, tmp_path, max_output=1000), within_s=4)
        assert end.result is not None
        assert end.result["output"].endswith("aEND\n"), "the relay held back what it had read"
        assert end.result["strays"]


async def test_live_output_of_a_flood_costs_no_more_than_a_look(tmp_path: Path) -> None:
    seen: list[int] = []
    async with group_of(tmp_path / "operations", on_progress=lambda piece: seen.append(len(piece.text))) as group:
        group.start([shell("op", "yes & sleep 1; kill $!", tmp_path)])
        await ends(group, "op")
    assert seen
    assert sum(seen) < 2 * MB


async def test_a_command_whose_output_nobody_takes_any_more_does_not_hang(tmp_path: Path) -> None:
    async with group_of(tmp_path / "operations") as group:
        group.start([shell("op", "echo x > begun; while [ ! -e go ]; do sleep 0.02; done; yes; exit 6", tmp_path)])
        await until((tmp_path / "begun").exists)
        relay = await until(lambda: Traces(tmp_path / "operations" / "op").process("relay"))
        children = trio.Path(f"/proc/{relay.pid}/task/{relay.pid}/children")
        for pid in [relay.pid, *map(int, (await children.read_text()).split())]:
            os.kill(pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        end = (await ends(group, "op", within_s=5))["op"]
        assert (end.status, (end.result or {})["exit_status"]) == (Status.COMPLETED, 6)


@asynccontextmanager
async def small_disk(folder: Path, size: str) -> AsyncIterator[Path]:
    """A file system of this size, skipping the test where one cannot be mounted."""
    await trio.Path(folder).mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "turnlog-test", str(folder)]
    mounted = await trio.run_process(command, check=False, capture_stderr=True)
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        with trio.CancelScope(shield=True):
            await trio.run_process(["umount", "-l", str(folder)])


async def test_a_full_disk_loses_output_but_not_the_exit_status(tmp_path: Path) -> None:
    async with small_disk(tmp_path / "operations", "1m"):
        end = await finished(tmp_path, "head -c 5000000 /dev/zero || exit 9; exit 3")
        assert end.result is not None
        assert (end.status, end.result["exit_status"]) == (Status.COMPLETED, 3)
        assert end.result["lost_output"] is True
        assert end.result["output"].startswith("\u2400")


async def test_a_disk_that_is_full_from_the_start_runs_nothing(tmp_path: Path) -> None:
    async with small_disk(tmp_path / "operations", "64k") as disk:
        with (disk / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass
        end = await finished(tmp_path, "echo x > ran")
        assert end.status is Status.FAILED
        assert "takes no files" in (end.result or {})["error"]
        assert not (tmp_path / "ran").exists()


@pytest.mark.slow
async def test_two_gigabytes_are_bounded(tmp_path: Path) -> None:
    before = memory_bytes()
    end = await finished(tmp_path, "head -c 2000000000 /dev/zero; echo FINAL")
    assert (end.result or {})["output"].endswith("FINAL\n")
    assert kept_bytes(tmp_path) <= 65 * 1024 * 1024
    assert memory_bytes() - before < 20 * MB
