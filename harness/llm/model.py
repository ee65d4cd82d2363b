"""The neutral shapes of a model request and its response, and what a model object must offer.  Pure.

Belongs here: what every provider has in common, in one vocabulary.
Must not know: any provider's wire format, HTTP, files, or how a request came about.

Pairing, which `harness.check` asserts and every adapter may rely on: an `AssistantItem` with tool calls is followed
at once by exactly one `ToolResultItem` for each of its calls, in the calls' order; no other result ever appears.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one or more turns. None is unknown, which is not zero.

    input: all tokens read, cached ones included. cached: of those, read from the provider's cache. cache_write: of
    those, written to it. output: all tokens produced, reasoning included. reasoning: of those, spent on reasoning.
    """

    input: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None

    def __add__(self, other: Usage) -> Usage:
        if other is NO_USAGE:  # most turns lose nothing, and a fold adds them all
            return self
        a, b, c, d, e = self.input, self.cached, self.cache_write, self.output, self.reasoning
        v, w, x, y, z = other.input, other.cached, other.cache_write, other.output, other.reasoning
        return Usage(
            v if a is None else a if v is None else a + v,
            w if b is None else b if w is None else b + w,
            x if c is None else c if x is None else c + x,
            y if d is None else d if y is None else d + y,
            z if e is None else e if z is None else e + z,
        )

    @property
    def total(self) -> int:
        """Input and output together; unknown counts as zero here."""
        return (self.input or 0) + (self.output or 0)


NO_USAGE: Final = Usage()
"""Nothing that is known of; as one object, the default of every field that has none."""


# --- what a message is made of


class Text(msgspec.Struct, frozen=True, gc=False, tag="text"):
    text: str


class Image(msgspec.Struct, frozen=True, gc=False, tag="image", omit_defaults=True):
    """An image by the digest of its bytes; the bytes travel beside the request (`ModelRequest.blobs`)."""

    digest: str
    media_type: str
    width: int = 0
    height: int = 0
    size: int = 0  # bytes


Part = Text | Image


class Reasoning(msgspec.Struct, frozen=True, gc=False, tag="reasoning", omit_defaults=True):
    """What the model thought. opaque: the provider's own item as JSON text, kept as it came, sent back to it only."""

    text: str = ""
    provider: str = ""
    opaque: str = ""


class ToolCall(msgspec.Struct, frozen=True, gc=False, tag="tool_call", omit_defaults=True):
    """A request to use a tool. `arguments` is the text that the model produced, valid JSON or not.

    call_id: ours, unique in the session, 9 letters and digits (the narrowest rule of any provider). An adapter leaves
    it empty in a response; the coordinator sets it. provider_id: theirs; may repeat or be empty, never relied upon.
    """

    name: str
    arguments: str
    call_id: str = ""
    provider_id: str = ""
    provider: str = ""
    opaque: str = ""


OutputItem = Text | Reasoning | ToolCall


# --- the request


class UserItem(msgspec.Struct, frozen=True, gc=False, tag="user"):
    """Something said to the model: a user's message, a note of the harness, a result that came late."""

    parts: tuple[Part, ...]


class AssistantItem(msgspec.Struct, frozen=True, gc=False, tag="assistant"):
    """One earlier response of a model, with its parts in the order they came."""

    output: tuple[OutputItem, ...]
    provider: str = ""


class ToolResultItem(msgspec.Struct, frozen=True, gc=False, tag="tool_result"):
    """The one result of one call: what it returned, why it was refused, or that it is still running."""

    call_id: str
    tool: str
    parts: tuple[Part, ...]
    failed: bool = False


Item = UserItem | AssistantItem | ToolResultItem


class ToolSchema(msgspec.Struct, frozen=True, gc=False):
    """A tool as the model sees it. `parameters` is a JSON Schema whose top level is an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelSettings(msgspec.Struct, frozen=True, gc=False):
    """What a caller may set for every request of a session. None leaves it to the provider."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    cache_key: str | None = None


class ModelRequest(msgspec.Struct, frozen=True, gc=False):
    """Everything one turn sends. `allow_tools` False: the tools stay declared, but none may be called.

    blobs: the bytes of every Image in `items`, by digest; filled in by the coordinator, not part of the digest.
    """

    instructions: str
    tools: tuple[ToolSchema, ...]
    items: Sequence[Item]
    settings: ModelSettings = ModelSettings()
    allow_tools: bool = True
    blobs: Mapping[str, bytes] = {}


class StopReason(enum.StrEnum):
    """Why a response ended, over all providers."""

    END = "end"  # the model had said what it wanted to say
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"  # cut off at a token limit: whatever calls it holds are not to be run
    REFUSAL = "refusal"
    PAUSED = "paused"  # the provider asks for the response to be sent back so that it goes on


class ModelResponse(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A response that came to its proper end.

    attempts: how many requests it took, failed ones included. lost_usage: what the failed ones cost, where known; not
    part of `usage`, which says how large this request and this response were.
    """

    output: tuple[OutputItem, ...]
    stop: StopReason = StopReason.END
    usage: Usage = NO_USAGE
    response_id: str = ""
    provider: str = ""
    attempts: int = 1
    lost_usage: Usage = NO_USAGE


# --- live pieces


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag="text_delta"):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False, tag="reasoning_delta"):
    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False, tag="tool_call_delta"):
    """A piece of a call's arguments. `index` counts the calls of this response from 0; `name` comes with the first."""

    index: int
    name: str
    arguments: str


class AttemptDropped(msgspec.Struct, frozen=True, gc=False, tag="attempt_dropped"):
    """All deltas of this turn so far are void: the attempt failed and another one begins after `retry_in_s` seconds."""

    reason: str
    retry_in_s: float


Delta = TextDelta | ReasoningDelta | ToolCallDelta | AttemptDropped

Emit = Callable[[Delta], None]


class Model(Protocol):
    """Anything that answers requests. It keeps no state that a later request needs, and may be cancelled anywhere."""

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        """Answer one request, calling `emit` with pieces as they come. Raises ModelError when it cannot."""
        ...


# --- failures


class ErrorKind(enum.StrEnum):
    """Why a model gave no response. Which of these are tried again is `retry.RETRIED`."""

    AUTHENTICATION = "authentication"
    NOT_FOUND = "not_found"
    BAD_REQUEST = "bad_request"
    CONTEXT_TOO_LONG = "context_too_long"
    CONTENT_REFUSED = "content_refused"
    IMAGE_REFUSED = "image_refused"  # the images in the history; from then on they are left out
    REASONING_REFUSED = "reasoning_refused"  # the reasoning that is sent back; from then on it is left out
    QUOTA_EXHAUSTED = "quota_exhausted"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMED_OUT = "timed_out"
    CONNECTION = "connection"
    PROTOCOL = "protocol"
    UNEXPECTED = "unexpected"  # a model object raised something that is not a ModelError


class ModelError(Exception):
    """A turn got no response.

    status: the HTTP status, or None when there was none. retry_after_s: what the provider asked for, in seconds.
    attempts: requests made. usage: what the failed attempts cost, where known. points_at: IMAGE_REFUSED or
    REASONING_REFUSED where the provider's words are about such parts, whether or not the request had any.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        attempts: int = 1,
        usage: Usage = NO_USAGE,
        points_at: ErrorKind | None = None,
    ) -> None:
        self.kind, self.message, self.status = kind, message, status
        self.retry_after_s, self.attempts, self.usage = retry_after_s, attempts, usage
        self.points_at = points_at
        super().__init__(message)
