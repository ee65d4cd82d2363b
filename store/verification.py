"""Finding every damaged place of a log, where reading stops at the first.  No I/O of its own.

Belongs here: plans (see `store.queries`) that go on past damage and list it.
Must not know: connections, threads, repair.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from store import chain, queries
from store.queries import Lineage, Plan, Segment
from store.records import CorruptLog, Damage, StoreError


def session(session_id: str) -> Plan[list[Damage]]:
    """Every damaged place of one session, its ancestors' events included. Raises UnknownSession, UnsupportedVersion."""
    found: list[Damage] = []
    with _noted(found, session_id):
        tree = yield from queries.lineage(session_id)
        with _noted(found, session_id):
            yield from _events(tree, found)
        with _noted(found, session_id):
            yield from queries.inputs(session_id, 0)
    return found


@contextmanager
def _noted(found: list[Damage], session_id: str) -> Iterator[None]:
    """Add the damage that ends this part of the search to `found`, and go on behind it."""
    try:
        yield
    except CorruptLog as error:
        found.append(Damage(session_id, error.seq, error.problem))
    except sqlite3.OperationalError:
        raise  # the disk or another process is in the way, which says nothing about the log
    except sqlite3.DatabaseError as error:
        found.append(Damage(session_id, None, f"the database file is damaged ({error})"))


def _events(tree: Lineage, found: list[Damage]) -> Plan[None]:
    """Check all events of a log, adding to `found`."""
    session_id = tree.info.id
    tips = {chain.seed(tree.root)}
    for part in tree.segments:
        tips = yield from _segment(tree, part, tips, found)
    if tips and tree.info.last_hash not in tips:
        found.append(Damage(session_id, tree.info.length or None, "the log does not end as its session's row says"))
    beyond = yield (
        "SELECT seq FROM events WHERE session_id = ? AND NOT seq BETWEEN ? AND ? LIMIT 10",
        (session_id, tree.segments[-1].first, tree.info.length),
    )
    found += [Damage(session_id, row[0] if type(row[0]) is int else None, "it is outside its log") for row in beyond]


def _segment(tree: Lineage, part: Segment, tips: set[bytes], found: list[Damage]) -> Plan[set[bytes]]:
    """Check one segment, adding to `found`. `tips` and the result: hashes that the next record may continue from."""
    seq = part.first
    while seq <= part.last:
        try:
            rows = yield from queries.page(part.owner, seq - 1, part.last)
        except chain.Altered as altered:
            raise CorruptLog(tree.info.id, seq, f"{altered.problem}, so what follows was not checked") from None
        for row in rows:
            if type(row[0]) is int and row[0] > seq:
                found.append(Damage(tree.info.id, seq, _missing(row[0] - seq)))
                tips = set()
                seq = row[0]
            problem, tips = _check(tips, seq, row)
            if problem:
                found.append(Damage(tree.info.id, seq, problem))
            seq += 1
        if not rows:
            found.append(Damage(tree.info.id, seq, _missing(part.last - seq + 1)))
            return set()
    return tips


def _missing(count: int) -> str:
    return "it is missing" if count == 1 else f"{count} events from here on are missing"


def _check(tips: set[bytes], seq: int, row: queries.Row) -> tuple[str, set[bytes]]:
    """The problem of one row, "" when healthy, and the hashes that its successor may continue from.

    An altered row has two: the hash it was stored with, and the one its content has now. With both, a successor that is
    healthy is not blamed for its neighbour.
    """
    _, kind, version, recorded_at, data, stored = row
    try:
        framed = chain.frame(kind, version, recorded_at, data)
        kind.decode(), recorded_at.decode()
    except (TypeError, struct.error, AttributeError, UnicodeError):
        return "it cannot be read", {stored} if type(stored) is bytes else set()
    # After a gap there is nothing to continue from, so the record itself is all there is to trust.
    possible = {chain.link(previous, seq, framed) for previous in tips}
    if not tips or stored in possible:
        return "", {stored}
    if type(stored) is bytes:
        possible.add(stored)
    return "it was altered or moved (its hash does not match)", possible


def store() -> Plan[list[Damage]]:
    """Every damaged place of a whole store: the file, each session, events without a session, and the blobs."""
    found: list[Damage] = []
    for search in (_file, _sessions, _orphans, _blobs):
        with _noted(found, ""):
            yield from search(found)
    return found


def _file(found: list[Damage]) -> Plan[None]:
    checked = yield "PRAGMA quick_check(10)", ()
    for row in checked:
        lines = [line for line in _words(row[0]).splitlines() if line != "ok" and not line.startswith("***")]
        found += [Damage("", None, f"the database file: {line}") for line in lines]


def _sessions(found: list[Damage]) -> Plan[None]:
    ids = yield "SELECT id FROM sessions ORDER BY number", ()
    for (raw,) in ids:
        session_id = _words(raw)
        try:
            found += yield from _own(session_id)
        except StoreError as error:
            found.append(Damage(session_id, None, str(error)))


def _own(session_id: str) -> Plan[list[Damage]]:
    """One session's damage for a report on all: an ancestor's is listed with the ancestor, once."""
    found = yield from session(session_id)
    own: list[Damage] = []
    with _noted(own, session_id):
        tree = yield from queries.lineage(session_id)
        own = [damage for damage in found if damage.seq is None or damage.seq >= tree.segments[-1].first]
    return own


def _orphans(found: list[Damage]) -> Plan[None]:
    orphans = yield (
        "SELECT session_id, min(seq), count(*) FROM events WHERE session_id NOT IN (SELECT id FROM sessions)"
        " GROUP BY session_id",
        (),
    )
    found += [Damage(_words(row[0]), row[1], f"{row[2]} events belong to no session") for row in orphans]


def _blobs(found: list[Damage]) -> Plan[None]:
    digests = yield "SELECT digest FROM blobs", ()
    for (raw,) in digests:
        with _noted(found, ""):
            yield from queries.blob(_words(raw))


def _words(raw: object) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
