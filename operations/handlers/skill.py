"""Operations of type `skill`: read a skill's instructions.

Belongs here: the text of one SKILL.md and the names beside it.
Must not know: where skills are looked for, or which one was meant.

args: path (of the SKILL.md), name, digest (blake2b-128 of the file as the owner knows it, optional).
result: text, folder, files (names in the folder, at most 50), changed.
Reading changes nothing, so recovery reads again.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from operations.handlers.files import NotReadable, read_plain
from operations.handlers.reading import ReadingHandler
from operations.operation import Ended, Status

MAX_BYTES: Final = 4 * 1024 * 1024
MAX_CHARS: Final = 100_000
MAX_FILES: Final = 50


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operation of this type carries."""

    path: str
    name: str
    digest: str | None = None


class SkillHandler(ReadingHandler[Arguments]):
    """limit: files read at once."""

    type = "skill"
    arguments = Arguments

    def read(self, arguments: Arguments) -> Ended:
        """Failed, with one line, when it is gone or no plain file."""
        try:
            data = read_plain(arguments.path, MAX_BYTES)
        except NotReadable as error:
            return Ended(Status.FAILED, {"error": f"skill {arguments.name!r} cannot be read: {error}"})
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\0", "\u2400")
        if len(text) > MAX_CHARS:
            text = f"{text[:MAX_CHARS]}\n[... {len(text) - MAX_CHARS:,} characters left out; see {arguments.path} ...]"
        folder = Path(arguments.path).parent
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        result = {
            "text": text,
            "folder": str(folder),
            "files": _names(folder),
            "changed": arguments.digest is not None and arguments.digest != digest,
        }
        return Ended(Status.COMPLETED, result)


def _names(folder: Path) -> list[str]:
    """Sorted names beside the skill, folders with a slash."""
    with os.scandir(folder) as entries:
        names = [
            _printable(entry.name) + ("/" if entry.is_dir() else "") for entry in entries if entry.name != "SKILL.md"
        ]
    return sorted(names)[:MAX_FILES]


def _printable(name: str) -> str:
    # A name on disk need not be UTF-8; what is stored has to be.
    return os.fsencode(name).decode("utf-8", "replace")
