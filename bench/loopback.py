"""A Chat Completions server on loopback that answers at once, in a process of its own.

`python -m bench.loopback` prints its port. The path says what it answers: `/<conversation>/<calls>/v1/chat/completions`
gets a call of the tool `step` so many times, and a text from then on. It counts requests by conversation and never
looks into a history, so that its own cost does not grow with it. Streams when it is asked to.

Belongs here: the two answers in both forms, over HTTP/1.1 with connections that stay.
Must not know: who asks.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
RESULT = "The output of a step: a line or two of words, as a quick command prints them. " * 3
"""What every contender's tool returns."""


def _message(number: int, is_call: bool) -> dict[str, Any]:
    if not is_call:
        return {"role": "assistant", "content": "All steps are done."}
    function = {"name": "step", "arguments": json.dumps({"number": number})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _body(number: int, is_call: bool) -> bytes:
    choice = {"index": 0, "message": _message(number, is_call), "finish_reason": "tool_calls" if is_call else "stop"}
    head = {"id": f"c-{number}", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": USAGE}).encode()


def _events(number: int, is_call: bool) -> bytes:
    delta = _message(number, is_call)
    for index, call in enumerate(delta.get("tool_calls", ())):
        call["index"] = index
    head = {"id": f"c-{number}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if is_call else "stop"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [end]},
        {**head, "choices": [], "usage": USAGE},
    ]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


class _Server:
    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                path = head[0].split(" ")[1]
                length = next(int(line.split(":")[1]) for line in head if line.lower().startswith("content-length:"))
                body = await reader.readexactly(length)
                writer.write(self._answer(path, b'"stream":true' in body.replace(b'": ', b'":')[:200_000_000]))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, path: str, stream: bool) -> bytes:
        _, conversation, calls, *_ = path.split("/")
        self.requests[conversation] += 1
        number = self.requests[conversation]
        body = (_events if stream else _body)(number, number <= int(calls))
        kind = "text/event-stream" if stream else "application/json"
        return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def _main() -> None:
    server = await asyncio.start_server(_Server().serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


@contextmanager
def loopback() -> Iterator[str]:
    """The address of a server that lives as long as the block."""
    command = [sys.executable, "-m", "bench.loopback"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(_main())
