"""Making an image fit what every provider takes, and finding out that it cannot be decoded before a provider does.

Belongs here: decoding, scaling and encoding with Pillow, and the bounds.
Must not know: files, names, or who looks at the image.

The bounds are the narrowest among the providers' documentation: 2,000 pixels a side once a request holds more than 20
images, 5 MB an image in base64; above 1,568 pixels a side images are scaled down by the provider itself, at a cost in
time and none in detail lost.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from operations.image_formats import ImageKind, NotAnImage, inspect_image

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SIDE: Final = 1568
MAX_BYTES: Final = 3_750_000
MAX_PIXELS: Final = 100_000_000
"""A header may promise more pixels than memory holds; nothing is decoded then."""

JPEG_QUALITY: Final = 85


def fitting(data: bytes) -> tuple[bytes, ImageKind]:
    """The bytes as they are when they fit the bounds, else a smaller picture of the same, with what it is.

    Blocks for as long as decoding takes. Raises NotAnImage with one line for what no decoder would take.
    """
    kind = inspect_image(data)
    if kind.width * kind.height > MAX_PIXELS:
        raise NotAnImage(f"is too large: {kind.width} x {kind.height} pixels, of {MAX_PIXELS} at most")
    picture = _decoded(data, kind)
    if max(kind.width, kind.height) <= MAX_SIDE and len(data) <= MAX_BYTES:
        return data, kind
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    smaller = _encoded(picture, kind.media_type)
    return smaller, inspect_image(smaller)


def _decoded(data: bytes, kind: ImageKind) -> Image:
    from PIL import Image as Pillow  # slow to import, and most sessions look at no image

    try:
        picture = Pillow.open(io.BytesIO(data))
        picture.load()
    except (OSError, SyntaxError, ValueError, EOFError, Pillow.DecompressionBombError) as error:
        raise NotAnImage(f"is a damaged {kind.media_type}: {error}") from error
    return picture


def _encoded(picture: Image, media_type: str) -> bytes:
    """As PNG where it was one and that stays small, since text in screenshots suffers from JPEG; else as JPEG."""
    if media_type in ("image/png", "image/gif"):
        data = _saved(picture, "PNG")
        if len(data) <= MAX_BYTES:
            return data
    flat = picture.convert("RGB")
    return _saved(flat, "JPEG", quality=JPEG_QUALITY)


def _saved(picture: Image, format_: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format_, **options)
    return buffer.getvalue()
