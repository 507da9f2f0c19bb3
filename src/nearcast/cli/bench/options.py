"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nearcast.cli.commands import FOLDER, NUMBER, OUTPUT

__all__ = [
    "DATA",
    "MEASURING",
    "OUT",
    "Dataset",
    "Json",
    "Kind",
    "MemoryGb",
    "Messages",
    "Out",
    "Rounds",
    "Seed",
    "Subscriptions",
]

DATA = "Data"
MEASURING = "Measuring"

OUT = Path("out/bench")

Dataset = Annotated[
    str,
    typer.Option(
        metavar="tweets|places",
        rich_help_panel=DATA,
        help="Data set to generate: tweets (short texts, dense in cities) or places (points of "
        "interest).",
    ),
]
Subscriptions = Annotated[
    int,
    typer.Option(metavar=NUMBER, min=1, rich_help_panel=DATA, help="Number of subscriptions."),
]
Messages = Annotated[
    int, typer.Option(metavar=NUMBER, min=1, rich_help_panel=DATA, help="Number of messages.")
]
Out = Annotated[
    Path,
    typer.Option(metavar=FOLDER, rich_help_panel=OUTPUT, help="Folder for JSON and PNG files."),
]
Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print the result as JSON.")
]
MemoryGb = Annotated[
    float,
    typer.Option(
        metavar="GB",
        min=0,
        rich_help_panel=MEASURING,
        help="Memory for indexes. Those that fit are measured in rotation; the others later.",
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        metavar=NUMBER,
        min=1,
        rich_help_panel=MEASURING,
        help="Number of repetitions; medians are reported.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar=NUMBER, min=0, rich_help_panel=DATA, help="The same seed gives the same rows."
    ),
]


class Kind(StrEnum):
    """Kinds of subscriptions."""

    BOOLEAN = "boolean"
    PROXIMITY = "proximity"
    OVERLAP = "overlap"
