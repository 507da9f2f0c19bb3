"""``nearcast clock``: whether the log of a server is ahead of the clock, and its repair."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.cli.serve import DATA, DATABASE, DEFAULT_FOLDER, SECRETS_KEY, with_service
from nearcast.extras import require

if TYPE_CHECKING:
    from nearcast.server.service import Service

__all__ = ["clock"]


def clock(
    data: Annotated[Path, DATA] = DEFAULT_FOLDER,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Stamp new records with the clock of this machine again."),
    ] = False,
    database: Annotated[str | None, DATABASE] = None,
    secrets_key_file: Annotated[Path | None, SECRETS_KEY] = None,
) -> None:
    """Show by how much the log of a server, which is not running, is ahead of the clock; repair it.

    The time of records does not go back by itself. If the clock of the machine was wrong once, far
    in the future, new records stay ahead of it, also after it was set right.

    With --repair, and a clock that is right now, they have its time again. Events that are there
    keep the times that they have. Messages that are alive, and updates that have to last, go on for
    as long as they would have.
    """
    require("server", "nearcast clock")
    from nearcast.server.log.clocks import as_duration
    from nearcast.server.opening import Where

    async def work(service: "Service") -> int:
        return await service.repair_clock() if repair else service.lead_us

    where = Where(data, database, secrets_key=secrets_key_file)
    lead_us = with_service(where, work)
    if not lead_us:
        typer.echo("The last record of the log is not ahead of the clock of this machine.")
    elif repair:
        typer.echo(f"Repaired: the log was {as_duration(lead_us)} ahead of this machine's clock.")
    else:
        typer.echo(
            f"The log is {as_duration(lead_us)} ahead of this machine's clock. "
            "If the clock is right: nearcast clock --repair"
        )
