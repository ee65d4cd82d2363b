"""Chat Completions servers on loopback, each in a process of its own; and the one that answers at once.

`python -m bench.loopback` prints its port. The path says what it answers: `/<conversation>/<calls>/v1/chat/completions`
gets a call of the tool `step` so many times, and a text from then on. It counts requests by conversation and never
looks into a history, so that its own cost does not grow with it. Streams when it is asked to.

Belongs here: HTTP/1.1 with connections that stay, and a message in both forms.
Must not know: who asks.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
RESULT = "The output of a step: a line or two of words, as a quick command prints them. " * 3
"""What every contender's tool returns."""


Message = dict[str, Any]


def called(calls: list[tuple[str, str]], text: str | None = None, *, turn: int) -> Message:
    """A message that calls tools, each by name and arguments. turn: makes their ids unique."""
    made = [
        {"id": f"call_{turn}_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": text, "tool_calls": made}


def said(text: str) -> Message:
    """A message that is an answer."""
    return {"role": "assistant", "content": text}


def _ends(message: Message) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _body(message: Message) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": _ends(message)}
    head = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": USAGE}).encode()


def _events(message: Message) -> bytes:
    delta = {**message}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{**call, "index": index} for index, call in enumerate(delta["tool_calls"])]
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    end = {"index": 0, "delta": {}, "finish_reason": _ends(message)}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [end]},
        {**head, "choices": [], "usage": USAGE},
    ]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


class Server(ABC):
    """A server; `answer` says what."""

    @abstractmethod
    async def answer(self, path: str, body: bytes) -> Message:
        """The message that answers a request."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                path = head[0].split(" ")[1]
                length = next(int(line.split(":")[1]) for line in head if line.lower().startswith("content-length:"))
                body = await reader.readexactly(length)
                stream = b'"stream":true' in body.replace(b'": ', b'":')
                message = await self.answer(path, body)
                answer = _events(message) if stream else _body(message)
                kind = "text/event-stream" if stream else "application/json"
                line = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(answer)}\r\n\r\n"
                writer.write(line.encode() + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run(self) -> None:
        """Print the port, and serve until stopped."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        print(server.sockets[0].getsockname()[1], flush=True)
        async with server:
            await server.serve_forever()


class _AtOnce(Server):
    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    async def answer(self, path: str, body: bytes) -> Message:
        _, conversation, calls, *_ = path.split("/")
        self.requests[conversation] += 1
        number = self.requests[conversation]
        if number <= int(calls):
            return called([("step", json.dumps({"number": number}))], turn=number)
        return said("All steps are done.")


@contextmanager
def loopback(module: str = "bench.loopback") -> Iterator[str]:
    """The address of a server, the one that this module runs, that lives as long as the block."""
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(_AtOnce().run())
