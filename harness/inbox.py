"""The durable inbox: how an input is put into a session from anywhere, and read again by its coordinator.

Belongs here: the shape of an inbox entry and the rules for what may be sent.
Must not know: runs, turns, or who reads.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from harness import ids
from harness.errors import BadInput
from harness.events import NO_LIMITS, Input, Limits, Message
from harness.journal import utc_now
from harness.log import timestamp
from harness.transcript import clean
from harness.validation import as_logged, check_limits, id_of, text_of
from store import CorruptBlob, Store, StoredInput, UnsupportedVersion

log = logging.getLogger("turnlog.inbox")


VERSION: Final = 1
"""Of the entries that this code writes."""


class InboxEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An input as it stands in the durable inbox. source: who sent it, for people."""

    source: str
    content: Input
    version: int = VERSION


class _Head(msgspec.Struct):
    """What every version of an entry has."""

    version: int = VERSION


def as_content(content: object) -> Input:
    """What a caller gave as an input. Raises BadInput for what cannot be one, such as a message with nothing in it."""
    if isinstance(content, str):
        content = Message(content)
    if not isinstance(content, Input):
        raise BadInput(f"an input has to be text or a harness.Message, not {type(content).__name__}.")
    if isinstance(content, Message) and isinstance(content.text, str):
        content = msgspec.structs.replace(content, text=clean(content.text))
    content = as_logged("the input", content)
    if isinstance(content, Message):
        if content.limits == NO_LIMITS:  # said or not said, it is the same input
            content = msgspec.structs.replace(content, limits=NO_LIMITS)
        if not content.text.strip() and not content.images:
            raise BadInput("the message is empty. Say what is to be done.")
        check_limits(content.limits)
    return content


def as_message(content: object, limits: Limits | None = None) -> Message:
    """What a run starts or is steered with; limits: in the place of the message's own. Raises BadInput."""
    if isinstance(content, Message) and limits is not None:
        content = msgspec.structs.replace(content, limits=limits)
    elif isinstance(content, str):
        content = Message(content, limits=NO_LIMITS if limits is None else limits)
    message = as_content(content)
    if not isinstance(message, Message):
        raise BadInput(f"a message has to be text or a harness.Message, not {type(message).__name__}.")
    return message


async def submit(
    store: Store, session_id: str, content: str | Input, input_id: str | None = None, *, source: str = "user"
) -> str:
    """Put an input into a session's durable inbox, from any process, and return its id.

    The coordinator that has the session open takes it up within 100 ms; otherwise the next one that opens it does.
    content: text, a Message, an Interrupt or a Cancel. input_id: the same id sent again is the same input.
    Raises UnknownSession, BadInput, CallerError when the id is in use for another content.
    """
    entry = InboxEntry(text_of("source", source), as_content(content))
    chosen = ids.new_input_id() if input_id is None else id_of("the input id", input_id)
    for image in entry.content.images if isinstance(entry.content, Message) else ():
        await _check_there(store, image.digest)
    await store.submit(session_id, chosen, msgspec.json.encode(entry), received_at=timestamp(utc_now()))
    return chosen


async def _check_there(store: Store, digest: str) -> None:
    try:
        await store.blob(digest)
    except CorruptBlob as error:
        raise BadInput(f"the image {digest!r} is not in the store. Put it there with store.put_blobs first.") from error


def read_entry(stored: StoredInput) -> InboxEntry | None:
    """The input of an inbox row, or None, with a warning, for a row that was put there by other means than `submit`.

    Raises UnsupportedVersion for one that a newer harness has put there.
    """
    try:
        version = msgspec.json.decode(stored.data, type=_Head).version
        if version > VERSION:
            raise UnsupportedVersion(f"input {stored.input_id!r} of session {stored.session_id!r}", version, VERSION)
        return msgspec.json.decode(stored.data, type=InboxEntry)
    except (msgspec.DecodeError, RecursionError) as error:
        log.warning("input %r of session %r is left out: %s", stored.input_id, stored.session_id, error)
        return None
