"""Files of subscriptions and messages: Parquet, GeoParquet, CSV, JSON lines and GeoJSON.

`open_table` yields the batches of a file, a folder or a pattern, and `open_file` those of one file;
`load_subscriptions` and `load_messages` return columns. A record that cannot be read is rejected
with its file and number, and the others are read.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from nearcast.columns import Subscriptions
from nearcast.errors import UnsupportedFile
from nearcast.intake.byte_streams import open_text
from nearcast.intake.csv_lines import read_csv
from nearcast.intake.json_lines import read_json
from nearcast.intake.lines import LineSource
from nearcast.intake.messages import MessageBatch, read_messages
from nearcast.intake.parquet_files import read_parquet
from nearcast.intake.reading import (
    COMPRESSED,
    Reading,
    extension_of,
    find_files,
    format_of,
    name_of,
)
from nearcast.intake.rejects import Rejects
from nearcast.intake.renaming import with_our_names
from nearcast.intake.subscriptions import read_subscriptions
from nearcast.text import IdTable, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nearcast.intake.batches import Batch
    from nearcast.text import Tokenizer, Vocabulary

__all__ = ["column_names", "load_messages", "load_subscriptions", "open_file", "open_table"]

_BATCH_ROWS = 200_000
_BLOCK_BYTES = 1 << 25
_HEADER_BYTES = 1 << 16
_PARTS_OF_FEATURES = ("properties", "geometry")  # where paths may begin
_LINES = (".ndjson", ".jsonl")
_AS_IT_IS = Reading()


def open_table(
    path: str | os.PathLike[str],
    reading: Reading = _AS_IT_IS,
    *,
    kind: str | None = "messages",
    batch_rows: int = _BATCH_ROWS,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[Batch]:
    r"""Yield the batches of files.

    Parameters
    ----------
    path
        A file, a folder or a pattern such as ``data/*.csv``; see `find_files`.
    reading
        How the files are read.
    kind
        ``messages``, ``subscriptions``, ``moves`` or ``changes``, whose columns are looked for;
        None to leave the names of the columns as they are.
    batch_rows
        The maximum number of rows in a batch of a Parquet file.
    block_bytes
        The approximate size of a batch of a text file.

    Raises
    ------
    UnsupportedFile
        If a file does not exist or cannot be read in its format, or if it is not clear which
        columns are meant.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "places.csv"
    >>> _ = path.write_text("id;lng;lat\na;13.4;52.5\nb;13.5\n")
    >>> [batch] = open_table(path)
    >>> batch.table.column("lon").to_pylist(), batch.taken, batch.rejects.reason
    (['13.4'], {'lon': 'lng'}, ('has 2 cells, the header names 3 columns',))
    """
    files = find_files(path)
    sizes = [file.stat().st_size for file in files]
    done = 0
    for file, size in zip(files, sizes, strict=True):
        for batch in open_file(
            file,
            reading,
            kind=kind,
            name=name_of(file, path),
            batch_rows=batch_rows,
            block_bytes=block_bytes,
        ):
            yield replace(batch, bytes_read=done + batch.bytes_read, bytes_total=sum(sizes))
        done += size


def open_file(
    path: str | os.PathLike[str],
    reading: Reading = _AS_IT_IS,
    *,
    kind: str | None = "messages",
    name: str | None = None,
    piece: tuple[int, int] | None = None,
    batch_rows: int = _BATCH_ROWS,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[Batch]:
    """Yield the batches of one file.

    Parameters
    ----------
    path
        The file: a path, or a URI of a file system that PyArrow has, such as ``s3://``.
    reading, kind, batch_rows, block_bytes
        As for `open_table`.
    name
        What the file is called in rejects and in ids that are made; its last part by default.
    piece
        Only for Parquet: the first row group to read, and the one after the last.

    Raises
    ------
    UnsupportedFile
        As for `open_table`.
    """
    where = os.fspath(path)
    called = where.replace(os.sep, "/").rsplit("/", 1)[-1] if name is None else name
    with naming(where):
        form = format_of(where, reading)
        try:
            if form == "parquet":
                if Path(where).suffix.lower() in COMPRESSED:
                    raise UnsupportedFile(
                        "Parquet files are compressed inside; decompress this one first"
                    )
                batches = read_parquet(where, batch_rows, called, piece)
                yield from (with_our_names(batch, reading, kind) for batch in batches)
                return
            if piece is not None:
                raise UnsupportedFile("only Parquet files are read in pieces")
            with open_text(where, reading.encoding) as stream:
                source = LineSource(stream, block_bytes)
                if form == "csv":
                    tab = "\t" if extension_of(where) == ".tsv" else None
                    rows = read_csv(source, called, reading.delimiter or tab)
                    yield from (with_our_names(batch, reading, kind) for batch in rows)
                else:
                    shape = reading.format or (None if form == "json" else form)
                    lines = reading.format is None and extension_of(where) in _LINES
                    given = replace(reading, format=shape)
                    yield from read_json(source, given, kind, called, lines_only=lines)
        except FileNotFoundError:
            raise UnsupportedFile("there is no such file; check the path") from None
        except (pa.ArrowException, OSError) as error:
            raise UnsupportedFile(f"cannot be read as {form}: {error}") from error


def column_names(path: str | os.PathLike[str], reading: Reading = _AS_IT_IS) -> list[str] | None:
    """Return the columns of the first of some files; those of JSON by its first records.

    None if they cannot be told: there are no records, or none that can be read.

    Raises
    ------
    UnsupportedFile
        As for `open_table`.
    """
    file = find_files(path)[0]
    with naming(file):
        form = format_of(file.name, reading)
    plain = replace(reading, columns=(), ids=None)
    batches = open_file(file, plain, kind=None, batch_rows=1, block_bytes=_HEADER_BYTES)
    batch = next(batches, None)
    if batch is None:
        return None
    names = list(batch.table.column_names)
    if form in {"csv", "parquet"}:
        return names
    given = [name for name in names if batch.table.column(name).null_count < len(batch.rows)]
    return [*dict.fromkeys([*given, *batch.unused, *_PARTS_OF_FEATURES])] if given else None


def load_subscriptions(
    path: str | os.PathLike[str],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer = words,
    *,
    reading: Reading = _AS_IT_IS,
    progress: Callable[[Batch], None] | None = None,
) -> tuple[Subscriptions, Rejects]:
    r"""Return the subscriptions of files, and the rejected rows.

    Parameters
    ----------
    path
        A file, a folder or a pattern, in the formats of `open_table`.
    vocabulary
        New tokens are added to it.
    tokenizer
        Splits keywords into tokens.
    reading
        How the files are read.
    progress
        Called after every batch.

    Raises
    ------
    UnsupportedFile
        If a file cannot be read, or has no columns for ids and places.

    Examples
    --------
    >>> import tempfile
    >>> from nearcast.text import Vocabulary
    >>> path = Path(tempfile.mkdtemp()) / "subscriptions.csv"
    >>> _ = path.write_text("id,keywords,lon,lat,radius_m\n1,hot tea,0,0,5\n2,cake,0,95,5\n")
    >>> subscriptions, rejects = load_subscriptions(path, Vocabulary())
    >>> subscriptions.ids.tolist(), rejects.row.tolist(), rejects.field
    (['1'], [3], ('lat',))
    """
    parts, rejects = [Subscriptions.empty()], []
    seen = IdTable()
    for batch in open_table(path, reading, kind="subscriptions"):
        with naming(file_of(path, batch)):
            part, rejected = read_subscriptions(
                batch.table, vocabulary, tokenizer, source=batch, seen=seen
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
    reading: Reading = _AS_IT_IS,
    progress: Callable[[Batch], None] | None = None,
) -> Iterator[tuple[MessageBatch, Rejects]]:
    r"""Yield the messages of files batch by batch, and the rejected rows.

    Ids are only compared within a batch, because a file may be larger than memory.

    Parameters
    ----------
    path
        A file, a folder or a pattern, in the formats of `open_table`.
    tokenizer
        Splits text into tokens; the same one as for the subscriptions.
    now_us
        The time of messages without one, in microseconds since 1970.
    reading
        How the files are read.
    progress
        Called after every batch.

    Raises
    ------
    UnsupportedFile
        If a file cannot be read, or has no columns for ids, words and places.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "messages.csv"
    >>> _ = path.write_text("id,text,lon,lat\n1,Hot tea,0,0\n")
    >>> [messages.ids.tolist() for messages, _ in load_messages(path, now_us=0)]
    [['1']]
    """
    for batch in open_table(path, reading):
        with naming(file_of(path, batch)):
            messages, rejected = read_messages(batch.table, tokenizer, now_us=now_us, source=batch)
        yield messages, Rejects.concatenate([batch.rejects, rejected])
        if progress is not None:
            progress(batch)


def file_of(path: str | os.PathLike[str], batch: Batch) -> str:
    """Return the file of a batch, for error messages."""
    where = os.fspath(path)
    return where if Path(where).name == batch.file else f"{where} ({batch.file})"


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Prepend the name of the file to error messages."""
    try:
        yield
    except UnsupportedFile as error:
        raise UnsupportedFile(f"{os.fspath(path)}: {error}") from None
