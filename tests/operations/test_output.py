"""Bytes that a program printed, as text: what a terminal would show, however they are cut."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.output import bounded, clean, whole_characters

PIECES = [
    *(b"text ", b"\n", b"\r\n", b"\r", b"\b", b"\x00", b"\xff", b"\x07", b"\x7f", b"\x0c"),
    *(b"\x1b", b"\x1b[", b"\x1b[2K", b"\x1b[K", b"\x1b[31m", b"\x9b31m", b"\xc2\x9b31m"),
    *(b"\x1b]0;title\x07", b"\x1b]", b"\x1bP", b"\x1b\\"),
    *("\u00e9\u6c34\U0001f600".encode(), b"\xf0\x9f\x98"),
]
noise = st.lists(st.sampled_from(PIECES) | st.binary(max_size=8), max_size=30).map(b"".join)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"A\xf0\x9f\nB\xff\x00C\n", "A\ufffd\nB\ufffd\u2400C\n"),
        (b"\x1b[2K\x1b[32mok\x1b[0m\r10%\r100%\n", "100%\n"),
        (b"line1\r\nline2\r\n", "line1\nline2\n"),
        (b"progress 10%\rprogress 20%", "progress 20%"),
        (b"abcdef\rXY\n", "XYcdef\n"),
        (b"abcdef\r\x1b[KXY\n", "XY\n"),
        (b"waiting...\r\x1b[2K\r\n", "\n"),
        (b"50%\r", "50%"),
        (b"ab\bc\n", "ac\n"),
        (b"\b\b\bx", "x"),
        (b"a\r\r\nb", "a\nb"),
        (b"\x1b]0;a title\x07shown\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "shownlink"),
        (b"\x1b[38;5;196mred\x1b[m \x1b(B\x1b=\x1b7", "red "),
        (b"cut \x1b[3", "cut "),
        (b"cut \x1b]0;never closed\nnext", "cut 0;never closed\nnext"),
        (b"bell\x07 del\x7f vt\x0bff\x0c esc\x1b", "bell del\u2421 vt\nff\n esc"),
        (b"\x01\x02", "\u2401\u2402"),
        ("h\u00e9llo \u6c34 \U0001f600".encode(), "h\u00e9llo \u6c34 \U0001f600"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"", ""),
    ],
)
def test_text_is_what_a_terminal_would_show(data: bytes, text: str) -> None:
    assert clean(data) == text


@given(noise)
def test_cleaning_twice_is_cleaning_once(data: bytes) -> None:
    text = clean(data)
    assert clean(text.encode()) == text


@given(noise)
def test_clean_text_can_be_stored_and_sent(data: bytes) -> None:
    text = clean(data)
    text.encode()
    assert not [character for character in text if ord(character) < 32 and character not in "\t\n"]
    assert not [character for character in text if 0x7F <= ord(character) < 0xA0]


@given(st.text(max_size=40), st.data())
def test_a_cut_never_leaves_part_of_a_character(text: str, data: st.DataObject) -> None:
    raw = text.encode("utf-8", "ignore")
    cut = data.draw(st.integers(0, len(raw)))
    head, tail = whole_characters(raw[:cut], at_end=True), whole_characters(raw[cut:], at_end=False)
    assert "\ufffd" not in head.decode("utf-8", "replace").replace("\ufffd", "", text.count("\ufffd"))
    assert raw.startswith(head)
    assert raw.endswith(tail)
    assert len(raw) - len(head) - len(tail) <= 64


@given(noise, st.integers(200, 400), st.integers(0, 10**9), noise)
def test_bounded_text_keeps_to_its_bound(head: bytes, max_chars: int, missing: int, tail: bytes) -> None:
    total = len(head) + len(tail) + missing
    found = bounded(head, tail, total, max_chars, "/where")
    assert len(found.text) <= max_chars
    assert found.truncated == (found.omitted_bytes > 0)
    assert ("left out" in found.text) or not found.truncated
    if missing:
        assert found.omitted_bytes >= missing


def test_what_is_too_long_keeps_its_head_and_its_tail_at_line_ends() -> None:
    lines = b"".join(b"line %d\n" % number for number in range(2000))
    found = bounded(lines, b"", len(lines), 1000, "/where/output")
    assert len(found.text) <= 1000
    first, middle, last = found.text.partition("\n[... ")
    assert first.startswith("line 0\nline 1\n")
    assert lines.decode().startswith(first + "\n")
    assert middle
    assert "the full output is in /where/output" in last
    assert last.endswith("\nline 1998\nline 1999\n")
    assert found.omitted_bytes == len(lines) - len(first) - len(last.partition("...]\n")[2])


def test_what_fits_is_whole() -> None:
    assert bounded(b"a" * 1000, b"", 1000, 1000, "").text == "a" * 1000


def test_cleaning_takes_time_in_proportion_to_its_input() -> None:
    # Each of these is quadratic for a cleaner that looks back, or ahead, from every character.
    for piece in (b"\x1b]", b"\x1b[1;", b"\r", b"a\r", b"\b", b"\x1b[K", b"\x1bP;", b"x", b"\xff", b"\x9b"):
        data = b"y" * 200_000 + piece * (400_000 // len(piece))
        before = time.process_time()
        clean(data)
        assert time.process_time() - before < 2, piece
