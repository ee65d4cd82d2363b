"""What a program printed, as text that can be read, stored and sent.

Belongs here: bytes to clean text, and keeping the head and the tail of what is too long.
Must not know: files, processes, who printed it or who reads it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

DEFAULT_MAX_CHARS: Final = 50_000

RAW_PER_CHAR: Final = 8
"""Bytes read for a character shown: colours and progress bars shrink to a fraction of what was printed."""

_ERASE = "\x1b"
"""Stands for "erase the line" between the two passes; every real escape is gone by then."""

# Possessive, so that an unfinished sequence costs one look and not one for each of its characters.
_ESCAPES = re.compile(
    r"""
      (?P<erase> (?:\x1b\[|\x9b) [02]?K )
    | (?:\x1b\[|\x9b) [0-?]*+ [\ -/]*+ [@-~]?           # CSI: colours, cursor moves; possibly cut off
    | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]) [^\x07\x1b\x9c\n]*+ (?:\x07|\x1b\\|\x9c)   # OSC and other strings
    | \x1b [\ -/]*+ [0-~]?                              # all other sequences, and an escape at the end
    """,
    re.VERBOSE,
)
_MOVES = re.compile(f"([\r\b{_ERASE}])")
_CONTROLS: Final = {
    # Shown where their presence means something, dropped where they only ring or shift.
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r\b\x1b\x07\x0b\x0c\x0e\x0f"},
    **dict.fromkeys((0x07, 0x0E, 0x0F, *range(0x80, 0xA0))),
    0x0B: "\n",
    0x0C: "\n",
    0x7F: "\u2421",
}


def clean(data: bytes) -> str:
    """The text that a terminal would show in the end, in time linear in the input.

    Bad UTF-8 becomes U+FFFD, NUL and other controls their pictures (U+2400 and on), escape sequences go, a carriage
    return or backspace overwrites as it does on a screen, CRLF is one line end. Cleaning twice changes nothing.
    """
    text = data.decode("utf-8", "replace")
    if "\x1b" in text or _has_c1(text):
        text = _ESCAPES.sub(lambda match: _ERASE if match["erase"] else "", text)
    text = text.replace("\r\n", "\n").translate(_CONTROLS)
    if _MOVES.search(text) is None:
        return text
    return "\n".join(_shown(line) if _MOVES.search(line) else line for line in text.split("\n"))


def _has_c1(text: str) -> bool:
    return re.search("[\x80-\x9f]", text) is not None


def _shown(line: str) -> str:
    """One line after all its overwriting. Wide and combining characters count as one column."""
    cells: list[str] = []
    column = 0
    for part in _MOVES.split(line):
        if part == "\r":
            column = 0
        elif part == "\b":
            column = max(0, column - 1)
        elif part == _ERASE:
            # Programs erase after going back to the first column, or right before; a gap of blanks helps nobody.
            del cells[column:]
        else:
            cells[column : column + len(part)] = part
            column += len(part)
    return "".join(cells)


class Bounded(msgspec.Struct, frozen=True):
    """Text within its bound. omitted_bytes: how much is not in it, 0 when nothing was cut."""

    text: str
    omitted_bytes: int

    @property
    def truncated(self) -> bool:
        """Whether something was cut."""
        return self.omitted_bytes > 0


def bounded(head: bytes, tail: bytes, total: int, max_chars: int, where: str) -> Bounded:
    """Head and tail of an output as one text of at most `max_chars` characters (a few more for very small bounds).

    head, tail: the bytes at both ends; tail is empty when head is everything. total: bytes printed in all.
    where: the place of the full output, named in the line that stands for what was cut.
    """
    missing = max(0, total - len(head) - len(tail))
    if not missing:
        text = clean(head + tail)
        if len(text) <= max_chars:
            return Bounded(text, 0)
        first, last = text, text
    else:
        first, last = clean(whole_characters(head, at_end=True)), clean(whole_characters(tail, at_end=False))
    room = max(0, max_chars - len(_cut_line(total, where)))
    first_kept = _up_to_line_end(first[: room - room // 2])
    last_kept = _from_line_start(last[len(last) - min(len(last), room // 2) :])
    if missing:
        cut = missing + _bytes(first[len(first_kept) :]) + _bytes(last[: len(last) - len(last_kept)])
    else:
        cut = _bytes(first[len(first_kept) : len(first) - len(last_kept)])
    return Bounded(f"{first_kept}{_cut_line(cut, where)}{last_kept}", cut)


def _cut_line(omitted: int, where: str) -> str:
    return f"\n[... {omitted:,} bytes left out here; the full output is in {where} ...]\n"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _up_to_line_end(text: str) -> str:
    """Without a last line that was cut, where that loses little."""
    end = text.rfind("\n")
    return text[:end] if end >= 0 and len(text) - end <= len(text) // 10 else text


def _from_line_start(text: str) -> str:
    start = text.find("\n") + 1
    return text[start:] if 0 < start <= len(text) // 10 else text


def whole_characters(data: bytes, *, at_end: bool) -> bytes:
    """`data` without the part of a UTF-8 character, or of an escape sequence, that a cut left at its end (or start)."""
    if not at_end:
        start = 0
        while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
            start += 1
        return data[start:]
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            data = data if length <= back else data[:-back]
            break
    escape = data.rfind(b"\x1b", max(0, len(data) - 64))
    return data[:escape] if escape >= 0 and re.fullmatch(rb"\x1b(?:\[[0-?]*[ -/]*)?", data[escape:]) else data
