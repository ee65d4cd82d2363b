"""A process that holds a session open, for tests that stop, kill or talk to it.

Usage: holder.py STORE SESSION_ID WORKSPACE TTL_S [PROMPT]. Prints `open` once it is open, and at last what stopped it.
The model asks for two commands that append a line to a file, one at a time, and thinks for an hour after that.
"""

from __future__ import annotations

import sys

import trio

import harness
from operations import OperationManager
from store import SqliteStore, StoreError
from tests.harness.scripts import FOR_EVER, replies


async def main(path: str, session_id: str, workspace: str, ttl_s: str, prompt: str = "") -> None:
    async with SqliteStore.open(path, lease_ttl_s=float(ttl_s)) as store:
        try:
            async with harness.open_session(
                store,
                session_id=session_id,
                workspace=workspace,
                model=harness.Scripted(replies()),
                tools=[harness.bash()],
                manager=OperationManager(limits={"shell": 1}),
            ) as session:
                print("open", flush=True)
                if prompt:
                    result = await session.run(prompt, idempotency_key="the-run")
                    print(result.outcome.value, flush=True)
                await trio.sleep(FOR_EVER)
        except StoreError as error:
            print(type(error).__name__, error, flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
