"""What a provider's failure means: HTTP status and error object to an ErrorKind.  Pure.

Belongs here: the tables of codes, types and phrases of all providers, read in one place.
Must not know: whether a failure is tried again (retry.py), or how it arrived.

Order matters: what the text says about the context, the account and the content is more precise than any status, since
providers use 400, 403 and 429 for several things each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from harness.llm.jsontext import decoded, dumped
from harness.llm.model import ErrorKind, ModelError, Usage
from harness.llm.refused import pointed_at

MESSAGE_CHARS: Final = 600
"""Characters of a provider's message that are kept."""

_CONTEXT: Final = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large|model_context_window_exceeded|string_above_max_length"
    r"|prompt is too long|input is too long|prompt too long"
    r"|maximum context length|max(?:imum)? context size|available context size"
    r"|exceeds? (?:the |your |this )?(?:model'?s? )?(?:maximum )?(?:allowed )?(?:input|context|prompt)(?: token)? "
    r"?(?:length|limit|size|window)"
    r"|exceeds? the (?:model'?s? )?context|larger than the context|longer than the (?:model'?s? )?(?:maximum )?context"
    r"|maximum (?:allowed )?(?:input|prompt) length|input token count .{0,40}exceeds"
    r"|too large for model|request too large for",
    re.IGNORECASE,
)
_QUOTA: Final = re.compile(
    r"insufficient_quota|billing_hard_limit|billing_error|billing_not_active|usage_limit_reached"
    r"|exceeded your current quota|credit balance is too low|insufficient (?:credits|balance|funds)"
    r"|specified API usage limits|more credits",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    r"content_filter|content_policy|content filtering policy|content management policy|(?:bio|cyber)_policy"
    r"|misalignment_policy_violation|requires moderation|flagged (?:by|as|for)|usage policy",
    re.IGNORECASE,
)

_BY_NAME: Final[Mapping[str, ErrorKind]] = {
    # Anthropic's types
    "authentication_error": ErrorKind.AUTHENTICATION,
    "permission_error": ErrorKind.AUTHENTICATION,
    "not_found_error": ErrorKind.NOT_FOUND,
    "invalid_request_error": ErrorKind.BAD_REQUEST,
    "rate_limit_error": ErrorKind.RATE_LIMITED,
    "overloaded_error": ErrorKind.OVERLOADED,
    "timeout_error": ErrorKind.TIMED_OUT,
    "api_error": ErrorKind.SERVER_ERROR,
    # OpenAI's codes and types
    "invalid_api_key": ErrorKind.AUTHENTICATION,
    "model_not_found": ErrorKind.NOT_FOUND,
    "rate_limit_exceeded": ErrorKind.RATE_LIMITED,
    "requests": ErrorKind.RATE_LIMITED,
    "tokens": ErrorKind.RATE_LIMITED,
    "server_error": ErrorKind.SERVER_ERROR,
    "server_is_overloaded": ErrorKind.OVERLOADED,
    "slow_down": ErrorKind.OVERLOADED,
    "invalid_prompt": ErrorKind.CONTENT_REFUSED,
    "data_residency_mismatch": ErrorKind.BAD_REQUEST,
    # vLLM's and Mistral's
    "BadRequestError": ErrorKind.BAD_REQUEST,
    "NotFoundError": ErrorKind.NOT_FOUND,
    "InternalServerError": ErrorKind.SERVER_ERROR,
    "service_unavailable": ErrorKind.OVERLOADED,
}

_BY_STATUS: Final[Mapping[int, ErrorKind]] = {
    401: ErrorKind.AUTHENTICATION,
    402: ErrorKind.QUOTA_EXHAUSTED,
    403: ErrorKind.AUTHENTICATION,
    404: ErrorKind.NOT_FOUND,
    405: ErrorKind.NOT_FOUND,
    408: ErrorKind.TIMED_OUT,
    409: ErrorKind.SERVER_ERROR,
    410: ErrorKind.NOT_FOUND,
    413: ErrorKind.CONTEXT_TOO_LONG,
    425: ErrorKind.SERVER_ERROR,
    429: ErrorKind.RATE_LIMITED,
    498: ErrorKind.OVERLOADED,
    503: ErrorKind.OVERLOADED,
    504: ErrorKind.TIMED_OUT,
    524: ErrorKind.TIMED_OUT,
    529: ErrorKind.OVERLOADED,
}


class Said(msgspec.Struct, frozen=True):
    """What an error object says. names: its codes and types. status: one that it carries itself. all: for searching."""

    message: str = ""
    names: tuple[str, ...] = ()
    status: int | None = None
    all: str = ""


def read_error(data: Any) -> Said:
    """The facts of an error object, in any provider's shape. Total: whatever it is given, it answers."""
    outer = data if isinstance(data, dict) else {"message": data}
    error = outer.get("error") or outer.get("detail") or outer
    if isinstance(error, list | str):
        error = {"message": error}
    if not isinstance(error, dict):
        error = {}
    merged = {**outer, **error}
    message = _plain(merged.get("message") or merged.get("detail") or merged.get("msg") or "")
    metadata = merged.get("metadata")
    raw = (
        _plain(metadata.get("raw") or "") if isinstance(metadata, dict) else ""
    )  # what the provider behind a router said
    names: list[str] = []
    status: int | None = None
    for key in ("code", "type", "status", "status_code", "error_type"):
        value = merged.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value[:9])
        if isinstance(value, str) and value not in ("", "error"):
            names.append(value)
        elif isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 and status is None:
            status = value
    text = f"{message}: {raw}" if raw and raw not in message else message
    param = merged.get("param")
    about = _plain(param) if param else ""
    return Said(one_line(text), tuple(names), status, " ".join((*names, about, message, raw)))


def kind_of(said: Said, status: int | None) -> ErrorKind:
    """The class of a failure. status: the HTTP status, or None for an error within a stream."""
    status = status if status is not None and status >= 300 else said.status
    if _QUOTA.search(said.all):
        return ErrorKind.QUOTA_EXHAUSTED
    if _CONTEXT.search(said.all):
        return ErrorKind.CONTEXT_TOO_LONG
    if _REFUSED.search(said.all):
        return ErrorKind.CONTENT_REFUSED
    named = next((_BY_NAME[name] for name in said.names if name in _BY_NAME), None)
    # A status that says more than "bad request" or "server error" goes before a name: 529 with type api_error.
    if status is not None and status in _BY_STATUS:
        return named if status == 403 and named else _BY_STATUS[status]
    if named is not None:
        return named
    if status is None or status >= 500:
        return ErrorKind.SERVER_ERROR
    return ErrorKind.BAD_REQUEST


def http_error(status: int, body: bytes, *, retry_after_s: float | None = None) -> ModelError:
    """The error of a response whose status is not a success. body: its beginning is enough."""
    data = decoded(body)
    if data is None:
        text = body.decode("utf-8", "replace")
        said = Said(one_line(_without_tags(text)), all=text)
    else:
        said = read_error(data)
    kind = kind_of(said, status)
    message = f"status {status}: {said.message or 'no message'}"
    return ModelError(kind, message, status=status, retry_after_s=retry_after_s, points_at=pointed_at(said.all, kind))


def stream_error(data: Any, *, usage: Usage | None = None) -> ModelError:
    """The error of an error object within a response that began as a success."""
    said = read_error(data)
    kind = kind_of(said, None)
    name = f" ({one_line(said.names[0])})" if said.names else ""
    return ModelError(
        kind,
        f"the stream broke off with an error{name}: {said.message or 'no message'}",
        usage=usage or Usage(),
        points_at=pointed_at(said.all, kind),
    )


def one_line(text: str) -> str:
    """The text without control characters and line ends, cut to MESSAGE_CHARS."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: MESSAGE_CHARS * 8]).split())
    return line if len(line) <= MESSAGE_CHARS else line[: MESSAGE_CHARS - 3] + "..."


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else dumped(value)


def _without_tags(text: str) -> str:
    return re.sub(r"<[^<>]{0,2000}>", " ", re.sub(r"(?is)<(style|script)\b.*?</\1>", " ", text[:65536]))
