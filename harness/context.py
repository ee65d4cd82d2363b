"""The context builder: a state to the request of its next turn.  Pure.

Belongs here: what a request is made of, its digest, and the report of what it leaves out.
Must not know: any provider, how the request is sent, or whether it should be.

The request is the fixed items plus what is new since the last turn, so its cost grows with what is new.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from harness.compaction import summary_request
from harness.events import Reason, TurnStarted
from harness.llm.model import Item, ModelRequest, ToolSchema
from harness.state import SessionState, chain, segment
from harness.transcript import Omission, images, render, size

_schemas: Final = msgspec.json.Decoder(tuple[ToolSchema, ...]).decode
"""For schemas of the request's own: a model object may edit what it is given, and the state's are what is sent next."""


class Built(msgspec.Struct, frozen=True):
    """A request and what is said about it in turn_started.

    new_items: a short digest for each item of `new`, which no request had before. images: digests of the blobs that the
    request needs. omissions: what is not shown in full.
    """

    request: ModelRequest
    digest: str
    new_items: tuple[str, ...]
    new: tuple[Item, ...]
    chars: int
    images: tuple[str, ...]
    omissions: tuple[Omission, ...]


def build(state: SessionState, *, limit: str = "") -> Built:
    """The request of the next turn. With `limit`, the last one: tools stay declared but none may be called."""
    new, omissions = render(segment(state, limit=limit), state.config.policy)
    config = state.config
    tools = msgspec.json.encode([tool.schema for tool in config.tools])
    head = msgspec.json.encode([config.instructions, msgspec.Raw(tools), config.settings, not limit])
    digest, chars = state.sent.digest, state.sent.chars + len(head)
    for (
        item
    ) in new:  # not `Sent.extended`: that would lend the state's own buffer to a request that may never be recorded
        digest = chain(digest, item)
        chars += size(item)
    items = state.sent.items[:]  # the one thing in here that grows with the history: a copy of references
    items += new
    request = ModelRequest(
        instructions=config.instructions,
        tools=_schemas(tools),
        items=items,
        settings=config.settings,
        allow_tools=not limit,
    )
    return Built(
        request=request,
        digest=hashlib.blake2b(head + digest, digest_size=16).hexdigest(),
        new_items=tuple(item_digest(item) for item in new),
        new=tuple(new),
        chars=chars,
        images=tuple(image.digest for image in (*state.sent.images, *images(new))),
        omissions=tuple(omissions),
    )


def rebuilt(state: SessionState, event: TurnStarted) -> Built:
    """The request that `event` announced, as it would be made from the state before it today."""
    if event.reason is not Reason.COMPACTION:
        return build(state, limit=event.limit)
    asked = summary_request(state, event.covers)
    return Built(asked.request, asked.digest, (), (), asked.chars, (), ())


def item_digest(item: Item) -> str:
    """A short name for an item's content: enough to say which one differs, not to prove that none does."""
    return hashlib.blake2b(msgspec.json.encode(item), digest_size=6).hexdigest()
