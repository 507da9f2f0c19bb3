"""Text files in blocks of whole lines, and what is common to the formats made of lines."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.intake.rejects import Rejects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Batch", "Block", "LineFaults", "Source", "filled_lines", "is_utf8"]

LONGEST_LINE_BYTES = 1 << 26
"""Where a line is cut that goes on and on, as in a file that is no text at all."""

_LONGEST_RECORD = 10_000


@dataclass(frozen=True, eq=False)
class Batch:
    """A piece of a file: a table, the number of each of its rows, and what could not be read.

    ``rows`` counts from 0 in Parquet files and gives the line, from 1, in text files.
    ``bytes_read`` of ``bytes_total`` tells how far the file is read.
    """

    table: pa.Table
    rows: NDArray[np.int64]
    rejects: Rejects
    bytes_read: int
    bytes_total: int


class Block(NamedTuple):
    """Whole lines, and the number of the first."""

    content: bytes
    first_line: int


class Source:
    """A file of lines, read block by block, and line by line where a block ends too early."""

    def __init__(self, file: BinaryIO, block_bytes: int) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._next_line = 1
        self.bytes_total = os.fstat(file.fileno()).st_size
        if self._file.read(3) != b"\xef\xbb\xbf":  # the byte order mark of some editors
            self._file.seek(0)

    @property
    def bytes_read(self) -> int:
        """How far the file is read."""
        return self._file.tell()

    def blocks(self) -> Iterator[Block]:
        """Return the file in blocks of whole lines."""
        while content := self._file.read(self._block_bytes):
            if not content.endswith(b"\n"):
                content += self._rest_of_line()
            first = self._next_line
            self._next_line += content.count(b"\n")
            yield Block(content, first)

    def line(self) -> bytes:
        """Return one more line, beyond the last block."""
        line = self._rest_of_line()
        self._next_line += line.count(b"\n")
        return line

    def _rest_of_line(self) -> bytes:
        line = cut = self._file.readline(LONGEST_LINE_BYTES)
        while len(cut) == LONGEST_LINE_BYTES and not cut.endswith(b"\n"):
            cut = self._file.readline(LONGEST_LINE_BYTES)
        return line


class LineFaults:
    """The lines of a block that could not be read."""

    def __init__(self) -> None:
        self._found: list[tuple[int, str, str, str]] = []

    def add(self, line: int, field: str, reason: str, raw: bytes | str) -> None:
        """Refuse a line; ``raw`` is what it said."""
        text = raw if isinstance(raw, str) else raw.decode(errors="replace")
        self._found.append((line, field, reason, json.dumps(text.rstrip("\r\n")[:_LONGEST_RECORD])))

    def rejects(self) -> Rejects:
        """Return the refused lines."""
        return Rejects.of(self._found)


def filled_lines(block: Block) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    r"""Return the lines of a block that are not empty: numbers, first byte, end without line feed.

    Examples
    --------
    >>> [part.tolist() for part in filled_lines(Block(b"a\n\nbc", 7))]
    [[7, 9], [0, 3], [1, 5]]
    """
    content = np.frombuffer(block.content, np.uint8)
    end = np.flatnonzero(content == ord("\n"))
    if not len(end) or end[-1] != len(content) - 1:
        end = np.append(end, len(content))
    begin = np.concatenate([[0], end[:-1] + 1])
    last = content[np.maximum(end - 1, 0)]
    end = end - ((end > begin) & (last == ord("\r")))
    filled = np.flatnonzero(end > begin)
    return block.first_line + filled, begin[filled], end[filled]


def is_utf8(content: bytes) -> bool:
    """Whether bytes are text."""
    try:
        return content.isascii() or content.decode() is not None
    except UnicodeDecodeError:
        return False
