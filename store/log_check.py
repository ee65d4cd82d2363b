"""Whether a write-ahead log that a crash left behind still holds every commit that was put into it.

Belongs here: reading SQLite's log as its file format says (sqlite.org/fileformat2.html, "The Write-Ahead Log").
Must not know: what the pages in it mean, or what is done about damage.

SQLite ends a log at the first frame whose checksum is wrong, because that is how a commit looks that the crash cut off.
A changed byte looks the same, and takes every commit behind it along without a word. What tells them apart: a frame's
checksum goes on from that of the frame before it, and a commit is begun only on one that is whole on the disk. Two
commits that go on from each other behind the place where SQLite stops are therefore proof that the first was whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_HEADER: Final = struct.Struct(">8I")  # magic, version, page size, checkpoint, two salts, two checksums
_FRAME: Final = struct.Struct(">6I")  # page, pages of the database if this ends a commit, two salts, two checksums
_BYTE_ORDER: Final = {0x377F0682: "<", 0x377F0683: ">"}  # by the magic number: how the checksums read their words
_WORD: Final = 0xFFFFFFFF

_DEAD_MAN_SWITCH: Final = "128"
"""The byte of the log's index that every connection keeps locked as long as it is open."""

_Sums = tuple[int, int]


def lost_commits(log: Path, page_bytes: int) -> str:
    """What is wrong with a log that nobody has open, in words; empty when all that was acknowledged can be read.

    page_bytes: the database's page size. Not found: damage within the very last commit, and a log that was cut short at
    the end of one. Raises OSError.
    """
    # Twice, because a process that has it open where is_in_use cannot tell may be writing what the first look met.
    problem = _looked_at(log, page_bytes)
    return problem and _looked_at(log, page_bytes)


def is_in_use(index: Path) -> bool:
    """Whether a process, perhaps this one, has the log of this index open. False where the system does not say."""
    with suppress(OSError):
        inode = f":{index.stat().st_ino}"
        lines = Path("/proc/locks").read_text().splitlines()
        return any(
            fields[-3].endswith(inode) and fields[-2] == _DEAD_MAN_SWITCH
            for fields in map(str.split, lines)
            if len(fields) > 3
        )
    return False


def _looked_at(log: Path, page_bytes: int) -> str:
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return ""
        words = _HEADER.unpack(header)
        orders = [_BYTE_ORDER[words[0]]] if words[0] in _BYTE_ORDER else list(_BYTE_ORDER.values())
        problem = next(filter(None, (_lost(file, page_bytes, header, order) for order in orders)), "")
        file.seek(0)
        # Another header by now: the log was begun anew in between, so that its frames were of two logs.
        return problem if file.read(_HEADER.size) == header else ""


class _Frame(NamedTuple):
    """linked: its checksum goes on from that of the frame before it, or of the header."""

    number: int
    salts: tuple[int, int]
    ends_commit: bool
    linked: bool


def _lost(file: BinaryIO, page_bytes: int, header: bytes, order: str) -> str:
    words = _HEADER.unpack(header)
    made = _checksum(header[:24], order, (0, 0))
    file.seek(_HEADER.size)
    frames = _frames(file, page_bytes, order, words[6:], made)
    if words[0] not in _BYTE_ORDER or words[2] != page_bytes or words[6:] != made:
        return _behind_a_broken_header(frames)
    return _behind_a_broken_frame(frames, words[4:6])


def _behind_a_broken_header(frames: Iterator[_Frame]) -> str:
    """A header is on the disk before any frame is, so one commit that goes on from it is proof enough."""
    for frame in frames:
        if not frame.linked:
            break
        if frame.ends_commit:
            return "its header was changed"
    return ""


def _behind_a_broken_frame(frames: Iterator[_Frame], salts: _Sums) -> str:
    """A log that is used again keeps frames of its former contents behind the new ones: those have other salts."""
    broken = commits = 0
    for frame in frames:
        ours = frame.salts == salts
        if not broken and not (ours and frame.linked):
            broken, ours = frame.number, ours or frame.linked
        if broken:
            commits = (commits * frame.linked + frame.ends_commit) if ours else 0
        if commits >= 2:
            return f"its frame {broken} was changed"
    return ""


def _frames(file: BinaryIO, page_bytes: int, order: str, stored: _Sums, made: _Sums) -> Iterator[_Frame]:
    """Each whole frame behind the header. stored, made: the header's checksum as it says and as it ought to be."""
    number = 0
    while len(frame := file.read(_FRAME.size + page_bytes)) == _FRAME.size + page_bytes:
        number += 1
        page, pages, *rest = _FRAME.unpack_from(frame)
        data = frame[:8] + frame[_FRAME.size :]
        # Of the frame before, either the checksum may have been changed or what it is of.
        sums = [_checksum(data, order, seed) for seed in {stored: 0, made: 0}]
        stored = (rest[2], rest[3])
        made = stored if stored in sums else sums[0]
        yield _Frame(number, (rest[0], rest[1]), page > 0 and pages > 0, stored in sums)


def _checksum(data: bytes, order: str, sums: _Sums) -> _Sums:
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
