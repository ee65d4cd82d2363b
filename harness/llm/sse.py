"""Bytes of a server-sent event stream to events.  Pure, sans-I/O.

Belongs here: the grammar of the standard (html.spec.whatwg.org, "Server-sent events"), and nothing more.
Must not know: what the data means, HTTP, time.

Our own because httpx's line iterators, on which the known decoders stand, also end a line at U+2028, U+2029, U+0085,
VT, FF and FS, all of which may stand inside a JSON string. Here only CR, LF and CRLF end a line, and lines are found in
bytes, so that a chunk may end inside a character.

One deliberate difference: an event that the stream ends in is not thrown away but delivered by `close`, marked as not
complete, because servers leave out the last blank line. Whoever reads it has to see whether its data is whole.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""The default bound on one event: an image in base64 fits, a server that never ends its line does not fill memory."""

_LINE_END: Final = re.compile(rb"[\r\n]")
_BOM: Final = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """One event has more bytes than the decoder was allowed to hold."""


class Event(msgspec.Struct, frozen=True):
    """One event. complete: whether the blank line that ends it was seen."""

    type: str
    data: str
    complete: bool = True


class Decoder:
    """Feed it chunks as they come, then call `close`. Cutting the same bytes otherwise never changes the events."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._rest = bytearray()  # the line that has not ended yet
        self._scanned = 0  # how much of it is known to have no line end, so that dripped bytes cost no more than others
        self._after_cr = False
        self._started = False
        self._type = ""
        self._data: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes. Raises EventTooLarge; the decoder is then of no more use."""
        self._rest += chunk
        if not self._started:
            if len(self._rest) < len(_BOM) and _BOM.startswith(self._rest):
                return []
            if self._rest.startswith(_BOM):
                del self._rest[: len(_BOM)]
            self._started = True
        events: list[Event] = []
        position = 0
        while match := _LINE_END.search(self._rest, max(position, self._scanned)):
            end = match.start()
            if self._after_cr and end == position and self._rest[end] == 0x0A:
                self._after_cr = False  # the second half of a CRLF
            else:
                self._after_cr = self._rest[end] == 0x0D
                self._line(bytes(self._rest[position:end]), events)
            position = end + 1
            self._scanned = position
        if position < len(self._rest):
            self._after_cr = False
        del self._rest[:position]
        self._scanned = len(self._rest)
        if self._held + len(self._rest) > self._max:
            raise EventTooLarge(f"an event of the stream has more than {self._max} bytes")
        return events

    def close(self) -> list[Event]:
        """The stream has ended: the event that was not finished, if there is one."""
        events: list[Event] = []
        if self._rest:
            self._line(bytes(self._rest), events)
            self._rest.clear()
        self._dispatch(events, complete=False)
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            self._dispatch(events, complete=True)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._held += len(value)
            if self._held > self._max:
                raise EventTooLarge(f"an event of the stream has more than {self._max} bytes")
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        # Everything else is a comment (an empty name), a field for reconnecting, or unknown: ignored by the grammar.

    def _dispatch(self, events: list[Event], *, complete: bool) -> None:
        if self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            events.append(Event(self._type or "message", data, complete))
        self._type, self._data, self._held = "", [], 0
