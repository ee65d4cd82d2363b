"""Showing a command's output while it runs.

Belongs here: following the files of output and handing on what is new, in pieces that end with a line.
Must not know: how the command ends; what is shown here is never recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from operations.output import clean, whole_characters
from operations.segments import Segments

EVERY_S: Final = 0.15
PIECE_BYTES: Final = 65_536
LINE_BYTES: Final = 4096
"""A line that is longer is shown in parts."""


@asynccontextmanager
async def show_output(segments: Segments, show: Callable[[str], None]) -> AsyncIterator[None]:
    """Within the block, `show` gets what is printed. People who watch a flood see the newest piece of each moment."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow, segments, show)
        yield
        nursery.cancel_scope.cancel()


async def _follow(segments: Segments, show: Callable[[str], None]) -> None:
    offset = 0
    while True:
        await trio.sleep(EVERY_S)
        total = segments.total()
        if total - offset > 2 * PIECE_BYTES:
            offset = total - PIECE_BYTES
        data = segments.read(offset, PIECE_BYTES)
        shown = _up_to_last_line(data)
        if shown:
            offset += len(shown)
            show(clean(shown))


def _up_to_last_line(data: bytes) -> bytes:
    end = data.rfind(b"\n") + 1
    if end:
        return data[:end]
    return whole_characters(data, at_end=True) if len(data) >= LINE_BYTES else b""
