"""Options of all commands that read files: formats, encodings, columns and ids.

Each option holds for all files of a command, or for one of them: ``--encoding latin-1``,
``--encoding messages=latin-1``, ``--column lon=x``, ``--column messages.lon=x``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from nearcast.cli.commands import READING
from nearcast.cli.options import misuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nearcast.intake import Reading

__all__ = ["Columns", "Delimiters", "Encodings", "Formats", "MadeIds", "ReadingOptions"]

Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=COLUMN",
        rich_help_panel=READING,
        help="Read NAME, such as lon, from COLUMN of your file: lon=x, messages.lon=x (only in "
        "messages) or 'lon=geometry.coordinates[0]'. An empty COLUMN ignores the column NAME. May "
        "be repeated.",
    ),
]
MadeIds = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        metavar="row|hash",
        rich_help_panel=READING,
        help="For files without ids: use the row number, or a hash of the row, as id.",
    ),
]
Encodings = Annotated[
    list[str] | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        rich_help_panel=READING,
        show_default="utf-8, or by the byte order mark",
        help="Encoding of text files, such as latin-1; or of one kind: messages=latin-1.",
    ),
]
Delimiters = Annotated[
    list[str] | None,
    typer.Option(
        "--delimiter",
        metavar="CHARACTER",
        rich_help_panel=READING,
        show_default="detected",
        help="Character between the cells of CSV files, such as ; or tab.",
    ),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="NAME",
        rich_help_panel=READING,
        show_default="by the file extension",
        help="Format of the files: parquet, csv, json or geojson.",
    ),
]


class ReadingOptions(NamedTuple):
    """The options as they were given."""

    columns: list[str] | None = None
    ids: list[str] | None = None
    encodings: list[str] | None = None
    delimiters: list[str] | None = None
    formats: list[str] | None = None

    def to_arguments(self) -> tuple[str, ...]:
        """Return the options as they are written on the command line."""
        names = ("--column", "--id", "--encoding", "--delimiter", "--format")
        pairs = [(n, text) for n, texts in zip(names, self, strict=True) for text in texts or ()]
        return tuple(word for pair in pairs for word in pair)

    def readings(self, paths: Mapping[str, str | Path]) -> dict[str, Reading]:
        """Return how each file is read, by its kind: ``messages``, ``subscriptions``, ``moves``.

        A column that is given for all files is looked for in each, and must be in one of them.
        """
        from nearcast.intake import Reading

        plain = {
            kind: Reading(
                format=_for_kind(self.formats, kind),
                encoding=_for_kind(self.encodings, kind),
                delimiter=_for_kind(self.delimiters, kind),
                ids=_for_kind(self.ids, kind),
            )
            for kind in paths
        }
        said = _columns(self.columns or [], paths, plain)
        return {
            kind: replace(reading, columns=tuple(said[kind].items()))
            for kind, reading in plain.items()
        }


def _for_kind(texts: list[str] | None, kind: str) -> str | None:
    """Return the value for one kind of file: the last that was given for it, or for all."""
    chosen = None
    for text in texts or []:
        name, sign, value = text.partition("=")
        if sign and name in _KINDS:
            chosen = value if name == kind else chosen
        else:
            chosen = text
    return chosen


_KINDS = ("messages", "subscriptions", "moves", "changes")


def _has(names: list[str] | None, path: str) -> bool:
    """Whether a path begins in one of these columns; None if they are not known."""
    from nearcast.intake.names import root_of

    return names is None or root_of(path, names) in names


def _columns(
    texts: list[str], paths: Mapping[str, str | Path], plain: Mapping[str, Reading]
) -> dict[str, dict[str, str]]:
    from nearcast.errors import UnknownName, UnsupportedFile
    from nearcast.intake.files import column_names
    from nearcast.intake.names import root_of
    from nearcast.model.close_names import COLUMNS

    said: dict[str, dict[str, str]] = {kind: {} for kind in paths}
    names: dict[str, list[str] | None] = {}
    for text in texts:
        target, sign, source = (part.strip() for part in text.partition("="))
        if not sign or not target:
            raise misuse("--column", "must be NAME=COLUMN, such as lon=x", text)
        prefix, dot, inner = target.partition(".")
        chosen = [prefix] if dot and prefix in paths else [*paths]
        ours = inner if dot and prefix in paths else target
        known = [kind for kind in chosen if ours in COLUMNS[kind]]
        if not known:
            raise UnknownName("column", ours, dict.fromkeys(n for k in chosen for n in COLUMNS[k]))
        if len(chosen) > 1 and source:
            for kind in known:
                names.setdefault(kind, column_names(paths[kind], plain[kind]))
            known = [kind for kind in known if _has(names[kind], source)]
            if not known:
                found = "; ".join(f"{kind}: {', '.join(names[kind] or [])}" for kind in names)
                raise UnsupportedFile(
                    f"--column {text}: no file has the column {root_of(source)!r}; "
                    f"the columns are: {found}"
                )
        for kind in known:
            said[kind][ours] = source
    return said
