"""How files are read: the options that all commands have in common, and which files there are."""

from __future__ import annotations

import codecs
import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nearcast.errors import InvalidInput, UnknownName, UnsupportedFile

if TYPE_CHECKING:
    import os

__all__ = ["COMPRESSED", "FORMATS", "FORMAT_NAMES", "Reading", "find_files", "format_of", "name_of"]

FORMATS = {
    ".parquet": "parquet",
    ".geoparquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "json",
    ".jsonl": "json",
    ".json": "json",
    ".geojson": "geojson",
}
"""The format of each file extension."""

FORMAT_NAMES = ("parquet", "csv", "json", "geojson")

COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
"""The compression of each further extension of a text file, as in ``messages.csv.gz``."""

_MADE_IDS = ("row", "hash")


@dataclass(frozen=True)
class Reading:
    r"""How files are read.

    Parameters
    ----------
    format
        ``parquet``, ``csv``, ``json`` (one object per line) or ``geojson``; None for the format of
        the file's extension. A ``.json`` file may also be a GeoJSON document.
    encoding
        The encoding of text files; None for UTF-8, or what a byte order mark says.
    delimiter
        What separates the cells of CSV; None for the one of ``,`` ``;`` ``|`` and tab that the
        header has, and for a tab in ``.tsv``.
    columns
        Our names of columns and their paths in the source, such as ``{"lon": "x"}`` or ``{"lon":
        "geometry.coordinates[0]"}``, or pairs of them; an empty path leaves a column out. Stored
        as pairs.
    ids
        ``row`` or ``hash`` to make ids where there are none: from the name of the file and the
        row, or from a hash of the record.

    Examples
    --------
    >>> Reading(delimiter="tab", columns={"lon": "x"})
    Reading(format=None, encoding=None, delimiter='\t', columns=(('lon', 'x'),), ids=None)
    """

    format: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    columns: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    ids: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMAT_NAMES:
            raise UnknownName("format", self.format, FORMAT_NAMES)
        if self.ids is not None and self.ids not in _MADE_IDS:
            raise UnknownName("way to make ids", self.ids, _MADE_IDS)
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.delimiter in {"tab", "\\t"}:
            object.__setattr__(self, "delimiter", "\t")
        elif self.delimiter is not None:
            _check_delimiter(self.delimiter)
        pairs = self.columns.items() if isinstance(self.columns, Mapping) else self.columns
        object.__setattr__(self, "columns", tuple((ours, source) for ours, source in pairs))


def find_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a path: a file, all files of a folder, or those that match a pattern.

    Folders are searched with their subfolders, and the files are sorted by name. Names that begin
    with ``_`` or ``.`` are skipped, because tools keep their notes in such files.

    Parameters
    ----------
    path
        A file, a folder or a pattern such as ``data/*.csv``.

    Raises
    ------
    UnsupportedFile
        If there are none.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.csv", "a.csv", "_SUCCESS"):
    ...     (folder / name).touch()
    >>> [file.name for file in find_files(folder)]
    ['a.csv', 'b.csv']
    """
    where = Path(path)
    if where.is_dir():
        found = _visible(where.rglob("*"), where)
        if not found:
            raise UnsupportedFile(f"{where}: the folder has no files; check the path")
        return found
    if where.exists() or not glob.has_magic(str(where)):
        if not where.exists():
            raise UnsupportedFile(f"{where}: there is no such file; check the path")
        return [where]
    matched = [Path(name) for name in sorted(glob.glob(str(where), recursive=True))]
    found = []
    for one in matched:
        found += _visible(one.rglob("*"), one) if one.is_dir() else [one]
    if not found:
        raise UnsupportedFile(f"{where}: no file matches this pattern; check the path")
    return list(dict.fromkeys(found))


def name_of(file: Path, given: str | os.PathLike[str]) -> str:
    """Return what a file is called in rejects and ids: its path within what the user gave.

    Examples
    --------
    >>> name_of(Path("data/a.csv"), "data/a.csv"), name_of(Path("data/x/a.csv"), "data/*/a.csv")
    ('a.csv', 'x/a.csv')
    """
    folder = Path(given)
    while glob.has_magic(str(folder)) and not folder.exists():
        folder = folder.parent
    if folder == file:
        return file.name
    return file.relative_to(folder).as_posix()


def format_of(name: str, reading: Reading) -> str:
    """Return the format of a file.

    Examples
    --------
    >>> format_of("places.csv.gz", Reading()), format_of("places.txt", Reading(format="csv"))
    ('csv', 'csv')
    """
    if reading.format is not None:
        return reading.format
    extension = extension_of(name)
    if extension not in FORMATS:
        raise UnsupportedFile(
            f"cannot tell the format from {extension or 'no extension'!r}; name it one of "
            f"{', '.join(FORMATS)} (text also with {' or '.join(COMPRESSED)}), or use --format"
        )
    return FORMATS[extension]


def extension_of(name: str) -> str:
    """Return the extension of a file, without that of its compression."""
    path = PurePosixPath(name)
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.lower()


def _visible(paths: object, folder: Path) -> list[Path]:
    def hidden(path: Path) -> bool:
        return any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)

    return sorted(p for p in paths if p.is_file() and not hidden(p))  # type: ignore[attr-defined]


def _check_encoding(encoding: str) -> None:
    problem = "must be the name of a text encoding, such as utf-8, latin-1 or utf-16"
    try:
        codecs.lookup(encoding)
        "".encode(encoding)
    except (LookupError, ValueError):
        raise InvalidInput("encoding", encoding, problem) from None


def _check_delimiter(delimiter: str) -> None:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        problem = "must be one ASCII character, such as ; or tab"
        raise InvalidInput("delimiter", delimiter, problem)
