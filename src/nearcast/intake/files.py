"""Files of subscriptions and messages, batch by batch: Parquet, CSV and JSON lines.

`open_table` gives the batches of any of them; `load_subscriptions` and `load_messages` make columns
of them. A line that cannot be read is refused with its number, and the rest goes on.
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
from nearcast.intake.lines import Batch, Source
from nearcast.intake.messages import MessageBatch, read_messages
from nearcast.intake.rejects import Rejects
from nearcast.intake.subscriptions import read_subscriptions
from nearcast.text import IdTable, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nearcast.text import Tokenizer, Vocabulary

__all__ = ["FORMATS", "load_messages", "load_subscriptions", "open_table"]

FORMATS = (".parquet", ".geoparquet", ".csv", ".ndjson", ".jsonl", ".json")
"""How the name of a file may end that `open_table` reads."""

_BATCH_ROWS = 200_000
_BLOCK_BYTES = 1 << 25


def open_table(
    path: str | os.PathLike[str],
    *,
    batch_rows: int = _BATCH_ROWS,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[Batch]:
    r"""Return the batches of a Parquet, CSV or JSON lines file.

    Parameters
    ----------
    path
        The file; its name tells the format.
    batch_rows
        How many rows a batch of a Parquet file has at most.
    block_bytes
        About how many bytes of a text file make a batch.

    Raises
    ------
    UnsupportedFile
        When there is no such file, or it cannot be read as what its name says.

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
                    source = Source(file, block_bytes)
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
    """Return the subscriptions of a file, and the rows that are none.

    Parameters
    ----------
    path
        The file, of one of the formats of `open_table`.
    vocabulary
        Takes up the tokens that it does not know.
    tokenizer
        What makes tokens of keywords.
    progress
        Is called after every batch.

    Raises
    ------
    UnsupportedFile
        When the file cannot be read, or has no columns for ids and places.
    """
    parts, rejects = [Subscriptions.empty()], []
    seen = IdTable()
    for batch in open_table(path):
        with _naming(path):
            part, refused = read_subscriptions(
                batch.table, vocabulary, tokenizer, rows=batch.rows, seen=seen
            )
        parts.append(part)
        rejects += [batch.rejects, refused]
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
    """Return the messages of a file batch by batch, and the rows that are none.

    An id is only compared with those of the same batch: a file may be longer than memory.

    Parameters
    ----------
    path
        The file, of one of the formats of `open_table`.
    tokenizer
        What makes tokens of text; the same as for the subscriptions.
    now_us
        The time of messages without one, in microseconds since 1970.
    progress
        Is called after every batch.

    Raises
    ------
    UnsupportedFile
        When the file cannot be read, or has no columns for ids, words and places.
    """
    for batch in open_table(path):
        with _naming(path):
            messages, refused = read_messages(
                batch.table, tokenizer, now_us=now_us, rows=batch.rows
            )
        yield messages, Rejects.concatenate([batch.rejects, refused])
        if progress is not None:
            progress(batch)


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the name of the file before what is wrong with it."""
    try:
        yield
    except UnsupportedFile as error:
        raise UnsupportedFile(f"{os.fspath(path)}: {error}") from None


def _read_parquet(path: Path, batch_rows: int) -> Iterator[Batch]:
    total = path.stat().st_size
    with parquet.ParquetFile(path) as file:
        names = _geometry_first(file.schema_arrow)
        rows = max(file.metadata.num_rows, 1)
        first = 0
        for piece in file.iter_batches(batch_rows):
            table = pa.Table.from_batches([piece]).rename_columns(names)
            number = np.arange(first, first + len(piece))
            first += len(piece)
            yield Batch(table, number, Rejects.empty(), total * first // rows, total)
        if not first:
            nothing = file.schema_arrow.empty_table().rename_columns(names)
            yield Batch(nothing, np.empty(0, np.int64), Rejects.empty(), total, total)


def _geometry_first(schema: pa.Schema) -> list[str]:
    """Return the names of the columns, the main geometry of a GeoParquet file as ``geometry``."""
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
    """Return how a coordinate reference system calls itself."""
    known = reference if isinstance(reference, dict) else {}
    own = known.get("id") if isinstance(known.get("id"), dict) else {}
    code = f"{own.get('authority')}:{own.get('code')}" if own else known.get("name")
    return str(code or "longitude and latitude")


def _is_lon_lat(reference: Any) -> bool:
    """Whether a coordinate reference system is that of GeoJSON, or none is named."""
    if reference is None:
        return True
    known = reference.get("id", {}) if isinstance(reference, dict) else {}
    return (known.get("authority"), str(known.get("code"))) in {
        ("OGC", "CRS84"),
        ("EPSG", "4326"),
    }
