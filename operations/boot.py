"""Which run of which machine this is, and whether an operation was recorded during it.

Belongs here: the boot id, the time since boot, and the mark that ties a folder of operations to a boot.
Must not know: processes, handlers, or what follows from a machine having been restarted.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """A text that is the same until the machine restarts, and differs between machines."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Without it nothing that a predecessor left can be trusted, so no two processes share this value.
        return f"unknown-{os.getpid()}-{os.urandom(8).hex()}"


def uptime_s() -> float:
    """Seconds since the machine started, suspended time included, by the clock that the supervisor reads too."""
    return float(Path("/proc/uptime").read_text().split()[0])


def boottime_s() -> float:
    """The same from the kernel's own clock, without reading a file: for what only this package compares."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BootMark:
    """The boot under which a folder's operations were last recorded.

    A log that shows an operation as ready proves that it was never begun only on the machine, and in the boot, in which
    the log was written: after a power cut the traces of a start may be lost, on another machine they were never there.
    The mark is renewed when whatever was in doubt has been settled, never before.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "boot"
        self._found = ""
        with suppress(OSError):
            self._found = self._path.read_text()

    @property
    def is_current(self) -> bool:
        """Whether the operations of this folder were recorded in this boot of this machine."""
        return self._found == boot_id()

    def renew(self) -> None:
        """From now on what is recorded here belongs to this boot. A folder that cannot be written stays in doubt."""
        if self.is_current:
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}")
            temporary.write_text(boot_id())
            temporary.replace(self._path)
            self._found = boot_id()
