"""Operations of type `timer`: nothing happens for a while.

Belongs here: how much of the wait is left, also after a restart of the process or of the machine.
Must not know: what anyone waits for.

args: seconds. result: {}. Within one boot the wait counts elapsed time, a suspended machine included where the process
was restarted in between; across a restart of the machine it falls back on the wall clock.
"""

from __future__ import annotations

import math
import time
from typing import Any, Final

import msgspec
import trio

from operations.boot import boot_id, boottime_s
from operations.operation import Context, Ended, Operation, Status

LIMIT: Final = 100_000


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operation of this type carries."""

    seconds: float


class TimerHandler:
    """limit: timers at once; each costs a task and nothing else."""

    type = "timer"
    version = 1

    def __init__(self, *, limit: int = LIMIT) -> None:
        self.limit = limit

    async def start(self, operation: Operation, context: Context) -> Ended:
        """Wait for the whole time. Fails for a duration that is not a number of seconds of 0 or more."""
        seconds = msgspec.convert(operation.spec.args, Arguments).seconds
        if not (math.isfinite(seconds) and seconds >= 0):
            return Ended(Status.FAILED, {"error": f"seconds has to be a number of 0 or more, not {seconds!r}."})
        await context.running(
            {"due_boottime_s": boottime_s() + seconds, "boot": boot_id(), "due_unix_s": time.time() + seconds}
        )
        await trio.sleep(seconds)
        return Ended(Status.COMPLETED, {})

    async def cancel(self, operation: Operation) -> bool:
        """The manager can cancel the task: nothing has to be cleaned up."""
        return False

    async def recover(self, operation: Operation, context: Context) -> Ended:
        """Wait for the rest."""
        if operation.checkpoint is None:
            return await self.start(operation, context)
        await context.running()
        await trio.sleep(_left_s(operation.checkpoint))
        return Ended(Status.COMPLETED, {})


def _left_s(checkpoint: dict[str, Any]) -> float:
    if checkpoint.get("boot") == boot_id():
        return max(0.0, float(checkpoint["due_boottime_s"]) - boottime_s())
    return max(0.0, float(checkpoint["due_unix_s"]) - time.time())
