"""A model behind HTTP: what the three protocols share.

Belongs here: one turn as attempts, and giving in to servers that refuse something we only prefer.
Must not know: bodies of any protocol.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from harness.llm.http import IDLE_S, Http
from harness.llm.jsontext import encoded
from harness.llm.model import Emit, ErrorKind, ModelError, ModelRequest, ModelResponse
from harness.llm.providers import Provider
from harness.llm.refused import holds
from harness.llm.retry import Retrying, RetryPolicy
from harness.llm.stream import Assembler, BodyReader

LEFT_OUT: Final[Mapping[ErrorKind, str]] = {
    ErrorKind.IMAGE_REFUSED: "the images so far are left out from now on",
    ErrorKind.REASONING_REFUSED: "the reasoning so far is left out from now on",
}

MAX_CONCESSIONS = 3
"""How many things a server may refuse in one turn, each followed by a request without it."""


class HttpModel:
    """Base of the three adapters. name: as the user gave it. row: the provider. model: the provider's name for it."""

    path: str

    def __init__(
        self,
        name: str,
        row: Provider,
        model: str,
        *,
        base_url: str,
        headers: Mapping[str, str],
        secret: str = "",
        stream: bool = True,
        idle_s: float | None = None,
        retry: RetryPolicy | None = None,
        chance: random.Random | None = None,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = trio.sleep,
    ) -> None:
        """headers: with the key. secret: the key alone, so that it can be kept out of errors. The rest is for tests."""
        self.name, self.row, self.model = name, row, model
        self.stream = stream
        self.url = base_url.rstrip("/") + self.path
        self._http = Http(headers, secret=secret, idle_s=idle_s or row.idle_s or IDLE_S, wall=wall)
        self._retrying = Retrying(retry, chance=chance, wall=wall, sleep=sleep)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self.url!r}>"

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        """Answer one request. Raises ModelError. Cancelled: the connection is closed at once."""

        async def attempt() -> ModelResponse:
            return await self._attempt(request, emit)

        return await self._retrying.run(attempt, emit)

    async def aclose(self) -> None:
        """Close what is open. The model can still be used."""
        await self._http.aclose()

    async def _attempt(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """One attempt, and again at once when the server refuses something that can be left out."""
        for _ in range(MAX_CONCESSIONS):
            try:
                return await self._once(request, emit)
            except ModelError as error:
                if error.kind is not ErrorKind.BAD_REQUEST or error.status is None or not self.concede(error):
                    raise
        return await self._once(request, emit)

    async def _once(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        # Encoded for each attempt: images in base64 are large, and a waiting retry is not to hold them.
        body = encoded(self.encode(request))
        reader = BodyReader(self.assembler(), emit)
        try:
            return await self._http.post(self.url, body, reader, whole=not self.stream)
        except ModelError as error:
            kind = error.points_at
            if kind is not None and holds(request.items, kind, self.row.name):
                error.kind, error.message = kind, f"{error.message} ({LEFT_OUT[kind]})"
                error.args = (error.message,)
            raise

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        """The body of a request."""
        raise NotImplementedError

    def assembler(self) -> Assembler:
        """What reads one response."""
        raise NotImplementedError

    def concede(self, error: ModelError) -> bool:
        """Leave out what the server refuses from now on, and say whether there was anything to leave out."""
        return False
