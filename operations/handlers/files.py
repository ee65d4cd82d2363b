"""Reading a file that somebody else chose.

Belongs here: refusing what is not a plain file, without hanging on it, and reading no more than a bound.
Must not know: what the bytes mean.
"""

from __future__ import annotations

import errno
import os
import stat


class NotReadable(Exception):
    """The file cannot be used: one line that names it and says why."""


def read_plain(path: str, max_bytes: int) -> bytes:
    """All of a file of at most `max_bytes`. Raises NotReadable.

    What is checked is what is read: the open descriptor, not the name, which may mean another file a moment later.
    """
    try:
        # A FIFO without a writer would make a blocking open wait for ever; opening a terminal must not adopt it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise NotReadable(f"{path}: {_why(error)}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotReadable(f"{path}: is {_kind(mode)}, not a file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            # One more than allowed: a file can grow after its size was asked for.
            data = file.read(max_bytes + 1)
        except OSError as error:
            raise NotReadable(f"{path}: {_why(error)}") from error
    if len(data) > max_bytes:
        raise NotReadable(f"{path}: is larger than {max_bytes:,} bytes")
    return data


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno:
        return "no such file" if error.errno == errno.ENOENT else os.strerror(error.errno).lower()
    return "not a path"


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return name
    return "something special"
