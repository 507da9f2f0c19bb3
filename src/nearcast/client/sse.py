"""Server-sent events, from bytes as they arrive to frames (WHATWG HTML, section 9.2)."""

from __future__ import annotations

from typing import NamedTuple

from nearcast.client.errors import InvalidAnswer

__all__ = ["Frame", "FrameParser"]

_MAX_BYTES = 64 << 20
_BOM = b"\xef\xbb\xbf"


class Frame(NamedTuple):
    """A frame; ``id`` is None if it has none, and ``data`` if it is only a bookmark."""

    id: str | None
    event: str
    data: str | None


class FrameParser:
    r"""Collects bytes, cut anywhere, into frames. A frame that is cut off is never returned.

    Examples
    --------
    >>> parser = FrameParser()
    >>> parser.feed(b"id: 7-1\nevent: match\nda")
    []
    >>> parser.feed(b"ta: {}\n\n: still here\n\n")
    [Frame(id='7-1', event='match', data='{}')]
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._started = False
        self._after_cr = False
        self._bytes = 0
        self._id: str | None = None
        self._event = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if data.endswith(b"\r"):
            self._after_cr = True
        self._line += data
        self._bytes += len(data)
        if not self._started:
            if len(self._line) < len(_BOM) and _BOM.startswith(self._line):
                return []
            self._started = True
            if self._line.startswith(_BOM):
                del self._line[: len(_BOM)]
        *lines, rest = bytes(self._line).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line = bytearray(rest)
        found = [frame for line in lines if (frame := self._take(line)) is not None]
        if self._bytes > _MAX_BYTES:
            raise InvalidAnswer(f"a frame of the stream has more than {_MAX_BYTES:,} bytes")
        return found

    def _take(self, line: bytes) -> Frame | None:
        """Take a line; return the frame that it ends."""
        if not line:
            return self._end()
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._event = text
        elif name == b"id" and "\0" not in text:
            self._id = text
        return None

    def _end(self) -> Frame | None:
        data = "\n".join(self._data) if self._data else None
        frame = Frame(self._id, self._event or "message", data)
        self._id, self._event, self._data = None, "", []
        self._bytes = len(self._line)
        return frame if frame.id is not None or frame.data is not None else None
