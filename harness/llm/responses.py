"""The adapter of OpenAI's Responses API.

Belongs here: joining responses_wire and responses_response to HTTP; remembering what a model has refused.
Must not know: how either of them works, retries, sockets.
"""

from __future__ import annotations

from typing import Any

from harness.llm.client import HttpModel
from harness.llm.memo import Memo
from harness.llm.model import ModelError, ModelRequest
from harness.llm.responses_response import ResponsesAssembler
from harness.llm.responses_wire import Written, encode
from harness.llm.stream import Assembler


class ResponsesModel(HttpModel):
    """A model behind the Responses API."""

    path = "/responses"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._memo: Memo[Written | None] = Memo()
        self._encrypted = True

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(request, self.model, stream=self.stream, encrypted=self._encrypted, memo=self._memo)

    def assembler(self) -> Assembler:
        return ResponsesAssembler(self.row.name)

    def concede(self, error: ModelError) -> bool:
        # Models that do not reason refuse to be asked for encrypted reasoning.
        if not self._encrypted or "encrypted" not in error.message.lower():
            return False
        self._encrypted = False
        return True
