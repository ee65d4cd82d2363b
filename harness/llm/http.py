"""One HTTP exchange with a provider over httpx.

Belongs here: the client, sending, time limits, transport failures as ModelErrors, keeping the key out of them.
Must not know: any protocol's bodies, or whether a failure is tried again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import httpx
import trio

from harness.llm.errors import http_error
from harness.llm.model import ErrorKind, ModelError, ModelResponse
from harness.llm.retry import retry_after
from harness.llm.stream import BodyReader, State

IDLE_S: Final = 120.0
"""The default idle limit: seconds without a byte after which a stream counts as dead."""
COMMENTS_FACTOR: Final = 5
"""Comments and pings keep a stream alive for this many idle limits, then it counts as dead as well."""
CONNECT_S: Final = 30.0
TAIL_S: Final = 5.0
"""How long details such as usage may take to follow when the response is whole but for them."""
DRAIN_S: Final = 0.1
"""How long the end of the body may take after the last event, so that the connection can be used again."""
MAX_ERROR_BYTES: Final = 256 * 1024


class Http:
    """The connections of one model object. Made when first used, inside the trio run; reused by later turns."""

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        secret: str = "",
        idle_s: float = IDLE_S,
        wall: Callable[[], float],
    ) -> None:
        """headers: sent with each request. secret: never shown in an error. idle_s: the idle limit in seconds."""
        if not (math.isfinite(idle_s) and idle_s > 0):
            raise ValueError(f"idle_s has to be a positive number of seconds, not {idle_s!r}.")
        self._headers = {**headers, "content-type": "application/json", "accept-encoding": "identity"}
        self._secret, self._idle_s, self._wall = secret, idle_s, wall
        self._client: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<Http idle_s={self._idle_s}>"

    async def aclose(self) -> None:
        """Close all connections. The next exchange opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def post(self, url: str, body: bytes, reader: BodyReader, *, whole: bool = False) -> ModelResponse:
        """Send `body` and read the response with `reader`.

        whole: the response is asked for in one piece, so that nothing is heard while the model works.
        Raises ModelError. Cancelled: the connection is closed at once.
        """
        try:
            return await self._exchange(url, body, reader, whole)
        except ModelError as error:
            if self._secret and self._secret in error.message:
                error.message = error.message.replace(self._secret, "***")
                error.args = (error.message,)
            raise

    async def _exchange(self, url: str, body: bytes, reader: BodyReader, whole: bool) -> ModelResponse:
        quiet_s = self._idle_s * (COMMENTS_FACTOR if whole else 1)
        failure: ModelError | None = None
        # The scope goes around the whole exchange, so that leaving it at any point closes the connection.
        with trio.CancelScope(deadline=trio.current_time() + quiet_s) as scope:
            try:
                async with self._open().stream("POST", url, content=body, headers=self._headers) as response:
                    if response.is_success:
                        await self._read(response, reader, scope, quiet_s)
                    else:
                        await self._read_failure(response, scope)
            except ModelError as error:
                failure = error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = transport_error(error)
        if scope.cancelled_caught and reader.state is State.OPEN:
            failure = ModelError(ErrorKind.TIMED_OUT, f"the provider was silent for {quiet_s:g} s")
        # Whole is whole, also when the connection broke afterwards or its last event lacked the blank line.
        if failure is not None and failure.status is None and reader.error is None:
            reader.end()
        if failure is not None and (reader.state is State.OPEN or reader.error is not None):
            raise failure
        return reader.result()

    async def _read(
        self, response: httpx.Response, reader: BodyReader, scope: trio.CancelScope, quiet_s: float
    ) -> None:
        """Feed the body to the reader, moving the deadline with each sign of life.

        The loop is never left early. When enough has been read the deadline comes near instead, and the cancellation
        passes through httpx's chain of generators, which otherwise would be left half-way for the garbage collector.
        """
        alive, life = trio.current_time(), reader.life
        scope.deadline = alive + quiet_s
        async for chunk in response.aiter_bytes():
            state_before = reader.state
            reader.feed(chunk)
            now = trio.current_time()
            if reader.life > life:
                alive, life = now, reader.life
            if reader.error is not None:
                scope.cancel()
            elif reader.state is State.OPEN:
                scope.deadline = min(now + quiet_s, alive + self._idle_s * COMMENTS_FACTOR)
            elif reader.state is not state_before:  # once, so that a server cannot put it off
                scope.deadline = now + (TAIL_S if reader.state is State.CLOSING else DRAIN_S)
        reader.end()

    async def _read_failure(self, response: httpx.Response, scope: trio.CancelScope) -> None:
        body = bytearray()
        with trio.CancelScope(deadline=min(scope.deadline, trio.current_time() + CONNECT_S)) as enough:
            try:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ERROR_BYTES:
                        enough.cancel()
            except httpx.HTTPError:
                pass  # what was read of the body has to do; the status is what matters
        wait_s = retry_after(response.headers, wall=self._wall())
        raise http_error(response.status_code, bytes(body[:MAX_ERROR_BYTES]), retry_after_s=wait_s)

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            # Our own deadline replaces httpx's limits on reading: it can tell comments from work.
            self._client = httpx.AsyncClient(timeout=httpx.Timeout(None, connect=CONNECT_S))
        return self._client


def transport_error(error: httpx.HTTPError | httpx.InvalidURL) -> ModelError:
    """The ModelError of a failure below HTTP, or of bytes that are not HTTP."""
    what = str(error) or type(error).__name__
    match error:
        case httpx.TimeoutException():
            return ModelError(ErrorKind.TIMED_OUT, f"no connection within {CONNECT_S:g} s")
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            return ModelError(ErrorKind.BAD_REQUEST, f"the base URL cannot be used: {what}")
        case httpx.ConnectError():
            return ModelError(ErrorKind.CONNECTION, f"cannot connect: {what}")
        case httpx.RemoteProtocolError():
            return ModelError(ErrorKind.CONNECTION, f"the connection broke: {what}")
        case httpx.TransportError():
            return ModelError(ErrorKind.CONNECTION, f"the connection was lost: {what}")
        case _:
            return ModelError(ErrorKind.PROTOCOL, f"the response cannot be read: {what}")
