"""The body of a response to deltas and a finished response, whichever way the body comes.  Pure, sans-I/O.

Belongs here: telling an event stream from a JSON body and from a page; what counts as life; how a body may end.
Must not know: any protocol's events (an Assembler does), sockets, clocks.
"""

from __future__ import annotations

import enum
from typing import Any, Final, Protocol

from harness.llm.errors import one_line
from harness.llm.halves import Halves, whole
from harness.llm.jsontext import decoded, dumped
from harness.llm.model import Delta, Emit, ErrorKind, ModelError, ModelResponse, Usage
from harness.llm.sse import Decoder, Event, EventTooLarge

MAX_BODY_BYTES: Final = 64 * 1024 * 1024


class State(enum.Enum):
    """How far a response has come."""

    OPEN = enum.auto()  # more is needed
    CLOSING = enum.auto()  # whole but for details that may follow, such as usage
    DONE = enum.auto()  # nothing more is read


class Assembler(Protocol):
    """What puts one response together, by the rules of one protocol."""

    state: State

    def event(self, data: dict[str, Any]) -> list[Delta]:
        """Take one event's JSON object. Raises ModelError when it is an error."""
        ...

    def end_marker(self) -> None:
        """Take the `[DONE]` that some protocols end a stream with."""
        ...

    def body(self, data: dict[str, Any]) -> list[Delta]:
        """Take a whole response that came as one JSON object. Raises ModelError when it is an error."""
        ...

    def result(self) -> ModelResponse:
        """The response, once the body has ended. Raises ModelError when it is not whole."""
        ...


class BodyReader:
    """Takes the chunks of one response body. Any failure is kept as `error`; nothing is raised before `result`.

    life: how many times something has shown that the model is at work, which comments and pings do not.
    """

    def __init__(self, assembler: Assembler, emit: Emit) -> None:
        self.error: ModelError | None = None
        self.life = 0
        self._assembler, self._emit = assembler, Halves(emit)
        self._decoder: Decoder | None = None
        self._whole = bytearray()  # the body as long as it is not known to be a stream

    @property
    def state(self) -> State:
        """DONE also after an error."""
        return State.DONE if self.error is not None else self._assembler.state

    def feed(self, chunk: bytes) -> None:
        """Take a chunk. Chunks after the end are ignored."""
        if self.state is State.DONE:
            return
        try:
            self._feed(chunk)
        except ModelError as error:
            self.error = error
        except EventTooLarge as error:
            self.error = ModelError(ErrorKind.PROTOCOL, str(error))

    def end(self) -> None:
        """The body has ended, in whatever way the transport calls an end."""
        if self.state is State.DONE:
            return
        try:
            if self._decoder is not None:
                for event in self._decoder.close():
                    self._event(event)
            else:
                self._json_or_page()
        except ModelError as error:
            self.error = error

    def result(self) -> ModelResponse:
        """The response. Raises the ModelError that was met, or the one that says how the body is not whole."""
        if self.error is not None:
            raise self.error
        return whole(self._assembler.result())

    def _feed(self, chunk: bytes) -> None:
        if self._decoder is None:
            self._whole += chunk
            if len(self._whole) > MAX_BODY_BYTES:
                raise ModelError(ErrorKind.PROTOCOL, f"the response has more than {MAX_BODY_BYTES} bytes")
            # The first character decides, not the content type, which servers get wrong: a line of an event stream
            # begins with a field's name or a colon, never with a bracket.
            start = bytes(self._whole[:64]).removeprefix(b"\xef\xbb\xbf").lstrip()
            if not start or start[:1] in b"{[<" or start in (b"\xef", b"\xef\xbb"):
                return
            self._decoder, chunk = Decoder(), bytes(self._whole)
            self._whole.clear()
        for event in self._decoder.feed(chunk):
            self._event(event)
            if self.state is State.DONE:
                return

    def _event(self, event: Event) -> None:
        data = event.data.strip()
        if data == "[DONE]":
            self._assembler.end_marker()
            return
        if not data.startswith("{"):  # a keep-alive that is dressed as data
            return
        value = decoded(data.encode(), halves=True)
        if not isinstance(value, dict):
            if not event.complete:
                return  # the connection ended inside it; that the response is not whole is for `result` to say
            raise ModelError(ErrorKind.PROTOCOL, f"an event of the stream is not JSON: {one_line(data[:200])!r}")
        if event.type != "ping" and value.get("type") != "ping":
            self.life += 1
        for delta in self._assembler.event(value):
            self._emit(delta)

    def _json_or_page(self) -> None:
        body = bytes(self._whole)
        if not body.strip():
            raise ModelError(ErrorKind.CONNECTION, "the connection ended before the response began")
        value = decoded(body.removeprefix(b"\xef\xbb\xbf"))
        if isinstance(value, dict):
            for delta in self._assembler.body(value):
                self._emit(delta)
            return
        if body.lstrip()[:1] == b"{" and body.rstrip()[-1:] != b"}":
            raise ModelError(ErrorKind.CONNECTION, "the connection ended inside the response")
        shown = one_line(body[:200].decode("utf-8", "replace"))
        raise ModelError(ErrorKind.PROTOCOL, f"the response is neither an event stream nor JSON: {shown!r}")


def ended_oddly(what: str, value: Any, usage: Usage, kind: ErrorKind = ErrorKind.PROTOCOL) -> ModelError:
    """The error of a response whose end says something that is no success, or unknown. what: the name of the value."""
    shown = one_line(value if isinstance(value, str) else dumped(value))
    return ModelError(kind, f"the response ended with the {what} {shown!r}", usage=usage)


def ended_early(what: str = "its end was announced") -> ModelError:
    """The error of a stream that stopped without its proper end."""
    return ModelError(ErrorKind.CONNECTION, f"the stream ended before {what}")
