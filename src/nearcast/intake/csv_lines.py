"""CSV files: a header with the names of the columns, then one row per line.

A quoted cell may contain line breaks, so that its row continues on the following lines. That row
is accepted if the quote is closed before a comma or the end of a line, if the row then has as many
cells as the header, and if it has at most 10,000 lines and 16 MiB. Otherwise the quote is taken
for a stray one: only the line with the quote is rejected, and reading goes on with the next line.

Blocks without quotes are read by Arrow, all others by Python's `csv`, line by line. Cells are text;
an empty cell is null. The delimiter is the one that separates the names in the header.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from nearcast.errors import UnsupportedFile
from nearcast.intake.batches import Batch
from nearcast.intake.lines import (
    BYTE_ORDER_MARK,
    MAX_LINE_BYTES,
    LineErrors,
    is_utf8,
    nonempty_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.intake.lines import Block, LineSource

__all__ = ["read_csv"]

_MAX_ROW_LINES = 10_000
_MAX_ROW_BYTES = 1 << 24
_NO_ROW = "is not a CSV row"
_DELIMITERS = ",;\t|"  # the first of those that are equally frequent
_QUOTED = re.compile(rb'"[^"]*"')

# The number of lines of a row, and its cells.
_Row = tuple[int, list[str]]

# What a quoted cell that was opened on an earlier line does on a line.
_OPEN, _CLOSED, _BROKEN = "stays open", "is closed, and the row ends", "is closed inside a cell"


def read_csv(source: LineSource, file: str = "", delimiter: str | None = None) -> Iterator[Batch]:
    """Yield the batches of a CSV file, with the names of its header.

    Parameters
    ----------
    source
        The lines of the file.
    file
        The name of the file in rejects.
    delimiter
        What separates cells; None to detect it.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    names: list[str] | None = None
    for block in source.blocks():
        delimiter = delimiter or _delimiter_of(block.content)
        rows = _Rows(source, block, delimiter or ",")
        names = names or _header(rows)
        if not names and block.too_long is not None:
            raise UnsupportedFile(
                f"its first line is longer than {MAX_LINE_BYTES:,} bytes; check that it is CSV"
            )
        if not names:
            continue
        errors = LineErrors(file)
        table, lines = _read_fast(rows, names) or _read_slowly(rows, names, errors)
        rows.finish(errors)
        progress = source.bytes_read, source.bytes_total
        yield Batch(table, lines, errors.rejects(), *progress, file=file, empty_is_null=True)
    if not names:
        raise UnsupportedFile("has no header; the first line must name the columns")


class _Rows:
    """The rows of a block. A row that is open at the end of the block takes lines beyond it."""

    def __init__(self, source: LineSource, block: Block, delimiter: str) -> None:
        self.block = block
        self.delimiter = delimiter
        self.invalid = source.invalid
        self._source = source
        self._lines = io.BytesIO(block.content).readlines()
        self._too_long = block.too_long
        self._size = len(self._lines)
        self._at = 0
        self._quoted = _QuotedLines(delimiter)
        # Reads rows one after the other until the first that is not a row. From there on,
        # every line is looked at by itself, so that none is read again and again.
        self._reader: Any = csv.reader(map(_text, self._lines), delimiter=delimiter, strict=True)

    @property
    def line(self) -> int:
        """The number of the next line."""
        return self.block.first_line + self._at

    def remaining(self) -> bytes:
        """Return the lines that have not been read, without those that are too long."""
        return b"".join(self._lines[self._at :])

    def skip_remaining(self) -> None:
        """Regard all lines as read."""
        self._at = len(self._lines)

    def next_row(
        self, width: int | None, errors: LineErrors
    ) -> tuple[int, list[str], bytes] | None:
        """Return the next row: its line, its cells and its content; None at the end of the block.

        ``width`` is the number of cells that a row over several lines must have; None allows any.
        """
        while self._at < self._size:
            line, first = self.line, self._at
            found = self._next_simple_row(width) or self._careful_row(width)
            if isinstance(found, str):
                errors.add(line, "", f"{_NO_ROW}: {found}", self._lines[self._at])
                self._at += 1
                continue
            count, cells = found
            self._at += count
            if cells:
                return line, cells, b"".join(self._lines[first : self._at])
        return None

    def _next_simple_row(self, width: int | None) -> _Row | None:
        """Return the next row of the reader; None if it is not a row, now and from then on."""
        if self._reader is None:
            return None
        try:
            cells: list[str] = next(self._reader)
        except csv.Error:
            self._reader = None
            return None
        count = self._reader.line_num - self._at
        if count > 1:
            size = sum(map(len, self._lines[self._at : self._at + count]))
            fits = count <= _MAX_ROW_LINES and size <= _MAX_ROW_BYTES
            if not fits or (width is not None and len(cells) != width):
                self._reader = None
                return None
        return count, cells

    def _careful_row(self, width: int | None) -> _Row | str:
        """Return the number of lines of the next row and its cells, or why it is not a row."""
        cells = _cells(_text(self._lines[self._at]), self.delimiter)
        return self._row_over_lines(width) if isinstance(cells, csv.Error) else (1, cells)

    def finish(self, errors: LineErrors) -> None:
        """Reject a line that is too long, or return what was read beyond the block."""
        unread = self._lines[self._at :]
        if unread:
            self._source.give_back(unread, self.line, self._too_long)
        elif self._too_long is not None:
            errors.add_too_long(self.line, self._too_long)

    def _row_over_lines(self, width: int | None) -> _Row | str:
        """Return a row that does not end on its first line, or why it is not a row."""
        first = _text(self._lines[self._at])
        opened = _cells(first.rstrip("\r\n") + '"', self.delimiter)
        if isinstance(opened, csv.Error):
            return str(opened)
        end, state = self._end_of_quoted()
        count = end - self._at
        if state != _CLOSED:
            problem = "is not closed" if state == _OPEN else state
            return f"a quoted cell {problem}; a quote inside of one must be doubled"
        total = len(opened) + self._quoted.cells_between(self._at + 1, end)
        if width is not None and total != width:
            return (
                "a quoted cell is not closed on its line, and with the lines up to its end there "
                f"are {total} cells, the header names {width} columns"
            )
        lines = [_text(raw) for raw in self._lines[self._at : end]]
        try:
            return count, next(csv.reader(lines, delimiter=self.delimiter, strict=True))
        except csv.Error as error:
            return str(error)

    def _end_of_quoted(self) -> tuple[int, str]:
        """Return the line after the last one of a quoted cell that stays open on this one."""
        quoted, begin = self._quoted, self._at + 1
        quoted.start_at(begin)
        while quoted.state == _OPEN and not self._is_too_large(quoted):
            if quoted.end == len(self._lines) and not self._take_line():
                break
            quoted.add(self._lines[quoted.end])
        return quoted.end, _OPEN if self._is_too_large(quoted) else quoted.state

    def _is_too_large(self, quoted: _QuotedLines) -> bool:
        """Whether a row from the current line to the end of the quoted lines is too large."""
        size = len(self._lines[self._at]) + quoted.bytes_from(self._at + 1)
        return quoted.end - self._at > _MAX_ROW_LINES or size > _MAX_ROW_BYTES

    def _take_line(self) -> bool:
        """Read a line beyond the block; False at the end of the file or if it is too long."""
        if self._too_long is not None:
            return False
        line, too_long = self._source.read_line()
        if too_long:
            self._too_long = line
        elif line:
            self._lines.append(line)
        return bool(line) and not too_long


class _QuotedLines:
    """Lines from `start` to `end` on which a quoted cell continues, whichever opened it.

    Rows that begin on successive lines share these, so each line is looked at once: reading takes
    time linear in the size of the file, whatever quotes it has.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self.start = self.end = 0
        self.state = _OPEN
        self._cells = [0]
        self._bytes = [0]

    def start_at(self, line: int) -> None:
        """Forget what is known, unless it includes this line."""
        if not self.start <= line < self.end and not (line == self.end and self.state == _OPEN):
            self.start = self.end = line
            self.state, self._cells, self._bytes = _OPEN, [0], [0]

    def add(self, raw: bytes) -> None:
        """Add a line on which the cell is open at the beginning."""
        text = _text(raw)
        self.state = _CLOSED
        cells = _cells('"' + text, self._delimiter)
        if isinstance(cells, csv.Error):
            self.state = _OPEN
            cells = _cells('"' + text.rstrip("\r\n") + '"', self._delimiter)
        if isinstance(cells, csv.Error):
            self.state, cells = _BROKEN, [""]
        self._cells.append(self._cells[-1] + len(cells) - 1)
        self._bytes.append(self._bytes[-1] + len(raw))
        self.end += 1

    def cells_between(self, begin: int, end: int) -> int:
        """Return how many cells begin on these lines."""
        return self._cells[end - self.start] - self._cells[begin - self.start]

    def bytes_from(self, begin: int) -> int:
        """Return the size of the lines from this one on."""
        return self._bytes[-1] - self._bytes[begin - self.start]


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _cells(line: str, delimiter: str) -> list[str] | csv.Error:
    try:
        return next(csv.reader((line,), delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        return error


def _delimiter_of(content: bytes) -> str | None:
    """Return the delimiter of the first line that is not empty: the most frequent candidate.

    None if there is no such line.
    """
    line = next((line for line in io.BytesIO(content) if line.strip()), None)
    if line is None:
        return None
    unquoted = _QUOTED.sub(b"", line)
    return max(_DELIMITERS, key=lambda delimiter: unquoted.count(delimiter.encode()))


def _header(rows: _Rows) -> list[str] | None:
    """Return the names of the columns; None if the block has empty lines only."""
    errors = LineErrors()
    row = rows.next_row(None, errors)
    if len(errors.rejects()):
        reason = errors.rejects().reason[0]
        raise UnsupportedFile(f"has no readable header: the first line {reason}")
    if row is None:
        return None
    names = [name.strip() for name in row[1]]
    if not is_utf8(row[2]):
        raise UnsupportedFile(f"has no readable header: {row[2][:200]!r} {rows.invalid}")
    if len(set(names)) < len(names):
        raise UnsupportedFile(f"has no readable header: {row[2][:200]!r} must be distinct names")
    return names


def _read_fast(rows: _Rows, names: list[str]) -> tuple[pa.Table, NDArray[np.int64]] | None:
    """Read the rest of a block with Arrow; None if that is not possible."""
    content = rows.remaining()
    lone_returns = content.count(b"\r") - content.count(b"\r\n")
    if b'"' in content or lone_returns or not content.strip() or not is_utf8(content):
        return None
    lines, _, _ = nonempty_lines(rows.block._replace(content=content, first_line=rows.line))
    if content.startswith(BYTE_ORDER_MARK):  # Arrow drops one at the start of what it reads
        content = b"\n" + content
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(content),
            arrow_csv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(content) + 1
            ),
            arrow_csv.ParseOptions(delimiter=rows.delimiter, quote_char=False),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != len(lines):
        return None
    rows.skip_remaining()
    return table, lines


def _read_slowly(
    rows: _Rows, names: list[str], errors: LineErrors
) -> tuple[pa.Table, NDArray[np.int64]]:
    lines: list[int] = []
    columns: list[list[str | None]] = [[] for _ in names]
    while (row := rows.next_row(len(names), errors)) is not None:
        line, cells, raw = row
        if not is_utf8(raw):
            errors.add(line, "", rows.invalid, raw)
        elif len(cells) != len(names):
            reason = f"has {len(cells)} cells, the header names {len(names)} columns"
            errors.add(line, "", reason, raw)
        else:
            lines.append(line)
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell or None)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return pa.table(arrays, names), np.array(lines, np.int64)
