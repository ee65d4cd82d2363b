"""What kind of image some bytes are, and how large.  Pure.

Belongs here: the headers of PNG, JPEG, GIF and WebP, by their published layouts.
Must not know: files, names, pixels.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final

import msgspec


class NotAnImage(Exception):
    """The bytes are none of the four formats, or break off in their header."""


class ImageKind(msgspec.Struct, frozen=True):
    """media_type as in RFC 2046; width and height in pixels, at least 1."""

    media_type: str
    width: int
    height: int


def inspect_image(data: bytes) -> ImageKind:
    """By content, never by name. Raises NotAnImage with one line that says what is wrong."""
    if not data:
        raise NotAnImage("is empty")
    for magic, media_type, size in _FORMATS:
        if re.match(magic, data, re.DOTALL):
            try:
                width, height = size(data)
            except (struct.error, IndexError, StopIteration):
                raise NotAnImage(f"is a damaged {media_type}: its header breaks off") from None
            if width < 1 or height < 1:
                raise NotAnImage(f"is a damaged {media_type}: {width} x {height} pixels")
            return ImageKind(media_type, width, height)
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"<svg", b"<?xml", b"<!DOCTYPE svg")):
        raise NotAnImage("is SVG or XML text, not a PNG, JPEG, GIF or WebP image")
    raise NotAnImage("is not a PNG, JPEG, GIF or WebP image")


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR":
        raise IndexError
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _jpeg(data: bytes) -> tuple[int, int]:
    """Walk the markers up to a start of frame (C0 to CF without the tables C4, C8 and CC)."""
    at = 2
    while True:
        if data[at] != 0xFF:
            raise IndexError
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # these stand alone
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        elif marker in (0xD9, 0xDA):  # the picture begins or ends: a frame would have come before
            raise IndexError
        else:
            (length,) = struct.unpack_from(">H", data, at + 2)
            at += 2 + max(2, length)


def _webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27 : 27 + 3], "little")
        case b"VP8L":
            if data[20] != 0x2F:
                raise IndexError
            (bits,) = struct.unpack_from("<I", data, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            if data[23:26] != b"\x9d\x01\x2a":
                raise IndexError
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise IndexError


_FORMATS: Final[tuple[tuple[bytes, str, Callable[[bytes], tuple[int, int]]], ...]] = (
    (rb"\x89PNG\r\n\x1a\n", "image/png", _png),
    (rb"\xff\xd8\xff", "image/jpeg", _jpeg),
    (rb"GIF8[79]a", "image/gif", _gif),
    (rb"RIFF....WEBP", "image/webp", _webp),
)
