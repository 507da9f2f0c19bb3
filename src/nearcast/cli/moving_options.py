"""Options of ``nearcast generate --dataset moving``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.options import parse_names

if TYPE_CHECKING:
    from nearcast.datasets.roads import RoadNetwork

__all__ = [
    "MOVING",
    "Capacity",
    "Destinations",
    "Goals",
    "Interval",
    "Lattice",
    "MessagePlaces",
    "Mobility",
    "Roads",
    "Route",
    "Speeds",
    "TickSeconds",
    "Ticks",
    "TimeToLive",
    "Velocity",
    "Words",
    "check_moving",
    "load_network",
    "parse_speeds",
]

MOVING = "moving"
"""The name of the data set."""

_PANEL = "Moving subscribers (--dataset moving)"


def _option(help: str, **settings: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_PANEL, **settings)


Words = Annotated[str | None, _option("Data set of the words: tweets or places (default: tweets).")]
Roads = Annotated[
    str | None,
    _option("Files of a road network; a synthetic one if left out.", metavar="NODES,EDGES"),
]
Lattice = Annotated[
    int | None, _option("Lines per axis of the synthetic network (default: 128).", min=2)
]
Route = Annotated[
    str | None, _option("How movers choose: destinations or wander (default: destinations).")
]
Destinations = Annotated[
    int | None, _option("Number of destinations (default: 256).", min=2, max=32_767)
]
Goals = Annotated[
    str | None, _option("How destinations are drawn: nodes or density (default: nodes).")
]
Speeds = Annotated[
    str | None,
    _option(
        "slow, medium, fast (relative to the size of the network), roads (100,60,40,20,5), or km/h "
        "by road class (default: medium).",
        metavar="NAME|A,B,...",
    ),
]
Velocity = Annotated[float | None, _option("A factor of all speeds (default: 1).")]
Mobility = Annotated[
    float | None,
    _option("Share of the movers that move in a tick (default: 0.4).", min=0, max=1),
]
Interval = Annotated[
    int | None, _option("Movers report every N-th tick (default: 1).", metavar="N", min=1)
]
TickSeconds = Annotated[float | None, _option("Seconds of a tick (default: 30).")]
Ticks = Annotated[
    int | None, _option("Number of ticks; messages are spread over them (default: 10).", min=1)
]
TimeToLive = Annotated[
    float | None, _option("Seconds that a message lives (default: 10 ticks).", min=0)
]
MessagePlaces = Annotated[
    str | None,
    _option(
        "Where messages are: roads, or dataset (places of the words' data set, mapped into the "
        "network) (default: roads)."
    ),
]
Capacity = Annotated[
    float | None,
    _option("Movers per km above which a road gets slower (default: no limit)."),
]


def check_moving(dataset: str, given: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Raise an error if options were given that the data set does not have.

    Parameters
    ----------
    dataset
        The name of the data set.
    given
        The options of ``moving``; None where a user left one out.
    other
        Options that ``moving`` does not have; None where a user left one out.
    """
    wrong = other if dataset == MOVING else given
    for name, value in wrong.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            if dataset == MOVING:
                raise typer.BadParameter(f"{option} does not go with --dataset {MOVING}")
            raise typer.BadParameter(f"{option} needs --dataset {MOVING}")


def parse_speeds(text: str) -> str | tuple[float, ...]:
    """Parse the name of speeds, or km/h by road class.

    Examples
    --------
    >>> parse_speeds("medium"), parse_speeds("100,60,30")
    ('medium', (100.0, 60.0, 30.0))
    """
    try:
        return tuple(float(part) for part in parse_names(text))
    except ValueError:
        return text


def load_network(roads: str | None, lines: int | None, seed: int) -> "RoadNetwork":
    """Return the network of the files ``NODES,EDGES``, or a synthetic one."""
    from nearcast.datasets.roads import lattice, load_roads

    if roads is None:
        return lattice(128 if lines is None else lines, seed)
    if lines is not None:
        raise typer.BadParameter("--lattice does not go with --roads")
    files = parse_names(roads)
    if len(files) != 2:
        raise typer.BadParameter(f"expected two files as --roads NODES,EDGES, got {roads!r}")
    return load_roads(*map(Path, files))
