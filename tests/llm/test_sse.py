from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.llm.sse import Decoder, Event, EventTooLarge


def decode(*chunks: bytes, max_event_bytes: int = 10_000) -> list[Event]:
    decoder = Decoder(max_event_bytes=max_event_bytes)
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()


def data(text: str, kind: str = "message", complete: bool = True) -> Event:
    return Event(kind, text, complete)


CASES = {
    "plain": (b"data: a\n\n", [data("a")]),
    "no-space": (b"data:a\n\n", [data("a")]),
    "two-spaces": (b"data:  a\n\n", [data(" a")]),
    "two-lines": (b"data: a\ndata: b\n\n", [data("a\nb")]),
    "type": (b"event: x\ndata: a\n\ndata: b\n\n", [data("a", "x"), data("b")]),
    "comment": (b": hi\n\ndata: a\n: hi\n\n:\n\n", [data("a")]),
    "other-fields": (b"id: 1\nretry: 5\nnonsense\ndata: a\n\n", [data("a")]),
    "no-colon": (b"data\n\n", [data("")]),
    "no-data": (b"event: x\n\ndata: a\n\n", [data("a")]),
    "bom": (b"\xef\xbb\xbfdata: a\n\n", [data("a")]),
    "bom-in-the-middle": (b"data: \xef\xbb\xbfa\n\n", [data("\ufeffa")]),
    "crlf": (b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", [data("a\nb"), data("c")]),
    "cr": (b"data: a\rdata: b\r\rdata: c\r\r", [data("a\nb"), data("c")]),
    "mixed": (b"data: a\r\n\ndata: b\n\r\n", [data("a"), data("b")]),
    "separators": (
        "data: a\u2028b\u2029c\u0085d\v\f\x1c\x1d\x1ee\n\n".encode(),
        [data("a\u2028b\u2029c\u0085d\v\f\x1c\x1d\x1ee")],
    ),
    "characters": (
        "data: \u4f60\u597d \U0001f389 na\u00efve\n\n".encode(),
        [data("\u4f60\u597d \U0001f389 na\u00efve")],
    ),
    "bad-utf8": (b"data: a\xff\n\n", [data("a\ufffd")]),
    "end-without-blank-line": (b"data: a\n", [data("a", complete=False)]),
    "end-inside-a-line": (b"data: a\n\nevent: x\ndata: b", [data("a"), data("b", "x", complete=False)]),
    "empty": (b"", []),
}


@pytest.mark.parametrize(("body", "expected"), CASES.values(), ids=CASES)
def test_the_same_events_wherever_the_bytes_are_cut(body: bytes, expected: list[Event]) -> None:
    for cut in range(len(body) + 1):
        assert decode(body[:cut], body[cut:]) == expected, f"cut at byte {cut}"
    assert decode(*(bytes([byte]) for byte in body)) == expected


LINES = st.lists(
    st.one_of(
        st.builds(
            lambda text: b"data: " + text.encode(),
            st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8),
        ),
        st.sampled_from([b"", b"", b":c", b"event: e", b"data", b"data:\xc3\xa9", b"id: 1"]),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(lines=LINES, ends=st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=12, max_size=12), cuts=st.data())
def test_any_chunking_and_any_line_end_give_the_same_events(
    lines: list[bytes], ends: list[bytes], cuts: st.DataObject
) -> None:
    plain = b"".join(line + b"\n" for line in lines)
    # A lone CR before an empty line that ends in LF would read as one CRLF: keep to one style where that can happen.
    style = ends[0]
    body = b"".join(line + style for line in lines)
    positions = sorted(cuts.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    chunks = [body[a:b] for a, b in zip([0, *positions], [*positions, len(body)], strict=True)]
    assert decode(*chunks) == decode(plain)


@pytest.mark.parametrize("body", [b"data: " + b"x" * 200, b"data: x\n" * 200, b"x" * 200])
def test_an_event_that_never_ends_is_refused_before_it_fills_memory(body: bytes) -> None:
    with pytest.raises(EventTooLarge, match="100 bytes"):
        decode(*(body[i : i + 10] for i in range(0, len(body), 10)), max_event_bytes=100)


def test_a_long_stream_of_small_events_is_not_too_large() -> None:
    assert len(decode(b"data: xxxxxxxxxx\n\n" * 100, max_event_bytes=100)) == 100
