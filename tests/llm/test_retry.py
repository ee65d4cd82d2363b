"""The retry policy as a table, on virtual time. Numbers in names are those of the fault list."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
import trio.testing

from harness.llm.model import AttemptDropped, Delta, ErrorKind, ModelError, ModelResponse, Text, Usage
from harness.llm.retry import RETRIED, Retrying, RetryPolicy, retry_after

WALL = datetime(2026, 10, 21, 7, 27, 57, tzinfo=UTC).timestamp()
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": DATE}, 3),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 -0000"}, 3),
        ({"retry-after": "Tue, 21 Oct 2025 07:28:00 GMT"}, 0),
        ({"retry-after-ms": "500"}, 0.5),
        ({"retry-after-ms": "500", "retry-after": "7"}, 0.5),
        ({"retry-after-ms": "nan", "retry-after": "7"}, 7),
        ({"retry-after": "1e9"}, 1e9),
        *(({"retry-after": odd}, None) for odd in ("nan", "inf", "-inf", "-5", "", " ", "soon", "Wed, 99 Foo", "1,5")),
        ({}, None),
    ],
)
def test_31_retry_after_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, wall=WALL) == seconds


def test_31_a_date_that_has_passed_means_no_wait() -> None:
    assert retry_after({"retry-after": DATE}, wall=WALL + 365 * 86400) == 0


class Attempts:
    """Fails as told, then succeeds. Keeps the moments at which it was called."""

    def __init__(self, *errors: ModelError, takes_s: float = 0.0) -> None:
        self.errors, self.takes_s = list(errors), takes_s
        self.moments: list[float] = []

    async def __call__(self) -> ModelResponse:
        self.moments.append(trio.current_time())
        await trio.sleep(self.takes_s)
        if self.errors:
            raise self.errors.pop(0)
        return ModelResponse((Text("done"),))

    @property
    def waits(self) -> list[float]:
        return [b - a for a, b in zip(self.moments, self.moments[1:], strict=False)]


def failure(kind: ErrorKind = ErrorKind.OVERLOADED, **facts: Any) -> ModelError:
    return ModelError(kind, "too busy", status=529, **facts)


def test_every_kind_has_its_row() -> None:
    assert set(RETRIED) == set(ErrorKind)


@pytest.mark.parametrize("kind", ErrorKind)
async def test_a_kind_is_tried_as_often_as_the_table_says(kind: ErrorKind, autojump_clock: object) -> None:
    attempts, deltas = Attempts(*(failure(kind) for _ in range(10))), list[Delta]()
    with pytest.raises(ModelError, match="too busy") as caught:
        await Retrying(chance=random.Random(1)).run(attempts, deltas.append)
    assert len(attempts.moments) == caught.value.attempts == RETRIED[kind]
    assert (caught.value.kind, caught.value.status) == (kind, 529)
    assert len(deltas) == RETRIED[kind] - 1


async def test_the_wait_grows_is_random_and_is_bounded(autojump_clock: object) -> None:
    policy = RetryPolicy(first_s=1, most_s=4)
    bounds, seen = [1, 2, 4, 4], set()
    for seed in range(20):
        attempts = Attempts(*(failure() for _ in bounds))
        await Retrying(policy, chance=random.Random(seed)).run(attempts, lambda _: None)
        assert all(0 <= wait <= bound for wait, bound in zip(attempts.waits, bounds, strict=True))
        seen.add(round(attempts.waits[3], 3))
    assert len(seen) > 15


async def test_live_readers_hear_of_a_dropped_attempt_before_the_wait(autojump_clock: object) -> None:
    attempts, heard = Attempts(failure(retry_after_s=7.0)), list[tuple[float, Delta]]()
    response = await Retrying().run(attempts, lambda delta: heard.append((trio.current_time(), delta)))
    assert heard == [(attempts.moments[0], AttemptDropped("too busy", 7.0))]
    assert (attempts.waits, response.attempts) == ([7.0], 2)


async def test_what_failed_attempts_cost_is_kept_apart(autojump_clock: object) -> None:
    attempts = Attempts(failure(usage=Usage(input=25)), failure(usage=Usage(input=25, output=3)))
    response = await Retrying().run(attempts, lambda _: None)
    assert (response.lost_usage, response.usage) == (Usage(input=50, output=3), Usage())


@pytest.mark.parametrize(
    ("asked", "until"),
    [(121.0, "2026-10-21 07:29:58 UTC"), (3600.0, "2026-10-21 08:27:57 UTC"), (1e9, "2058-"), (1e300, "no calendar")],
)
async def test_31_a_wait_that_is_too_long_ends_the_turn_and_says_until_when(
    asked: float, until: str, autojump_clock: object
) -> None:
    attempts, deltas = Attempts(failure(retry_after_s=asked)), list[Delta]()
    with pytest.raises(ModelError, match=f"too busy.*until.*{until}") as caught:
        await Retrying(wall=lambda: WALL).run(attempts, deltas.append)
    assert (caught.value.attempts, caught.value.retry_after_s, deltas) == (1, asked, [])
    assert trio.current_time() == attempts.moments[0]


async def test_total_time_is_bounded_from_the_first_failure(autojump_clock: object) -> None:
    attempts = Attempts(*(failure(retry_after_s=100) for _ in range(9)))
    policy = RetryPolicy(total_s=250)
    with pytest.raises(ModelError, match="after 3 attempts"):
        await Retrying(policy).run(attempts, lambda _: None)
    # A stream that was healthy for an hour before it broke has not used up the time.
    attempts = Attempts(failure(retry_after_s=100), takes_s=3600)
    assert (await Retrying(policy).run(attempts, lambda _: None)).attempts == 2


async def test_a_cancel_ends_the_wait_at_once(autojump_clock: object) -> None:
    attempts = Attempts(failure(retry_after_s=100))
    with trio.move_on_after(5) as scope:
        await Retrying().run(attempts, lambda _: None)
    assert scope.cancelled_caught
    assert trio.current_time() - attempts.moments[0] == 5


async def test_a_bug_is_not_tried_again() -> None:
    async def broken() -> ModelResponse:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Retrying().run(broken, lambda _: None)


async def test_the_sleep_is_injected() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await Retrying(sleep=sleep).run(Attempts(failure(retry_after_s=0.25)), lambda _: None)
    assert slept == [0.25]
    assert math.isfinite(RetryPolicy().total_s)
