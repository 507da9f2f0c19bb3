"""Text files in blocks of whole lines, and what CSV and JSON lines have in common."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.intake.rejects import Rejects

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.intake.byte_streams import TextStream

__all__ = ["Block", "LineErrors", "LineSource", "is_utf8", "nonempty_lines"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

MAX_LINE_BYTES = 1 << 26
"""A longer line is rejected; it is usually a sign that the file is not text."""

_MAX_RECORD = 10_000
_PEEK_BYTES = 1 << 16


class Block(NamedTuple):
    """Whole lines, and the number of the first.

    ``too_long`` is the beginning of a line that follows and is longer than `MAX_LINE_BYTES`.
    """

    content: bytes
    first_line: int
    too_long: bytes | None = None

    @property
    def next_line(self) -> int:
        """The number of the line after the content."""
        return self.first_line + self.content.count(b"\n")


class LineSource:
    """A text file that is read in blocks of whole lines.

    A reader that needs lines beyond its block takes them with `read_line`, and returns those that
    it does not use with `give_back`.
    """

    def __init__(self, stream: TextStream, block_bytes: int) -> None:
        self._stream = stream
        self._file = stream.file
        self._block_bytes = block_bytes
        self._next_line = 1
        self._given_back = Block(b"", 1)
        self.bytes_total = stream.size
        self.invalid = f"is not valid {stream.encoding.upper()}"

    @property
    def bytes_read(self) -> int:
        """How many bytes of the file have been read."""
        return self._stream.position()

    def peek(self) -> bytes:
        """Return some bytes of the beginning, which are read again; before any block."""
        return self._file.peek(_PEEK_BYTES)[:_PEEK_BYTES]

    def blocks(self) -> Iterator[Block]:
        """Yield the file in blocks of whole lines."""
        while True:
            block, self._given_back = self._given_back, Block(b"", 1)
            if not block.content and block.too_long is None:
                block = self._read_block()
            if not block.content and block.too_long is None:
                return
            yield block

    def read_line(self) -> tuple[bytes, bool]:
        """Return the line after the last block, and whether it was too long and is cut off."""
        line, too_long = self._rest_of_line(b"")
        self._next_line += too_long or line.endswith(b"\n")
        return line, too_long

    def read_bytes(self, size: int) -> bytes:
        """Return the next bytes of the file, for readers of something else than lines."""
        return self._file.read(size)

    def give_back(self, lines: Sequence[bytes], first_line: int, too_long: bytes | None) -> None:
        """Make lines the next block; they were read beyond the last one."""
        self._given_back = Block(b"".join(lines), first_line, too_long)

    def _read_block(self) -> Block:
        first = self._next_line
        content = self._file.read(self._block_bytes)
        beginning, too_long = b"", False
        if content and not content.endswith(b"\n"):
            start_of_line = content.rfind(b"\n") + 1
            line, too_long = self._rest_of_line(content[start_of_line:])
            content, beginning = content[:start_of_line], line
            if not too_long:
                content += line
        self._next_line += content.count(b"\n") + too_long
        return Block(content, first, beginning if too_long else None)

    def _rest_of_line(self, beginning: bytes) -> tuple[bytes, bool]:
        """Read to the end of the line; return it, or its beginning and True if it is too long."""
        line = beginning + self._file.readline(max(0, MAX_LINE_BYTES + 1 - len(beginning)))
        if len(line) <= MAX_LINE_BYTES:
            return line, False
        piece = line
        while piece and not piece.endswith(b"\n"):
            piece = self._file.readline(MAX_LINE_BYTES)
        return line[:_MAX_RECORD], True


class LineErrors:
    """The lines of a block of a file that could not be read."""

    def __init__(self, file: str = "") -> None:
        self._file = file
        self._found: list[tuple[int, str, str, str]] = []

    def add(self, line: int, field: str, reason: str, raw: bytes | str) -> None:
        """Reject a line; ``raw`` is its content."""
        text = raw if isinstance(raw, str) else raw.decode(errors="replace")
        self._found.append((line, field, reason, json.dumps(text.rstrip("\r\n")[:_MAX_RECORD])))

    def add_record(self, line: int, field: str, reason: str, record: str) -> None:
        """Reject a record that is JSON."""
        self._found.append((line, field, reason, record.strip()))

    def add_too_long(self, line: int, beginning: bytes) -> None:
        """Reject a line that is longer than `MAX_LINE_BYTES`."""
        self.add(line, "", f"is longer than {MAX_LINE_BYTES:,} bytes", beginning)

    def rejects(self) -> Rejects:
        """Return the rejected lines."""
        return Rejects.of(self._found, self._file)


def nonempty_lines(block: Block) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    r"""Return the number, the first byte and the end, without line break, of all nonempty lines.

    Examples
    --------
    >>> [part.tolist() for part in nonempty_lines(Block(b"a\n\nbc", 7))]
    [[7, 9], [0, 3], [1, 5]]
    """
    content = np.frombuffer(block.content, np.uint8)
    end = np.flatnonzero(content == ord("\n"))
    if not len(content):
        return end, end, end
    if not len(end) or end[-1] != len(content) - 1:
        end = np.append(end, len(content))
    begin = np.concatenate([[0], end[:-1] + 1])
    last = content[np.maximum(end - 1, 0)]
    end = end - ((end > begin) & (last == ord("\r")))
    nonempty = np.flatnonzero(end > begin)
    return block.first_line + nonempty, begin[nonempty], end[nonempty]


def is_utf8(content: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    try:
        return content.isascii() or content.decode() is not None
    except UnicodeDecodeError:
        return False
