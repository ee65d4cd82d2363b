"""The files that hold a command's output, read as one stream with a hole in its middle.

Belongs here: offsets to files and back, while the files may still grow and be removed.
Must not know: who writes them (`supervisor.sh`), or what the bytes mean.
"""

from __future__ import annotations

from pathlib import Path


class Segments:
    """Output in `folder`, cut into files `output.NNNNNN` of `segment_bytes` each. Looks anew at each question."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder, self._size = folder, segment_bytes

    def _files(self) -> dict[int, Path]:
        try:
            found = [path for path in self._folder.iterdir() if path.name.startswith("output.")]
        except OSError:
            return {}
        return {int(path.suffix[1:]): path for path in sorted(found) if path.suffix[1:].isdigit()}

    def total(self) -> int:
        """Bytes printed so far, those included that are no longer kept."""
        # An empty last file is how the writer learns that there is nothing more.
        for number, path in reversed(self._files().items()):
            if (length := _length(path)) > 0:
                return number * self._size + length
        return 0

    def where(self) -> str:
        """Where a person finds the bytes: the one file, or a pattern for them all in order."""
        filled = [path for path in self._files().values() if _length(path)]
        return str(self._folder / ("output.*" if len(filled) > 1 else "output.000000"))

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset` on; fewer at the end and at the edge of the hole."""
        files = self._files()
        pieces: list[bytes] = []
        while count > 0:
            number, start = divmod(offset, self._size)
            piece = _piece(files.get(number), start, min(count, self._size - start))
            pieces.append(piece)
            offset, count = offset + len(piece), count - len(piece)
            if not piece:
                break
        return b"".join(pieces)

    def ends(self, limit: int) -> tuple[bytes, bytes, int]:
        """(head, tail, total) with at most `limit` bytes in head and tail; tail is empty when head is everything."""
        total = self.total()
        if total <= limit:
            head = self.read(0, total)
            if len(head) == total:
                return head, b"", total
        head = self.read(0, limit // 2)
        return head, self.read(max(len(head), total - limit // 2), limit // 2), total


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _piece(path: Path | None, start: int, count: int) -> bytes:
    if path is None:
        return b""
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(count)
    except OSError:
        # Removed between the look at the folder and now: part of the hole.
        return b""
