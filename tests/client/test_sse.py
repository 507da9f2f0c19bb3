"""The parser of server-sent events against another one, with bytes cut anywhere."""

from __future__ import annotations

import pytest
from httpx_sse._decoders import SSEDecoder
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client.errors import InvalidAnswer
from nearcast.client.sse import Frame, FrameParser

LINES = st.one_of(
    st.sampled_from(
        [
            "",
            "",
            "id: 7-1",
            "id:7-2",
            "id",
            "event: match",
            "data: {}",
            "data:  two",
            "data",
            ":",
            "x",
        ]
    ),
    st.text(st.sampled_from("aé€😀: \t")).map("data: {}".format),
    st.text(st.sampled_from("aé :")).map(": {}".format),
)


def judged(lines: list[str]) -> list[Frame]:
    """Return the frames with data that the other parser finds."""
    decoder = SSEDecoder()
    found = []
    for line in lines:
        one = decoder.decode(line)
        if one is not None and one.data:
            found.append(Frame(one.id, one.event or "message", one.data))
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(
    st.lists(LINES, max_size=20),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 10_000), max_size=30),
    st.booleans(),
)
def test_frames_are_those_of_another_parser_however_bytes_are_cut(
    lines: list[str], end: str, places: list[int], mark: bool
) -> None:
    data = (b"\xef\xbb\xbf" if mark else b"") + "".join(line + end for line in lines).encode()
    parser = FrameParser()
    found = [frame for piece in cut(data, places) for frame in parser.feed(piece)]
    last, kept = "", []
    for frame in found:  # the other parser keeps the last id for frames without one
        last = last if frame.id is None else frame.id
        if frame.data:
            kept.append(Frame(last, frame.event, frame.data))
    assert kept == judged(lines)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_frames_are_the_same_wherever_one_cut_is(end: str) -> None:
    lines = ["id: 7-1", "event: match", "data: é€", "data: 😀", "", "event: gap", "data: {}", ""]
    data = b"\xef\xbb\xbf" + "".join(line + end for line in lines).encode()
    expected = [Frame("7-1", "match", "é€\n😀"), Frame(None, "gap", "{}")]
    for place in range(len(data) + 1):
        parser = FrameParser()
        assert parser.feed(data[:place]) + parser.feed(data[place:]) == expected
    parser = FrameParser()
    assert [frame for byte in data for frame in parser.feed(bytes([byte]))] == expected


def test_a_bookmark_has_an_id_and_no_data() -> None:
    assert FrameParser().feed(b"id: 7-9\n\n") == [Frame("7-9", "message", None)]


def test_comments_and_blank_lines_are_no_frames() -> None:
    assert FrameParser().feed(b": open\n\n\n\n: x\n\n") == []


def test_an_id_with_a_null_is_ignored() -> None:
    assert FrameParser().feed(b"id: 7\x001\n\n") == []


def test_a_frame_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.client.sse._MAX_BYTES", 1000)
    parser = FrameParser()
    parser.feed(b"data: " + b"x" * 900)
    with pytest.raises(InvalidAnswer, match="1,000 bytes"):
        parser.feed(b"x" * 100)


def test_many_small_frames_are_not_one_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.client.sse._MAX_BYTES", 1000)
    parser = FrameParser()
    assert sum(len(parser.feed(b"data: {}\n\n")) for _ in range(1000)) == 1000
