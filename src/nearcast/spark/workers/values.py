"""Read the values of a Kafka topic, by the rules for the lines of a JSON file."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import UnsupportedFile
from nearcast.intake.byte_streams import TextStream
from nearcast.intake.json_lines import read_json
from nearcast.intake.json_records import JsonColumns, Record, parsed, read_records
from nearcast.intake.lines import LineSource
from nearcast.intake.reading import Reading
from nearcast.spark.workers.reading import frame_batches, read_batch
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.intake import Batch
    from nearcast.spark.workers.cleaning import Cleaning

__all__ = ["ReadValues", "read_values"]

_LINES = Reading(format="json")
_NOT_UTF8 = "is not valid UTF-8"


@dataclass(frozen=True)
class ReadValues:
    """Reads JSON objects from ``value``; ``topic``, ``partition`` and ``offset`` say which.

    Parameters
    ----------
    cleaning
        The kind and the columns of the rows.
    """

    cleaning: Cleaning

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read these values."""
        for batch in batches:
            table = pa.Table.from_batches([batch])
            topic, partition = (table[name].cast(pa.string()) for name in ("topic", "partition"))
            names = pc.binary_join_element_wise(topic, partition, "/")
            for name in pc.unique(names).to_pylist():
                own = table.filter(pc.equal(names, name)).sort_by("offset")
                values, offset = own["value"].to_pylist(), own["offset"].to_numpy()
                found = read_values(values, offset, name, self.cleaning.kind)
                read = (read_batch(one, self.cleaning, Vocabulary()) for one in found)
                yield from frame_batches(read, self.cleaning, 0)


def read_values(
    values: Sequence[bytes | None], number: NDArray[np.int64], file: str, kind: str
) -> Iterator[Batch]:
    r"""Yield the rows of JSON objects as those of a file with one object per line.

    ``number`` has their numbers, ascending.

    Examples
    --------
    >>> values = [b'{"id": 7, "text": "tea", "lon": 1, "lat": 2}', None]
    >>> batches = [*read_values(values, np.array([40, 41]), "topic/0", "messages")]
    >>> [(batch.rows.tolist(), batch.rejects.row.tolist()) for batch in batches]
    [([], [41]), ([40], [])]
    """
    plain = [_is_line(value) for value in values]
    lines = _read_lines([*compress(values, plain)], file, kind)
    if lines is None:
        lines, plain = [], [False] * len(values)
    for batch in _read_records(values, plain, file, kind):
        yield _numbered(batch, number)
    own = number[np.flatnonzero(plain)]
    for batch in lines:
        shifted = replace(batch.rejects, row=batch.rejects.row - 1)
        yield _numbered(replace(batch, rows=batch.rows - 1, rejects=shifted), own)


def _is_line(value: bytes | None) -> bool:
    """Whether a value may be one line of a file: neither several lines, nor a document."""
    if not value or not value.startswith(b"{"):
        return False
    return b"\n" not in value and b"\r" not in value and b'"features"' not in value


def _read_lines(values: list[bytes | None], file: str, kind: str) -> list[Batch] | None:
    """Return the batches of values, one on each line; None if they must be read one by one."""
    content = b"\n".join(value for value in values if value is not None)
    if not content:
        return []
    raw: Any = io.BufferedReader(io.BytesIO(content))
    stream = TextStream(raw, "utf-8", raw.tell, len(content))
    try:
        return [*read_json(LineSource(stream, len(content) + 1), _LINES, kind, file)]
    except UnsupportedFile:  # a question about a field, which is a reason to reject a row here
        return None


def _read_records(
    values: Sequence[bytes | None], without: Sequence[bool], file: str, kind: str
) -> Iterator[Batch]:
    """Yield the rows of values, without some, one by one."""
    columns = JsonColumns(kind, file=file)
    columns.first = False  # no question is asked
    records = (
        Record(at, (value or b"").decode(errors="replace"), parsed(value or b"null", _NOT_UTF8))
        for at, value in enumerate(values)
        if not without[at]
    )
    return read_records(records, columns, 0, 0)


def _numbered(batch: Batch, number: NDArray[np.int64]) -> Batch:
    """Return a batch whose rows are positions in ``number``, with these numbers."""
    rejects = replace(batch.rejects, row=number[batch.rejects.row])
    return replace(batch, rows=number[batch.rows], rejects=rejects)
