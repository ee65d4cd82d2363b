"""A process that starts shell commands and can be killed: `python -m tests.operations.parent FOLDER ID COMMAND ...`.

Prints "running ID" when a command has been started, and then waits for its end, or for its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from operations import TERMINAL, OperationManager
from tests.operations.helpers import shell


async def main(folder: str, *words: str) -> None:
    commands = dict(zip(words[::2], words[1::2], strict=True))
    async with OperationManager().open_group(Path(folder) / "operations") as group:
        group.recover([])
        group.start([shell(id_, command, folder) for id_, command in commands.items()])
        async for update in group.updates:
            print(update.status.value, update.operation_id, flush=True)
            if update.status in TERMINAL:
                commands.pop(update.operation_id)
            if not commands:
                return


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
