"""Files of subscriptions and messages: Parquet, GeoParquet, CSV and JSON lines.

`open_table` yields the batches of a file; `load_subscriptions` and `load_messages` return columns.
A line that cannot be read is rejected with its number, and the others are read.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from nearcast.columns import Subscriptions
from nearcast.errors import UnsupportedFile
from nearcast.intake.csv_lines import read_csv
from nearcast.intake.json_lines import read_json_lines
from nearcast.intake.lines import Batch, LineSource
from nearcast.intake.messages import MessageBatch, read_messages
from nearcast.intake.rejects import Rejects
from nearcast.intake.subscriptions import read_subscriptions
from nearcast.text import IdTable, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nearcast.text import Tokenizer, Vocabulary

__all__ = ["FORMATS", "load_messages", "load_subscriptions", "open_table"]

FORMATS = (".parquet", ".geoparquet", ".csv", ".ndjson", ".jsonl", ".json")
"""The file extensions that `open_table` reads."""

_BATCH_ROWS = 200_000
_BLOCK_BYTES = 1 << 25


def open_table(
    path: str | os.PathLike[str],
    *,
    batch_rows: int = _BATCH_ROWS,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[Batch]:
    r"""Yield the batches of a Parquet, CSV or JSON lines file.

    Parameters
    ----------
    path
        The file; its extension determines the format.
    batch_rows
        The maximum number of rows in a batch of a Parquet file.
    block_bytes
        The approximate size of a batch of a text file.

    Raises
    ------
    UnsupportedFile
        If the file does not exist or cannot be read in the format of its extension.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "places.csv"
    >>> _ = path.write_text("id,lon,lat\na,13.4,52.5\nb,13.5\n")
    >>> [batch] = open_table(path)
    >>> batch.table.column("lon").to_pylist(), batch.rejects.reason
    (['13.4'], ('has 2 cells, the header names 3 columns',))
    """
    where = Path(path)
    extension = where.suffix.lower()
    if extension not in FORMATS:
        raise UnsupportedFile(
            f"{where}: cannot tell the format from {extension or 'no extension'!r}; "
            f"name it one of {', '.join(FORMATS)}"
        )
    with _naming(where):
        try:
            if extension in {".parquet", ".geoparquet"}:
                yield from _read_parquet(where, batch_rows)
            else:
                with open(where, "rb") as file:
                    source = LineSource(file, block_bytes)
                    yield from read_csv(source) if extension == ".csv" else read_json_lines(source)
        except FileNotFoundError:
            raise UnsupportedFile("there is no such file; check the path") from None
        except (pa.ArrowException, OSError) as error:
            raise UnsupportedFile(f"cannot be read as {extension[1:]}: {error}") from error


def load_subscriptions(
    path: str | os.PathLike[str],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer = words,
    *,
    progress: Callable[[Batch], None] | None = None,
) -> tuple[Subscriptions, Rejects]:
    """Return the subscriptions of a file, and the rejected rows.

    Parameters
    ----------
    path
        The file, of one of the formats of `open_table`.
    vocabulary
        New tokens are added to it.
    tokenizer
        Splits keywords into tokens.
    progress
        Called after every batch.

    Raises
    ------
    UnsupportedFile
        If the file cannot be read, or has no columns for ids and places.
    """
    parts, rejects = [Subscriptions.empty()], []
    seen = IdTable()
    for batch in open_table(path):
        with _naming(path):
            part, rejected = read_subscriptions(
                batch.table, vocabulary, tokenizer, rows=batch.rows, seen=seen
            )
        parts.append(part)
        rejects += [batch.rejects, rejected]
        if progress is not None:
            progress(batch)
    return Subscriptions.concatenate(parts), Rejects.concatenate(rejects)


def load_messages(
    path: str | os.PathLike[str],
    tokenizer: Tokenizer = words,
    *,
    now_us: int,
    progress: Callable[[Batch], None] | None = None,
) -> Iterator[tuple[MessageBatch, Rejects]]:
    """Yield the messages of a file batch by batch, and the rejected rows.

    Ids are only compared within a batch, because a file may be larger than memory.

    Parameters
    ----------
    path
        The file, of one of the formats of `open_table`.
    tokenizer
        Splits text into tokens; the same one as for the subscriptions.
    now_us
        The time of messages without one, in microseconds since 1970.
    progress
        Called after every batch.

    Raises
    ------
    UnsupportedFile
        If the file cannot be read, or has no columns for ids, words and places.
    """
    for batch in open_table(path):
        with _naming(path):
            messages, rejected = read_messages(
                batch.table, tokenizer, now_us=now_us, rows=batch.rows
            )
        yield messages, Rejects.concatenate([batch.rejects, rejected])
        if progress is not None:
            progress(batch)


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Prepend the name of the file to error messages."""
    try:
        yield
    except UnsupportedFile as error:
        raise UnsupportedFile(f"{os.fspath(path)}: {error}") from None


def _read_parquet(path: Path, batch_rows: int) -> Iterator[Batch]:
    total = path.stat().st_size
    with parquet.ParquetFile(path) as file:
        names = _column_names(file.schema_arrow)
        rows = max(file.metadata.num_rows, 1)
        first = 0
        for piece in file.iter_batches(batch_rows):
            table = pa.Table.from_batches([piece]).rename_columns(names)
            number = np.arange(first, first + len(piece))
            first += len(piece)
            yield Batch(table, number, Rejects.empty(), total * first // rows, total)
        if not first:
            empty = file.schema_arrow.empty_table().rename_columns(names)
            yield Batch(empty, np.empty(0, np.int64), Rejects.empty(), total, total)


def _column_names(schema: pa.Schema) -> list[str]:
    """Return the names of the columns; the primary geometry of GeoParquet is ``geometry``."""
    names: list[str] = list(schema.names)
    raw = (schema.metadata or {}).get(b"geo")
    if raw is None:
        return names
    try:
        geo = json.loads(raw)
        primary = geo["primary_column"]
        column = geo["columns"][primary]
        encoding, reference = column["encoding"], column.get("crs")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnsupportedFile("its GeoParquet metadata cannot be read") from None
    if encoding != "WKB" or not _is_lon_lat(reference):
        raise UnsupportedFile(
            f"the geometry column {primary!r} must be WKB in longitude and latitude (OGC:CRS84), "
            f"is {encoding} in {_reference_name(reference)}; convert it"
        )
    if "geometry" not in names:
        names = ["geometry" if name == primary else name for name in names]
    return names


def _reference_name(reference: Any) -> str:
    """Return the name of a coordinate reference system."""
    known = reference if isinstance(reference, dict) else {}
    own = known.get("id") if isinstance(known.get("id"), dict) else {}
    code = f"{own.get('authority')}:{own.get('code')}" if own else known.get("name")
    return str(code or "longitude and latitude")


def _is_lon_lat(reference: Any) -> bool:
    """Whether a coordinate reference system is that of GeoJSON, or is not given."""
    if reference is None:
        return True
    known = reference.get("id", {}) if isinstance(reference, dict) else {}
    return (known.get("authority"), str(known.get("code"))) in {
        ("OGC", "CRS84"),
        ("EPSG", "4326"),
    }
