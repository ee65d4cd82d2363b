"""The durable inbox: how an input is put into a session from anywhere, and read again by its coordinator.

Belongs here: the shape of an inbox entry and the rules for what may be sent.
Must not know: runs, turns, or who reads.
"""

from __future__ import annotations

import msgspec

from harness import ids
from harness.errors import BadInput
from harness.events import Content, Message
from harness.journal import utc_now
from harness.log import timestamp
from harness.transcript import clean
from harness.validation import check_limits
from store import CorruptBlob, CorruptLog, Store, StoredInput


class InboxEntry(msgspec.Struct, frozen=True):
    """An input as it stands in the durable inbox. source: who sent it, for people."""

    source: str
    content: Content


def as_content(content: str | Content) -> Content:
    """What a caller gave as an input. Raises BadInput for a message with nothing in it."""
    if isinstance(content, str):
        content = Message(content)
    if isinstance(content, Message):
        content = msgspec.structs.replace(content, text=clean(content.text))
        if not content.text.strip() and not content.images:
            raise BadInput("the message is empty. Say what is to be done.")
        check_limits(content.limits)
    return content


async def submit(
    store: Store, session_id: str, content: str | Content, input_id: str | None = None, *, source: str = "user"
) -> str:
    """Put an input into a session's durable inbox, from any process, and return its id.

    The coordinator that has the session open takes it up within 100 ms; otherwise the next one that opens it does.
    input_id: the same id sent again is the same input. Raises UnknownSession, BadInput for an empty message,
    CallerError when the id is in use for another content.
    """
    entry = InboxEntry(source, as_content(content))
    chosen = input_id or ids.new_input_id()
    for image in entry.content.images if isinstance(entry.content, Message) else ():
        await _check_there(store, image.digest)
    await store.submit(session_id, chosen, msgspec.json.encode(entry), received_at=timestamp(utc_now()))
    return chosen


async def _check_there(store: Store, digest: str) -> None:
    try:
        await store.blob(digest)
    except CorruptBlob as error:
        raise BadInput(f"the image {digest!r} is not in the store. Put it there with store.put_blobs first.") from error


def read_entry(stored: StoredInput) -> InboxEntry:
    """The input of an inbox row. Raises CorruptLog when it cannot be read."""
    try:
        return msgspec.json.decode(stored.data, type=InboxEntry)
    except msgspec.DecodeError as error:
        problem = f"input {stored.input_id!r} in its inbox cannot be read ({error})"
        raise CorruptLog(stored.session_id, None, problem) from error
