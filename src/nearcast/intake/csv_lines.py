"""CSV files: a header, then one row a line, or over several lines where a quoted cell has breaks.

Blocks without quotes are read by Arrow, the others by Python's own reader, row by row. Cells are
text; an empty one is null.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from nearcast.errors import UnsupportedFile
from nearcast.intake.lines import Batch, LineFaults, filled_lines, is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.intake.lines import Block, Source

__all__ = ["read_csv"]

_LONGEST_CELL = 1 << 24
_MAX_LINES = 10_000


def read_csv(source: Source) -> Iterator[Batch]:
    """Return the batches of a CSV file."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    names: list[str] | None = None
    for block in source.blocks():
        rows = _Rows(source, block)
        names = names or _header(rows)
        if not names:
            continue
        faults = LineFaults()
        table, lines = _read_quickly(rows, names) or _read_slowly(rows, names, faults)
        yield Batch(table, lines, faults.rejects(), source.bytes_read, source.bytes_total)
    if not names:
        raise UnsupportedFile("has no header; the first line must name the columns")


class _Rows:
    """The rows of a block from Python's reader, which may ask for lines beyond the block."""

    def __init__(self, source: Source, block: Block) -> None:
        self.block = block
        self.first_line = block.first_line
        self._source = source
        self._waiting = deque(io.BytesIO(block.content).readlines())
        self._taken: list[bytes] = []
        self._reader = csv.reader(self, strict=True)

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> str:
        line = self._waiting.popleft() if self._waiting else self._source.line()
        if not line or len(self._taken) >= _MAX_LINES:
            if line:
                self._waiting.appendleft(line)
            raise StopIteration
        self._taken.append(line)
        return line.decode(errors="surrogateescape")

    def content(self) -> bytes:
        """Return the lines that are still to be read."""
        return b"".join(self._waiting)

    def next_row(self, faults: LineFaults) -> tuple[int, list[str], bytes] | None:
        """Return the next row with its line and what it said; None at the end of the block.

        Where a quote is not closed or not alone, its line is refused and the next one is a row.
        """
        while self._waiting:
            self._taken = []
            line = self.first_line
            try:
                cells = next(self._reader, None)
            except csv.Error as error:
                first, *others = self._taken
                self._waiting.extendleft(reversed(others))
                self.first_line += 1
                faults.add(line, "", f"is no row of a CSV file: {error}", first)
                continue
            self.first_line += len(self._taken)
            if cells:
                return line, cells, b"".join(self._taken)
        return None


def _header(rows: _Rows) -> list[str] | None:
    """Return the names of the columns; None where the block has empty lines only."""
    faults = LineFaults()
    row = rows.next_row(faults)
    if len(faults.rejects()):
        reason = faults.rejects().reason[0]
        raise UnsupportedFile(f"has no header that can be read: the first line {reason}")
    if row is None:
        return None
    names = [name.strip() for name in row[1]]
    if not is_utf8(row[2]) or len(set(names)) < len(names):
        raise UnsupportedFile(
            f"has no header that can be read: {row[2][:200]!r} must be distinct names in UTF-8"
        )
    return names


def _read_quickly(rows: _Rows, names: list[str]) -> tuple[pa.Table, NDArray[np.int64]] | None:
    """Read the rest of a block with Arrow; None where it needs more care."""
    content = rows.content()
    lone_returns = content.count(b"\r") - content.count(b"\r\n")
    if b'"' in content or lone_returns or not content.strip() or not is_utf8(content):
        return None
    lines, _, _ = filled_lines(rows.block._replace(content=content, first_line=rows.first_line))
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(content),
            arrow_csv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(content) + 1
            ),
            arrow_csv.ParseOptions(quote_char=False),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowException:
        return None
    return (table, lines) if table.num_rows == len(lines) else None


def _read_slowly(
    rows: _Rows, names: list[str], faults: LineFaults
) -> tuple[pa.Table, NDArray[np.int64]]:
    lines: list[int] = []
    columns: list[list[str | None]] = [[] for _ in names]
    while (row := rows.next_row(faults)) is not None:
        line, cells, raw = row
        if not is_utf8(raw):
            faults.add(line, "", "is not valid UTF-8", raw)
        elif len(cells) != len(names):
            reason = f"has {len(cells)} cells, the header names {len(names)} columns"
            faults.add(line, "", reason, raw)
        else:
            lines.append(line)
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell or None)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return pa.table(arrays, names), np.array(lines, np.int64)
