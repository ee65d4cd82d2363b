"""Operations of type `image`: read an image file and know what it is.

Belongs here: arguments and result, and refusing what is not an image.
Must not know: image formats (`operations.image_formats`), how one is made smaller (`operations.image_scaling`), or who
looks at it.

args: path, cwd. result: digest (blake2b-128 of the bytes, which are the update's blob), media_type, width, height, size
(bytes), name; of the picture as it is kept, which is smaller than the file's where that is over the providers' bounds.
Reading changes nothing, so recovery reads again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from operations.handlers.files import NotReadable, read_plain
from operations.handlers.reading import ReadingHandler
from operations.image_formats import NotAnImage
from operations.image_scaling import fitting
from operations.operation import Ended, Status

MAX_BYTES: Final = 20 * 1024 * 1024


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operation of this type carries."""

    path: str
    cwd: str = "."


class ImageHandler(ReadingHandler[Arguments]):
    """limit: files read at once."""

    type = "image"
    arguments = Arguments

    def read(self, arguments: Arguments) -> Ended:
        """Failed, with one line, for what cannot be an image."""
        path = Path(arguments.cwd, arguments.path)
        try:
            data, found = fitting(read_plain(str(path), MAX_BYTES))
        except NotReadable as error:
            return Ended(Status.FAILED, {"error": str(error)})
        except NotAnImage as error:
            return Ended(Status.FAILED, {"error": f"{path}: {error}"})
        result = {
            "digest": hashlib.blake2b(data, digest_size=16).hexdigest(),
            "media_type": found.media_type,
            "width": found.width,
            "height": found.height,
            "size": len(data),
            "name": path.name,
        }
        return Ended(Status.COMPLETED, result, blobs=(data,))
