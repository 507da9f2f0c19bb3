"""``nearcast audit``: compare the events of a server with the exhaustive scan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.cli.commands import FOLDER
from nearcast.cli.output import progress
from nearcast.extras import require

if TYPE_CHECKING:
    from nearcast.server.audit import Difference

__all__ = ["audit"]

_PLACE = "EVENT|SEQ|TIME"


def audit(
    data: Annotated[Path, typer.Argument(metavar=FOLDER, help="The folder of a server.")],
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar=_PLACE,
            help="Where to begin: an event id (1790000000-12), a seq, or a time "
            "(2026-01-31T12:00:00Z). By default the first event that is kept.",
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar=_PLACE,
            help="Where to end, like --from. By default the last event on disk.",
        ),
    ] = None,
) -> None:
    """Match a stretch of a server's log again, by the exhaustive scan, and compare the events.

    Prints the first difference and exits with 1, or says how many events agree. The scan compares
    every message with every subscription, so this takes a while. Nothing in the folder is changed,
    and the server may be running.
    """
    require("server", "nearcast audit")
    from nearcast.server.audit import audit as run

    with progress(True) as start:
        report = run(data, first, last, start("matching"))
    for note in report.notes:
        typer.echo(note)
    if report.difference is not None:
        _show(report.difference)
        raise typer.Exit(1)
    typer.echo(
        f"Matched {report.messages:,} messages again, seqs {report.first_seq:,} to "
        f"{report.last_seq:,}: all {report.events:,} events agree."
    )


def _show(difference: "Difference") -> None:
    typer.echo(f"The first difference is at event {difference.event}.")
    typer.echo(f"  channel       {difference.channel}")
    typer.echo(f"  subscription  {difference.subscription}")
    typer.echo(f"  message       {difference.message or 'none'}")
    typer.echo(f"  server has    {difference.server}")
    typer.echo(f"  scan has      {difference.scan}")
    for sentence in difference.explanation:
        typer.echo(sentence)
