"""The adapter of Anthropic's Messages API.

Belongs here: joining messages_wire and messages_response to HTTP; remembering what a model has refused.
Must not know: how either of them works, retries, sockets.
"""

from __future__ import annotations

import re
from typing import Any, Final

from harness.llm.client import HttpModel
from harness.llm.memo import Memo
from harness.llm.messages_response import MessagesAssembler
from harness.llm.messages_wire import MAX_TOKENS, Written, encode
from harness.llm.model import ModelError, ModelRequest
from harness.llm.stream import Assembler

_TOO_MANY: Final = re.compile(r"max_tokens: \d+ > (\d+)")


class MessagesModel(HttpModel):
    """A model behind the Messages API."""

    path = "/v1/messages"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._memo: Memo[Written | None] = Memo()
        self._max_tokens, self._adaptive = MAX_TOKENS, True

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(
            request,
            self.model,
            stream=self.stream,
            max_tokens=self._max_tokens,
            adaptive=self._adaptive,
            memo=self._memo,
        )

    def assembler(self) -> Assembler:
        return MessagesAssembler(self.row.name)

    def concede(self, error: ModelError) -> bool:
        # Older models write less at most than our default, and say how much.
        if (found := _TOO_MANY.search(error.message)) and int(found[1]) < self._max_tokens:
            self._max_tokens = int(found[1])
            return True
        if self._adaptive and re.search(r"adaptive|output_config|effort", error.message):
            self._adaptive = False
            return True
        return False
