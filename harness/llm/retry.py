"""Trying a request again: which failures, after how long, how often.

Belongs here: the one retry policy of all providers.
Must not know: how a request is made, or what a failure looks like on the wire.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec
import trio

from harness.llm.model import AttemptDropped, Emit, ErrorKind, ModelError, ModelResponse, Usage

RETRIED: Final[Mapping[ErrorKind, int]] = {
    ErrorKind.AUTHENTICATION: 1,
    ErrorKind.NOT_FOUND: 1,
    ErrorKind.BAD_REQUEST: 1,
    ErrorKind.CONTEXT_TOO_LONG: 1,  # never unchanged: the harness makes the request smaller first
    ErrorKind.CONTENT_REFUSED: 1,
    ErrorKind.IMAGE_REFUSED: 1,  # never unchanged: the harness leaves them out first
    ErrorKind.REASONING_REFUSED: 1,
    ErrorKind.QUOTA_EXHAUSTED: 1,  # no wait that is worth waiting brings money
    ErrorKind.RATE_LIMITED: 5,
    ErrorKind.OVERLOADED: 5,
    ErrorKind.SERVER_ERROR: 5,
    ErrorKind.TIMED_OUT: 3,  # each costs the idle limit, two minutes by default
    ErrorKind.CONNECTION: 5,
    ErrorKind.PROTOCOL: 2,  # an odd response may be chance; two in a row are not
    ErrorKind.UNEXPECTED: 1,
}
"""Attempts that a kind of failure may take in all; 1 is never tried again. `RetryPolicy.attempts` bounds them too."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """Bounds of one turn's attempts.

    attempts: requests at most. total_s: seconds after the first failure in which another may begin; a long healthy
    stream that breaks does not use them up. first_s, most_s: bounds of the random wait: it is between zero and
    `first_s` after the first failure, and the upper bound doubles up to `most_s`. believe_s: the longest wait that a
    provider may ask for and get; if it asks for more, the turn fails and says until when.
    """

    attempts: int = 5
    total_s: float = 600.0
    first_s: float = 1.0
    most_s: float = 60.0
    believe_s: float = 120.0


def retry_after(headers: Mapping[str, str], *, wall: float) -> float | None:
    """Seconds that a response asks to wait, or None when it does not, or not in a form that means anything.

    headers: with lower-case names. wall: the present time in seconds since 1970, for the form with a date.
    Both forms of RFC 9110 10.2.3, and `retry-after-ms`, which some providers send beside it with more precision.
    """
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return ms / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - wall)


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None  # trio.sleep takes neither nan nor less than zero


class Retrying:
    """Makes attempts until one succeeds or the policy says stop. One object may serve many turns."""

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        *,
        chance: random.Random | None = None,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = trio.sleep,
    ) -> None:
        """chance, wall, sleep: for tests. wall: seconds since 1970."""
        self.policy = policy or RetryPolicy()
        self.wall = wall
        self._chance = chance or random.Random()
        self._sleep = sleep

    async def run(self, attempt: Callable[[], Awaitable[ModelResponse]], emit: Emit) -> ModelResponse:
        """The response of the first attempt that succeeds, with the number of attempts and what the failed ones cost.

        Emits AttemptDropped after each failure that is tried again, before the wait.
        Raises the last ModelError, with the same facts, when there is no further attempt. Cancelled: at once.
        """
        made, since, lost = 0, 0.0, Usage()
        while True:
            made += 1
            try:
                response = await attempt()
            except ModelError as error:
                lost += error.usage
                now = trio.current_time()
                since = now if made == 1 else since
                wait_s = self._wait_s(error, made, now - since)
                if wait_s is None:
                    raise self._final(error, made, lost) from error.__cause__
                emit(AttemptDropped(error.message, wait_s))
            else:
                return msgspec.structs.replace(response, attempts=made, lost_usage=lost)
            # Outside the handler: an interrupt during the wait is not to carry the failure as its context.
            await self._sleep(wait_s)

    def _wait_s(self, error: ModelError, made: int, elapsed_s: float) -> float | None:
        """Seconds until the next attempt, or None when there is none."""
        if made >= min(RETRIED[error.kind], self.policy.attempts):
            return None
        asked = error.retry_after_s
        if asked is not None and asked > self.policy.believe_s:
            return None
        bound = min(self.policy.most_s, self.policy.first_s * 2.0 ** (made - 1))
        wait_s = asked if asked is not None else self._chance.uniform(0, bound)
        return wait_s if elapsed_s + wait_s <= self.policy.total_s else None

    def _final(self, error: ModelError, made: int, lost: Usage) -> ModelError:
        message = error.message
        asked = error.retry_after_s
        if RETRIED[error.kind] > 1 and asked is not None and asked > self.policy.believe_s:
            message += f" (the provider asks to wait until {_moment(self.wall() + asked)})"
        elif made > 1:
            message += f" (after {made} attempts)"
        return ModelError(error.kind, message, status=error.status, retry_after_s=asked, attempts=made, usage=lost)


def _moment(wall: float) -> str:
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "a date that no calendar has"
