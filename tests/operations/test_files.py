"""Images and skills: what a file is, by its content, and what happens when it is none."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from operations import Operation, OperationSpec, Status, Update, image_scaling
from operations.handlers import image as image_handler
from operations.handlers import skill as skill_handler
from operations.image_formats import ImageKind, NotAnImage, inspect_image
from tests.operations.helpers import group_of, run


def png(width: int = 3, height: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(3 * width) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xff\xc4\x00\x05\x00\x00\x00"
    b"\xff\xc2\x00\x0b\x08\x00\x07\x00\x09\x01\x01\x11\x00\xff\xda\x00\x02"
)
GIF = b"GIF89a\x05\x00\x04\x00\x00\x00\x00" + b",\x00" * 2 + b";"
WEBP_LOSSY = b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a\x0b\x00\x0c\x00"
WEBP_LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", 10 | (11 << 14))
WEBP_EXTENDED = b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x0c\x00\x00\x0d\x00\x00"

HEADERS = {
    "JPEG": (JPEG, "image/jpeg", 9, 7),
    "PNG": (png(), "image/png", 3, 2),
    "GIF": (GIF, "image/gif", 5, 4),
    "lossy WebP": (WEBP_LOSSY, "image/webp", 11, 12),
    "lossless WebP": (WEBP_LOSSLESS, "image/webp", 11, 12),
    "extended WebP": (WEBP_EXTENDED, "image/webp", 13, 14),
}


@pytest.mark.parametrize("name", HEADERS)
def test_type_and_size_are_in_the_header(name: str) -> None:
    data, media_type, width, height = HEADERS[name]
    assert inspect_image(data) == ImageKind(media_type, width, height)


def painted(width: int, height: int, format_: str, *, noisy: bool = False, frames: int = 1) -> bytes:
    """A real picture of this size."""
    noise = [Image.effect_noise((width, height), 200) for _ in range(3)]
    picture = Image.merge("RGB", noise) if noisy else Image.new("RGB", (width, height))
    more = [picture.rotate(90 * frame) for frame in range(1, frames)]
    buffer = io.BytesIO()
    picture.save(buffer, format_, **({"save_all": True, "append_images": more} if more else {}))
    return buffer.getvalue()


IMAGES = {
    "a.png": (painted(9, 7, "JPEG"), "image/jpeg", 9, 7),
    "b.jpg": (png(), "image/png", 3, 2),
    "two-frames.gif": (painted(5, 4, "GIF", noisy=True, frames=2), "image/gif", 5, 4),
    "f": (painted(11, 12, "WEBP"), "image/webp", 11, 12),
}


async def view(folder: Path, path: str) -> Update:
    args = {"path": path, "cwd": str(folder)}
    async with group_of(folder / "operations") as group:
        return await run(group, Operation("op", OperationSpec("image", 1, args, idempotent=True)), within_s=5)


@pytest.mark.parametrize("name", IMAGES)
async def test_the_media_type_is_taken_from_the_content(tmp_path: Path, name: str) -> None:
    data, media_type, width, height = IMAGES[name]
    (tmp_path / name).write_bytes(data)
    end = await view(tmp_path, name)
    assert end.status is Status.COMPLETED
    assert end.blobs == (data,)
    assert end.result == {
        "digest": hashlib.blake2b(data, digest_size=16).hexdigest(),
        "media_type": media_type,
        "width": width,
        "height": height,
        "size": len(data),
        "name": name,
    }


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("c.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        ("d.png", b"just text\n", "not a PNG"),
        ("e.png", b"", "empty"),
        ("cut.png", png()[:20], "breaks off"),
        ("flat.png", png(0, 5), "0 x 5"),
        ("cut.jpg", JPEG[:25], "breaks off"),
        ("half.png", painted(50, 50, "PNG", noisy=True)[:3000], "damaged image/png"),
        ("half.jpg", painted(50, 50, "JPEG", noisy=True)[:900], "damaged image/jpeg"),
        ("bomb.png", png()[:16] + struct.pack(">II", 60_000, 60_000) + png()[24:], "too large: 60000 x 60000"),
        ("cut.webp", b"RIFF\x00\x00\x00\x00WEBPVP8 ", "breaks off"),
    ],
)
async def test_what_cannot_be_an_image_is_one_clear_line(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(data)
    await fails(tmp_path, name, reason)


async def fails(folder: Path, path: str, reason: str) -> None:
    end = await view(folder, path)
    assert end.status is Status.FAILED
    error = (end.result or {})["error"]
    assert reason in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("data", "media_type", "width", "height"),
    [
        (painted(1170, 2532, "PNG"), "image/png", 725, 1568),
        (painted(2162, 322, "JPEG"), "image/jpeg", 1568, 234),
        (painted(1500, 1500, "PNG", noisy=True), "image/jpeg", 1500, 1500),
        (painted(3000, 20, "GIF", frames=2), "image/png", 1568, 10),
    ],
)
async def test_an_image_over_the_bounds_is_kept_smaller(
    tmp_path: Path, data: bytes, media_type: str, width: int, height: int
) -> None:
    (tmp_path / "large").write_bytes(data)
    end = await view(tmp_path, "large")
    assert end.status is Status.COMPLETED, end.result
    result = end.result or {}
    assert (result["media_type"], result["width"], result["height"]) == (media_type, width, height)
    assert result["size"] == len(end.blobs[0]) <= image_scaling.MAX_BYTES
    assert inspect_image(end.blobs[0]) == ImageKind(media_type, width, height)


async def test_pipes_folders_and_devices_are_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    await fails(tmp_path, "pipe.png", "a pipe")
    await fails(tmp_path, "folder.png", "a folder")
    await fails(tmp_path, "/dev/zero", "a device")
    await fails(tmp_path, "missing.png", "no such file")


async def test_a_file_over_the_bound_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "big.png").open("wb") as file:
        file.write(png())
        file.truncate(image_handler.MAX_BYTES + 1)
    await fails(tmp_path, "big.png", "larger than 20,971,520 bytes")


async def test_recovery_reads_again(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    spec = OperationSpec("image", 1, {"path": "a.png", "cwd": str(tmp_path)}, idempotent=True)
    async with group_of(tmp_path / "operations") as group:
        group.recover([Operation("op", spec, Status.RUNNING)])
        async for update in group.updates:
            if update.status is Status.COMPLETED:
                break


@given(st.sampled_from([data for data, *_ in IMAGES.values()]), st.data())
def test_a_damaged_header_never_raises_anything_else(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) - 1))
    damaged = data[:at] + draw.draw(st.binary(max_size=4)) + data[at + draw.draw(st.integers(0, 4)) :]
    try:
        assert isinstance(inspect_image(damaged), ImageKind)
    except NotAnImage as error:
        assert str(error)


# --- skills


async def read_skill(path: Path, **more: Any) -> Update:
    args = {"path": str(path), "name": "tdd", **more}
    async with group_of(path.parent / "operations") as group:
        return await run(group, Operation("op", OperationSpec("skill", 1, args, idempotent=True)), within_s=5)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"---\nname: tdd\n---\nDo it.\n", "---\nname: tdd\n---\nDo it.\n"),
        (b"\xef\xbb\xbfDo\r\nit.\r\n", "Do\nit.\n"),
        (b"bad \xff byte \x00\n", "bad \ufffd byte \u2400\n"),
        (b"", ""),
    ],
)
async def test_a_skill_is_read_leniently(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "SKILL.md").write_bytes(data)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "notes.md").touch()
    end = await read_skill(tmp_path / "SKILL.md")
    assert (end.status, end.blobs) == (Status.COMPLETED, ())
    assert end.result is not None
    assert (end.result["text"], end.result["folder"], end.result["changed"]) == (text, str(tmp_path), False)
    assert {"notes.md", "scripts/"} <= set(end.result["files"])


async def test_a_skill_says_when_it_is_no_longer_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_bytes(b"old")
    digest = hashlib.blake2b(b"old", digest_size=16).hexdigest()
    assert ((await read_skill(tmp_path / "SKILL.md", digest=digest)).result or {})["changed"] is False
    (tmp_path / "SKILL.md").write_bytes(b"new")
    assert ((await read_skill(tmp_path / "SKILL.md", digest=digest)).result or {})["changed"] is True
    (tmp_path / "SKILL.md").unlink()
    end = await read_skill(tmp_path / "SKILL.md", digest=digest)
    assert end.status is Status.FAILED
    assert "no such file" in (end.result or {})["error"]


async def test_a_skill_is_bounded_in_text_and_in_names(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("x" * (skill_handler.MAX_CHARS + 5))
    for number in range(skill_handler.MAX_FILES + 5):
        (tmp_path / f"file{number:03}").touch()
    (tmp_path / os.fsdecode(b"bad\xff")).touch()
    end = await read_skill(tmp_path / "SKILL.md")
    assert end.result is not None
    assert len(end.result["text"]) < skill_handler.MAX_CHARS + 500
    assert "5 characters left out" in end.result["text"]
    assert len(end.result["files"]) == skill_handler.MAX_FILES
    assert end.result["files"][0] == "bad\ufffd"
