"""Parts of a history that a provider refuses to read: images, and reasoning it is sent back.  Pure.

Belongs here: telling from an error which kind of part it points at, and a history without that kind.
Must not know: how an error arrived, or when a turn is made again.

One such part would fail every later turn, since every request sends the whole history. So the failed turn is recorded
with the kind that was refused, and whoever folds the log takes the parts out: the same log gives the same requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from harness.llm.model import (
    AssistantItem,
    ErrorKind,
    Image,
    Item,
    OutputItem,
    Part,
    Reasoning,
    Text,
    ToolCall,
)

NO_IMAGE: Final = "(an image stood here; the provider refused it, and it is left out)"
"""What the model reads in its place."""

MARK: Final = " (refused)"
"""Added to the provider of reasoning that it refused, which is then nobody's to be sent back to."""

_UNREADABLE: Final = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.NOT_FOUND})

_NO_VISION: Final = re.compile(
    r"image inputs?|input images?|images? (?:is|are) (?:not|only) supported|support (?:image|vision)|multi-?modal"
    r"|(?:invalid|empty|unsupported|base64)_image|image_(?:too|parse|file|content)_|\bimage_url",
    re.IGNORECASE,
)
"""Says so, whatever its status: some servers answer with 404, 500 or a failed stream."""

_IMAGE: Final = re.compile(r"\bimages?\b|image_url|input_image|image_format|media_type|\bvision\b", re.IGNORECASE)

_REASONING: Final = re.compile(
    r"invalid_encrypted_content|encrypted[ _]content|of type '?reasoning|reasoning item|\bitem\b.{0,40}'rs_"
    r"|invalid [`'\"]?(?:thought[ _]?)?signature|thought[ _]?signature.{0,20} not valid"
    r"|signature[`'\"]? in [`'\"]?(?:redacted_)?thinking|\.(?:redacted_)?thinking\b"
    r"|thinking[`'\"]? blocks?.{0,60}(?:cannot be modified|invalid)|reasoning_(?:content|details)",
    re.IGNORECASE | re.DOTALL,
)


def pointed_at(text: str, kind: ErrorKind) -> ErrorKind | None:
    """The kind of part that an error is about, or None. text: its codes and message. kind: what it is otherwise."""
    if kind in _UNREADABLE and _REASONING.search(text):
        return ErrorKind.REASONING_REFUSED
    if kind in _UNREADABLE | {ErrorKind.CONTENT_REFUSED, ErrorKind.SERVER_ERROR} and _NO_VISION.search(text):
        return ErrorKind.IMAGE_REFUSED
    if kind in (ErrorKind.BAD_REQUEST, ErrorKind.CONTENT_REFUSED) and _IMAGE.search(text):
        return ErrorKind.IMAGE_REFUSED
    return None


def holds(items: Iterable[Item], kind: ErrorKind, provider: str) -> bool:
    """Whether a provider is sent any parts of that kind with these items."""
    return any(_is(part, kind) and getattr(part, "provider", provider) == provider for part in _parts(items))


def without(items: Sequence[Item], kind: ErrorKind) -> list[Item] | None:
    """The items with what stands for the parts of that kind; None when the kind is no part or none is there.

    As many items as before, in the same order, and every call as it was.
    """
    if not any(_is(part, kind) for part in _parts(items)):
        return None
    return [_without(item, kind) for item in items]


def refused_images(items: Iterable[Item]) -> int:
    """How many images are left out of these items."""
    return sum(isinstance(part, Text) and part.text == NO_IMAGE for part in _parts(items))


def _parts(items: Iterable[Item]) -> Iterable[Part | OutputItem]:
    for item in items:
        yield from item.output if isinstance(item, AssistantItem) else item.parts


def _is(part: Part | OutputItem, kind: ErrorKind) -> bool:
    match kind:
        case ErrorKind.IMAGE_REFUSED:
            return isinstance(part, Image)
        case ErrorKind.REASONING_REFUSED:  # calls too: some providers sign their thoughts there
            return isinstance(part, Reasoning | ToolCall) and bool(part.opaque)
        case _:
            return False


def _without(item: Item, kind: ErrorKind) -> Item:
    if isinstance(item, AssistantItem):
        output = tuple(_forgotten(part) if _is(part, kind) else part for part in item.output)
        return msgspec.structs.replace(item, output=output)
    parts = tuple(Text(NO_IMAGE) if _is(part, kind) else part for part in item.parts)
    return msgspec.structs.replace(item, parts=parts)


def _forgotten(part: OutputItem) -> OutputItem:
    match part:
        case Reasoning():
            return Reasoning(part.text, part.provider + MARK)
        case ToolCall():
            return msgspec.structs.replace(part, opaque="")
        case Text():
            return part
