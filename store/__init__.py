"""A versioned, append-only log of many sessions, with branches, leases and a durable inbox.

Belongs here: the public names of the package. `store.asyncio_reader`, `store.maintenance` and `store.testing` are
imported by whoever needs them.
Must not know: what a record means. Nothing here imports `operations` or `harness`.
"""

from store.memory import MemoryStore
from store.records import (
    FORMAT_VERSION,
    LEASE_TTL_S,
    CallerError,
    CorruptBlob,
    CorruptLog,
    Damage,
    Lease,
    NewRecord,
    Record,
    SequenceConflict,
    SessionBusy,
    SessionCopy,
    SessionExists,
    SessionInfo,
    StaleWriter,
    Store,
    StoredInput,
    StoreError,
    StoreUnavailable,
    UnknownSequence,
    UnknownSession,
    UnsupportedVersion,
)
from store.sqlite import SqliteStore

__all__ = [
    "FORMAT_VERSION",
    "LEASE_TTL_S",
    "CallerError",
    "CorruptBlob",
    "CorruptLog",
    "Damage",
    "Lease",
    "MemoryStore",
    "NewRecord",
    "Record",
    "SequenceConflict",
    "SessionBusy",
    "SessionCopy",
    "SessionExists",
    "SessionInfo",
    "SqliteStore",
    "StaleWriter",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "StoredInput",
    "UnknownSequence",
    "UnknownSession",
    "UnsupportedVersion",
]
