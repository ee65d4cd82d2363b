"""A process of its own for tests: `python -m tests.store.child JOB PATH SESSION [TTL]`. Speaks lines on its pipes."""

import sys

import trio

from store import SessionBusy, SqliteStore, StaleWriter
from store.testing import event, events


async def append_for_ever(store, session_id):
    """Append until killed, reporting each sequence number once it is acknowledged."""
    lease = await store.acquire(session_id, "a child")
    seq = (await store.session(session_id)).length
    while True:
        seq = (await store.append(lease, events(2, first=seq + 1), expected_seq=seq))[-1].seq
        print(seq)


async def append_when_told(store, session_id):
    """Hold the lease; for each line read, append one event and say what came of it."""
    try:
        lease = await store.acquire(session_id, "a child")
    except SessionBusy as error:
        print(f"busy: {error}")
        return
    print("holding")
    while await trio.to_thread.run_sync(sys.stdin.readline):
        seq = (await store.session(session_id)).length
        try:
            await store.append(lease, [event(seq + 1)], expected_seq=seq)
            print(f"appended {seq + 1}")
        except StaleWriter as error:
            print(f"stale: {error} valid for {lease.valid_for_s:.0f}")


async def submit_when_told(store, session_id):
    """For each line read, add it to the inbox."""
    print("ready")
    while text := await trio.to_thread.run_sync(sys.stdin.readline):
        await store.submit(session_id, text.strip(), b'"hello"', received_at="")
        print("submitted")


async def write_many(store, prefix):
    """Create sessions and append to them at once, then say so."""

    async def work(name):
        await store.create(name, events(1), created_at="", title="")
        lease = await store.acquire(name)
        for seq in range(1, 11):
            await store.append(lease, [event(seq + 1)], expected_seq=seq)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(work, f"{prefix}{number}")
    print("done")


JOBS = {job.__name__: job for job in (append_for_ever, append_when_told, submit_when_told, write_many)}


async def main(job, path, session_id, ttl_s="10"):
    async with SqliteStore.open(path, lease_ttl_s=float(ttl_s)) as store:
        await JOBS[job](store, session_id)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
