"""What every protocol's request encoding needs, so that whatever is stored can be sent.  Pure.

Belongs here: making stored text, names, arguments and images acceptable; reading what providers send with suspicion.
Must not know: any one protocol.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.llm.jsontext import clean as clean
from harness.llm.jsontext import decoded
from harness.llm.jsontext import dumped as dumped
from harness.llm.model import (
    AssistantItem,
    Image,
    Item,
    Part,
    Reasoning,
    Text,
    ToolCall,
)
from harness.llm.refused import refused_images

EXCERPT_CHARS: Final = 200
MOST_TOKENS: Final = 10**12
"""A count above it is none; and the sums of a session stay within what every store and reader takes."""
MISSING_IMAGE: Final = "(an image that is no longer available)"
EMPTY: Final = "(empty)"

_NOT_IN_NAMES: Final = re.compile("[^a-zA-Z0-9_-]")


def safe_name(name: str) -> str:
    """A tool name that every provider takes. The model's own odd names were refused as calls, but stand in history."""
    return _NOT_IN_NAMES.sub("_", name)[:64] or "unnamed"


def safe_arguments(raw: str) -> dict[str, Any]:
    """The arguments of an earlier call as an object. What was not one is shown in an excerpt; the log has it whole."""
    if not raw.strip():
        return {}
    value = decoded(clean(raw).encode())
    if isinstance(value, dict):
        return value
    excerpt = clean(raw) if len(raw) <= EXCERPT_CHARS else clean(raw[:EXCERPT_CHARS]) + "..."
    return {"malformed_arguments": excerpt}


def texts(parts: Sequence[Part]) -> list[str]:
    """The texts of parts that are not blank, cleaned."""
    return [clean(part.text) for part in parts if isinstance(part, Text) and part.text.strip()]


def has_image(item: Item) -> bool:
    """Whether there are images in it, whose bytes nothing that is remembered may hold."""
    return not isinstance(item, AssistantItem) and any(isinstance(part, Image) for part in item.parts)


def base64_of(image: Image, blobs: Mapping[str, bytes]) -> str | None:
    """The image's bytes in base64, or None when they are not at hand."""
    data = blobs.get(image.digest)
    return None if data is None else base64.b64encode(data).decode("ascii")


def data_url(image: Image, blobs: Mapping[str, bytes]) -> str | None:
    """The image as a data URL, or None when its bytes are not at hand."""
    data = base64_of(image, blobs)
    return None if data is None else f"data:{image.media_type};base64,{data}"


def opaque_of(item: Reasoning | ToolCall, provider: str) -> dict[str, Any]:
    """What a provider is to get back of an item as it came; nothing when another provider made it."""
    if not item.opaque or item.provider != provider:
        return {}
    value = decoded(item.opaque.encode())
    return value if isinstance(value, dict) else {}


def left_out(items: Sequence[Item], provider: str) -> list[str]:
    """What of these items a provider is not sent: what only another reads, or it refused. For the report of a turn."""
    foreign: dict[str, int] = {}
    for item in items:
        for part in item.output if isinstance(item, AssistantItem) else ():
            if isinstance(part, Reasoning) and part.provider != provider:
                foreign[part.provider] = foreign.get(part.provider, 0) + 1
    images = refused_images(items)
    return [
        *(f"{count} reasoning items of {name or 'another model'}" for name, count in foreign.items()),
        *([f"{images} images that were refused"] if images else []),
    ]


# --- reading


def string(value: Any) -> str:
    """The value if it is a string, else nothing."""
    return value if isinstance(value, str) else ""


def as_text(value: Any) -> str:
    """The value as text: what is no string as its JSON, so that whoever reads it sees what came; null is nothing."""
    return value if isinstance(value, str) else "" if value is None else dumped(value)


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """The value if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def count(value: Any) -> int | None:
    """A number of tokens, or None for whatever is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MOST_TOKENS else None  # not for NaN, which no comparison holds for


def plus(*counts: int | None) -> int | None:
    """The sum of the known counts; None when the first is unknown, since a part is not the whole."""
    return None if counts[0] is None else sum(number or 0 for number in counts)


def is_object(arguments: str) -> bool:
    """Whether the text is one whole JSON object."""
    return isinstance(decoded(clean(arguments).encode()), dict)


def is_cut(arguments: str) -> bool:
    """Whether the text is the beginning of a JSON object that does not end: an open string or bracket at its end.

    Text that is wrong in another way (a comma too many, two objects) is not cut but malformed.
    """
    text = arguments.strip()
    if not text.startswith("{"):
        return False
    depth, in_string, escaped = 0, False, False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth == 0:
                return False
    return True
