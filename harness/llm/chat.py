"""The Chat Completions adapter: OpenAI's older protocol, and what most other servers speak.

Belongs here: joining chat_wire and chat_response to HTTP; remembering what a server has refused.
Must not know: how either of them works, retries, sockets.
"""

from __future__ import annotations

from typing import Any

import msgspec

from harness.llm.chat_response import ChatAssembler
from harness.llm.chat_wire import Encoding, Written, encode
from harness.llm.client import HttpModel
from harness.llm.memo import Memo
from harness.llm.model import ModelError, ModelRequest
from harness.llm.stream import Assembler


class ChatModel(HttpModel):
    """A model behind Chat Completions."""

    path = "/chat/completions"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._memo: Memo[Written] = Memo()
        self._encoding = Encoding(self.row, self.model, self.stream, self.row.stream_usage)

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(request, self._encoding, self._memo)

    def assembler(self) -> Assembler:
        return ChatAssembler(self.row.name, back=self.row.reasoning_back)

    def concede(self, error: ModelError) -> bool:
        message, encoding = error.message, self._encoding
        if encoding.stream_usage and ("stream_options" in message or "include_usage" in message):
            self._encoding = msgspec.structs.replace(encoding, stream_usage=False)
        elif not encoding.bridge and "'user' after role 'tool'" in message:
            # Mistral's models behind another server, which a row cannot know.
            self._encoding = msgspec.structs.replace(encoding, bridge=True)
        else:
            return False
        return True
