"""The file format of the `scripted` model: JSON with a list of replies.

Belongs here: its types, and one clear line for whatever is wrong with a file.
Must not know: how a reply is chosen or played.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.llm.model import ErrorKind, StopReason, Usage
from harness.llm.providers import BadModel


class BadScript(BadModel):
    """A file of replies cannot be read or used. The line names the file and the place in it."""


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions of a reply; all of them have to hold.

    contains, regex: in any text of the request's items, instructions not included. last_contains: in what came after
    the model's last response. turn: the number of this turn, from 1.
    """

    contains: str | None = None
    last_contains: str | None = None
    regex: str | None = None
    turn: int | None = None

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """`regex`, compiled (re caches it)."""
        return None if self.regex is None else re.compile(self.regex)


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. arguments: an object, or a string that is sent as it is, valid JSON or not."""

    name: str
    arguments: dict[str, Any] | str = {}

    @property
    def raw_arguments(self) -> str:
        """The text that the model would have produced."""
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ModelError."""

    kind: ErrorKind = ErrorKind.SERVER_ERROR
    message: str = "scripted error"
    status: int | None = None
    retry_after_s: float | None = None


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One reply. think_s: seconds before the first piece. stream_s: seconds over which the text comes in pieces."""

    when: When = When()
    think_s: float = 0.0
    stream_s: float = 0.0
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    stop: StopReason | None = None
    usage: Usage = Usage()
    error: Failure | None = None
    repeat: bool = False


class _Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    replies: list[Any]


def read_script(path: str) -> list[Reply]:
    """The replies of a file. Raises BadScript."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadScript(f"the script {path!r} cannot be read: {error.strerror or error}.") from None
    try:
        script = msgspec.json.decode(data, type=_Script)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadScript(f'the script {path!r} is not JSON of the form {{"replies": [...]}}: {error}') from None
    return read_replies(script.replies, f"the script {path!r}")


def read_replies(replies: Sequence[Any], where: str) -> list[Reply]:
    """Replies from plain data. where: what an error names. Raises BadScript."""
    found = []
    for number, data in enumerate(replies, start=1):
        try:
            reply = msgspec.convert(data, type=Reply)
            _check(reply)
        except (ValueError, re.error) as error:  # msgspec's ValidationError is a ValueError
            raise BadScript(f"{where}, reply {number}: {error}") from None
        found.append(reply)
    return found


def _check(reply: Reply) -> None:
    for name in ("think_s", "stream_s"):
        value = getattr(reply, name)
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} has to be a number of seconds, zero or more, not {value!r}")
    _ = reply.when.pattern  # raises re.error here rather than in the middle of a run
