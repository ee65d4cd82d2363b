"""`turnlog turns`: what each turn was for and what it cost.

Belongs here: the table and its totals.
Must not know: how they are counted; that is in harness/metrics.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click
import msgspec
import trio

from harness import events as ev
from harness.cli import words
from harness.cli.options import example, json_option, out, session_argument
from harness.cli.places import Place, open_at, place_of, store_option
from harness.cli.tables import aligned
from harness.cli.views import print_json_line
from harness.history import read_events
from harness.llm.model import Usage
from harness.metrics import Metrics, TurnRow, metrics, turn_rows

HEAD = ("turn", "called for", "ended", "calls", "in", "cached", "out", "seconds", "")


@example("turnlog turns 9m38")
@click.command(name="turns")
@session_argument
@json_option
@store_option
def command(session: str, as_json: bool, store: str | None) -> None:
    """One line a turn: why it was called, the calls it made, tokens in, cached and out, seconds. Then the totals.

    A figure that nobody knows is "-". Overhead is a turn that made no call and told nobody anything: it was not the
    last of its run, and it said nothing, or only something while calls were pending although no person had asked.
    """
    log = trio.run(_read, place_of(store), session)
    rows, totals = turn_rows(log), metrics(log)
    if as_json:
        print_json_line({"turns": msgspec.to_builtins(rows), "totals": msgspec.to_builtins(totals)})
        return
    for line in aligned([HEAD, *map(_row, rows), _total(rows, totals)], right=(4, 5, 6, 7)):
        out(line)
    out("")
    out(
        f"{words.counted(totals.turns, 'turn')}, {totals.overhead_turns:,} of them overhead; a loop that makes one "
        f"call a turn and waits for it would use {totals.blocking_turns:,}."
    )


async def _read(place: Place, given: str) -> list[ev.Logged]:
    async with open_at(place, given) as (store, session_id):
        return await read_events(store, session_id)


def _row(row: TurnRow) -> tuple[str, ...]:
    tools = Counter(row.calls)
    calls = ", ".join(name if count == 1 else f"{count} {name}" for name, count in tools.items()) or "none"
    tries = f" after {row.attempts} attempts" if row.attempts > 1 else ""
    return (
        row.turn_id,
        row.reason.value,
        row.ended.replace("_", " ") + tries,
        calls,
        *_tokens(row.usage),
        "-" if row.seconds is None else f"{row.seconds:.2f}",
        "overhead" if row.overhead else "",
    )


def _total(rows: Sequence[TurnRow], totals: Metrics) -> tuple[str, ...]:
    model_s = sum(row.seconds or 0.0 for row in rows)
    return ("total", "", "", words.counted(totals.calls, "call"), *_tokens(totals.usage), f"{model_s:.2f}", "")


def _tokens(usage: Usage) -> tuple[str, str, str]:
    return words.tokens(usage.input), words.tokens(usage.cached), words.tokens(usage.output)
