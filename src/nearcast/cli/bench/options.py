"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["OUT", "Dataset", "Json", "Kind", "MemoryGb", "Out", "Rounds", "Seed"]

OUT = Path("out/bench")

Dataset = Annotated[str, typer.Option(help="tweets or places.")]
Out = Annotated[Path, typer.Option(help="Folder for JSON and PNG files.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MemoryGb = Annotated[float, typer.Option(min=0, help="Indexes that fit into this run in rotation.")]
Rounds = Annotated[int, typer.Option(min=1, help="Repetitions; medians are reported.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")]


class Kind(StrEnum):
    """Kinds of subscriptions."""

    BOOLEAN = "boolean"
    PROXIMITY = "proximity"
    OVERLAP = "overlap"
