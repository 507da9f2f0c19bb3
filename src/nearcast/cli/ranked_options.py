"""Options about ranked subscriptions that several commands share."""

from typing import Annotated, Any

import typer

from nearcast.cli.options import parse_distances, parse_shares

__all__ = [
    "Alpha",
    "Delta",
    "Distance",
    "MaxDistance",
    "Similarity",
    "Tau",
    "Theta",
    "parse_ranges",
]

Delta = Annotated[
    str | None,
    typer.Option(metavar="A-B", help="Proximity: the weight of the text.  [default: 0-1]"),
]
Tau = Annotated[
    str | None, typer.Option(metavar="A-B", help="Proximity: the threshold.  [default: 0.5-1]")
]
MaxDistance = Annotated[
    str | None,
    typer.Option(
        metavar="A-B",
        help="Proximity: the largest distance, log-uniform.  [default: 100000]",
    ),
]
Alpha = Annotated[
    str | None,
    typer.Option(metavar="A-B", help="Overlap: the weight of the area.  [default: 0-1]"),
]
Theta = Annotated[
    str | None, typer.Option(metavar="A-B", help="Overlap: the threshold.  [default: 0.5-1]")
]

Similarity = Annotated[
    str,
    typer.Option(
        help="How ranked ones compare words: containment, overlap, jaccard, dice or cosine."
    ),
]
Distance = Annotated[str, typer.Option(help="How they measure distance: geodesic or planar.")]

_KIND_OF = {
    "delta": "proximity",
    "tau": "proximity",
    "max_distance_m": "proximity",
    "alpha": "overlap",
    "theta": "overlap",
}


def parse_ranges(kinds: tuple[str, ...], **texts: str | None) -> dict[str, dict[str, Any]]:
    """Return the arguments of `Workload.ranked` for each ranked kind.

    Parameters
    ----------
    kinds
        The ranked kinds of the command; options of other kinds are an error.
    texts
        ``delta``, ``tau``, ``max_distance_m``, ``alpha`` and ``theta`` as users wrote them.

    Examples
    --------
    >>> parse_ranges(("overlap",), alpha="0.2-0.5")
    {'overlap': {'text_share': (0.5, 0.8), 'threshold': (0.5, 1.0)}}
    """
    from nearcast.datasets.ranges import remaining_shares

    given = {name: text for name, text in texts.items() if text is not None}
    for name in given:
        if _KIND_OF[name] not in kinds:
            option = name.replace("_", "-")
            raise typer.BadParameter(f"--{option} needs {_KIND_OF[name]} subscriptions")
    ranges: dict[str, dict[str, Any]] = {
        "proximity": {
            "text_share": parse_shares(given.get("delta", "0-1")),
            "threshold": parse_shares(given.get("tau", "0.5-1")),
            "max_distance_m": parse_distances(given.get("max_distance_m", "100000")),
        },
        "overlap": {
            "text_share": remaining_shares(parse_shares(given.get("alpha", "0-1"))),
            "threshold": parse_shares(given.get("theta", "0.5-1")),
        },
    }
    return {kind: ranges[kind] for kind in kinds}
