"""A session in a process of its own, for tests that kill it. Usage: child.py STORE SESSION_ID PROMPT_FILE WORKSPACE

Opens the session (making it the first time), goes on with the run or starts it, and prints its outcome.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

import harness


async def main(store: str, session_id: str, prompt: str, workspace: str) -> None:
    async with harness.open_session(store, session_id=session_id, workspace=workspace) as session:
        print("open", flush=True)
        result = await session.run(await trio.Path(prompt).read_text(), idempotency_key="the-run")
        print(result.outcome.value, result.turns, flush=True)
        print(result.text, flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
    assert Path(sys.argv[1]).exists()
