"""`turnlog replay`: a past state, or the digest check.

Belongs here: how a state reads.
Must not know: how it is computed.
"""

from __future__ import annotations

import click
import trio

import harness
from harness.cli import words
from harness.cli.faults import FAILED, OK
from harness.cli.options import example, json_option, out, session_argument
from harness.cli.places import Place, open_at, place_of, store_option
from harness.cli.tables import aligned
from harness.cli.views import print_json_line
from harness.replaying import Replay, plain
from harness.state import SessionState


@example("turnlog replay 9m38 --to 12", "turnlog replay 9m38 --check")
@click.command(name="replay")
@session_argument
@click.option("--to", metavar="SEQ", type=int, help="The event after which to look. Default: the last.")
@click.option("--check", is_flag=True, help="Build every request again and compare it with what was sent.")
@json_option
@store_option
def command(session: str, to: int | None, check: bool, as_json: bool, store: str | None) -> int:
    """Show the state after an event, from the log alone.

    With --check: would today's code send exactly what was sent? Exit status 1 when it would not.
    """
    if check and to is not None:
        raise click.UsageError("--check looks at the whole log; leave --to out")
    replay = trio.run(_read, place_of(store), session)
    if check:
        return _check(replay, as_json=as_json)
    state = replay.state_at(len(replay.events) if to is None else to)
    if as_json:
        print_json_line(plain(state))
        return OK
    for line in aligned(_rows(replay, state)):
        out(line)
    return OK


async def _read(place: Place, given: str) -> Replay:
    async with open_at(place, given) as (store, session_id):
        return await harness.replay(store, session_id)


def _check(replay: Replay, *, as_json: bool) -> int:
    found = replay.check()
    if as_json:
        print_json_line(
            [{"turn_id": each.turn_id, "seq": each.seq, "item": each.item, "what": each.what} for each in found]
        )
    elif found:
        for each in found:
            out(f"{each.turn_id} (event {each.seq}): {each.what}")
    else:
        turns = sum(1 for _ in replay.requests())
        out(f"{words.counted(turns, 'turn')}: today's code would send exactly the same.")
    return FAILED if found else OK


def _rows(replay: Replay, state: SessionState) -> list[tuple[str, str]]:
    last = replay.events[state.seq - 1]
    run = state.run
    rows = [
        ("event", f"{state.seq} of {len(replay.events)}: {last.kind} {words.summary(last.event)}".rstrip()),
        ("recorded", last.recorded_at),
        ("model", state.config.model),
        ("workspace", state.config.workspace),
        ("turn", f"{state.turn.turn_id} in flight ({state.turn.reason.value})" if state.turn else "none in flight"),
        ("run", f"{run.run_id}, {words.counted(run.turns, 'turn')}" if run else "none"),
        ("so far", f"{words.counted(state.turns, 'turn')}, {words.counted(len(state.runs), 'finished run')}"),
        ("tokens", words.usage_text(state.usage) or "-"),
        ("context", f"{words.counted(len(state.sent.items), 'item')}, {state.sent.chars:,} characters"),
        ("undelivered", ", ".join(f"{news.kind.value} (event {news.seq})" for news in state.undelivered) or "nothing"),
    ]
    rows += [("pending", f"{call.call_id} {call.tool} {words.one_line(call.arguments)}") for call in state.pending]
    return rows
