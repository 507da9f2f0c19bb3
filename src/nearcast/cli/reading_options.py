"""Options that say how files are read, for all commands that read files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nearcast.intake import Reading

__all__ = ["Column", "Delimiter", "Encoding", "Format", "MakeIds", "reading_of"]

Format = Annotated[
    str | None,
    typer.Option("--format", help="parquet, csv, json or geojson.  [default: by the name]"),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="Encoding of text files.  [default: UTF-8, or by the byte order mark]"),
]
Delimiter = Annotated[
    str | None, typer.Option(help="Delimiter of CSV, such as ; or tab.  [default: detected]")
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OURS=THEIRS",
        help="Where a column of ours is, such as lon=place.x; may be repeated. OURS= leaves it "
        "out, messages.OURS=THEIRS is for messages only.",
    ),
]
MakeIds = Annotated[
    str | None,
    typer.Option("--id", help="row or hash: make ids where there are none."),
]

_KINDS = ("messages", "subscriptions", "changes", "moves")


def reading_of(
    kind: str,
    *,
    format: str | None = None,
    column: Sequence[str] | None = None,
    ids: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    kinds: Iterable[str] = (),
) -> Reading:
    """Return how files of a kind are read.

    Parameters
    ----------
    kind
        ``messages``, ``subscriptions`` or ``changes``.
    format, column, ids, encoding, delimiter
        The options. A column with the name of a kind before it is for that kind only.
    kinds
        All kinds of files that the command reads; a column may belong to another one of them.

    Raises
    ------
    UnknownName
        When a column, the format or the way to make ids is unknown.

    Examples
    --------
    >>> reading_of("messages", column=["text=body", "subscriptions.id=key"]).columns
    (('text', 'body'),)
    """
    from nearcast.errors import UnknownName
    from nearcast.intake import Reading
    from nearcast.intake.names import COLUMNS

    chosen: dict[str, str] = {}
    for text in column or ():
        ours, sign, theirs = (part.strip() for part in text.partition("="))
        if not (ours and sign):
            raise typer.BadParameter(f"expected ours=theirs, got {text!r}", param_hint="--column")
        prefix, dot, name = ours.rpartition(".")
        if dot and prefix not in _KINDS:
            raise UnknownName("kind of files", prefix, _KINDS)
        if dot and prefix != kind and not (prefix == "moves" and kind == "changes"):
            continue
        if name in COLUMNS[kind]:
            chosen[name] = theirs
        elif not any(name in COLUMNS[other] for other in kinds):
            raise UnknownName(f"column of {kind}", name, COLUMNS[kind])
    return Reading(format, encoding, delimiter, tuple(chosen.items()), ids)
