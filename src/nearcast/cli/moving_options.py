"""Options of ``nearcast generate --dataset moving``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.commands import NUMBER
from nearcast.cli.options import misuse, parse_names

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


def _option(help: str, default: str | None = None, **settings: Any) -> Any:
    shown: bool | str = default or False
    return typer.Option(help=help, rich_help_panel=_PANEL, show_default=shown, **settings)


Words = Annotated[
    str | None,
    _option("Data set that the words come from: tweets or places.", "tweets", metavar="NAME"),
]
Roads = Annotated[
    str | None,
    _option(
        "Two files with the nodes and the edges of a road network.",
        "a generated network",
        metavar="NODES,EDGES",
    ),
]
Lattice = Annotated[
    int | None,
    _option(
        "Number of streets of the generated network in each direction.",
        "128",
        metavar=NUMBER,
        min=2,
    ),
]
Route = Annotated[
    str | None,
    _option(
        "How subscribers drive: to destinations, or wander at random.",
        "destinations",
        metavar="destinations|wander",
    ),
]
Destinations = Annotated[
    int | None, _option("Number of destinations.", "256", metavar=NUMBER, min=2, max=32_767)
]
Goals = Annotated[
    str | None,
    _option(
        "Which crossings become destinations: any with equal chances (nodes), or rather those in "
        "dense parts of the network (density).",
        "nodes",
        metavar="nodes|density",
    ),
]
Speeds = Annotated[
    str | None,
    _option(
        "slow, medium or fast, relative to the size of the network; roads, which means "
        "100,60,40,20,5; or km/h for each class of roads.",
        "medium",
        metavar="NAME|A,B,...",
    ),
]
Velocity = Annotated[float | None, _option("Factor for all speeds.", "1", metavar="FACTOR")]
Mobility = Annotated[
    float | None,
    _option("Share of the subscribers that move in a tick.", "0.4", metavar="SHARE", min=0, max=1),
]
Interval = Annotated[
    int | None,
    _option("Subscribers report their place every N ticks.", "1", metavar=NUMBER, min=1),
]
TickSeconds = Annotated[float | None, _option("Length of a tick.", "30", metavar="SECONDS")]
Ticks = Annotated[
    int | None,
    _option("Number of ticks; messages are spread over them.", "10", metavar=NUMBER, min=1),
]
TimeToLive = Annotated[
    float | None, _option("How long a message lives.", "10 ticks", metavar="SECONDS", min=0)
]
MessagePlaces = Annotated[
    str | None,
    _option(
        "Where messages are: on roads, or at the places of the data set of --words, scaled to the "
        "network.",
        "roads",
        metavar="roads|dataset",
    ),
]
Capacity = Annotated[
    float | None,
    _option(
        "Number of subscribers per km of road above which a road gets slower.",
        "no limit",
        metavar=NUMBER,
    ),
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
                raise misuse(option, f"cannot be used with --dataset {MOVING}")
            raise misuse(option, f"needs --dataset {MOVING}")


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
        raise misuse("--lattice", "cannot be used with --roads")
    files = parse_names(roads)
    if len(files) != 2:
        raise misuse("--roads", "must be two files, NODES,EDGES", roads)
    return load_roads(*map(Path, files))
