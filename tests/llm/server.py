"""A small HTTP server on loopback, under trio, that can misbehave in every way a provider does.

Belongs here: connections, and the ways to answer. Must not know: any provider's protocol.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import trio

EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Request:
    """One request as it came. connection: counts connections from 1, so that a test can see whether one was reused."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Gone(Exception):
    """The client has closed the connection."""


class Reply:
    """What a handler answers with."""

    def __init__(self, stream: trio.SocketStream, machine: h11.Connection) -> None:
        self._stream, self._machine = stream, machine

    async def whole(
        self,
        status: int,
        body: bytes | str | dict[str, Any] = b"",
        *,
        content_type: str = "application/json",
        **headers: str,
    ) -> None:
        """A response with a length. headers: with underscores for hyphens."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
        await self.begin(status, content_type=content_type, content_length=str(len(data)), **headers)
        await self.send(data)
        await self.end()

    async def begin(self, status: int = 200, *, content_type: str = EVENT_STREAM, **headers: str) -> None:
        """Only the head."""
        pairs = [("content-type", content_type), *((name.replace("_", "-"), value) for name, value in headers.items())]
        await self._put(h11.Response(status_code=status, headers=pairs))

    async def send(self, data: bytes) -> None:
        """A piece of the body."""
        if data:
            await self._put(h11.Data(data=data))

    async def drip(self, data: bytes, size: int = 1) -> None:
        """The bytes in pieces of `size`, each in a packet of its own as far as anyone can tell."""
        for start in range(0, len(data), size):
            await self.send(data[start : start + size])
            await trio.lowlevel.checkpoint()

    async def stream(self, data: bytes) -> None:
        """A whole event stream."""
        await self.begin()
        await self.send(data)
        await self.end()

    async def end(self) -> None:
        await self._put(h11.EndOfMessage())

    async def reset(self) -> None:
        """Close with a reset, in the middle of whatever was sent."""
        self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self._stream.aclose()
        raise Gone

    async def close(self) -> None:
        """Close without the end that HTTP wants."""
        await self._stream.aclose()
        raise Gone

    async def wait_closed(self) -> None:
        """Until the client closes the connection."""
        try:
            while await self._stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass

    async def _put(self, event: Any) -> None:
        data = self._machine.send(event)
        if data:
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise Gone from None


Handler = Callable[[Request, Reply], Awaitable[None]]


@dataclass
class Server:
    """A running server. requests: everything that came, in order. hung_up: how many connections clients have closed."""

    url: str
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    hung_up: int = 0

    @property
    def bodies(self) -> list[Any]:
        return [request.json for request in self.requests]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Server]:
    """A server for the block. Handlers that still run at its end are cancelled."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = Server(f"http://127.0.0.1:{listener.socket.getsockname()[1]}")

    async def connection(stream: trio.SocketStream) -> None:
        server.connections += 1
        number = server.connections
        machine = h11.Connection(h11.SERVER)
        async with stream:
            try:
                while (request := await _receive(stream, machine, number)) is not None:
                    server.requests.append(request)
                    await handler(request, Reply(stream, machine))
                    if machine.our_state is not h11.DONE:
                        return
                    machine.start_next_cycle()
                server.hung_up += 1
            except Gone:
                server.hung_up += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, connection, [listener])
        yield server
        nursery.cancel_scope.cancel()


async def _receive(stream: trio.SocketStream, machine: h11.Connection, number: int) -> Request | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = machine.next_event()
        if event is h11.NEED_DATA:
            try:
                machine.receive_data(await stream.receive_some())
            except trio.BrokenResourceError:
                return None
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Request(head.method.decode(), head.target.decode(), headers, body, number)
        else:
            return None


def in_turn(*handlers: Handler) -> Handler:
    """A handler that gives each request to the next of these, and the last one's to all that follow."""
    waiting = list(handlers)

    async def handle(request: Request, reply: Reply) -> None:
        await (waiting.pop(0) if len(waiting) > 1 else waiting[0])(request, reply)

    return handle


def streams(data: bytes) -> Handler:
    """A handler that sends this event stream."""

    async def handle(_request: Request, reply: Reply) -> None:
        await reply.stream(data)

    return handle


def answers(status: int, body: bytes | str | dict[str, Any] = b"", **headers: str) -> Handler:
    """A handler that sends this whole response."""

    async def handle(_request: Request, reply: Reply) -> None:
        await reply.whole(status, body, **headers)

    return handle
