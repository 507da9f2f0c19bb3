"""Options about ranked subscriptions that several commands share."""

from typing import Annotated, Any

import typer

from nearcast.cli.options import misuse, parse_distances, parse_shares

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

_PANEL = "Ranked subscriptions"


def _range(help: str, default: str) -> Any:
    return typer.Option(metavar="A-B", help=help, show_default=default, rich_help_panel=_PANEL)


Delta = Annotated[
    str | None,
    _range("Proximity: how much the words count in the score; nearness counts the rest.", "0-1"),
]
Tau = Annotated[str | None, _range("Proximity: the score that a match must reach.", "0.5-1")]
MaxDistance = Annotated[
    str | None,
    _range(
        "Proximity: distance in meters at which nearness becomes 0; drawn on a logarithmic scale.",
        "100000",
    ),
]
Alpha = Annotated[
    str | None,
    _range("Overlap: how much the area counts in the score; words count the rest.", "0-1"),
]
Theta = Annotated[str | None, _range("Overlap: the score that a match must reach.", "0.5-1")]

Similarity = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_PANEL,
        help="How ranked subscriptions compare words: containment, overlap, jaccard, dice or "
        "cosine.",
    ),
]
Distance = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_PANEL,
        help="How ranked subscriptions measure distance: geodesic (on the sphere) or planar (in "
        "degrees on a flat map).",
    ),
]

_KIND_OF = {
    "delta": "proximity",
    "tau": "proximity",
    "max_distance_m": "proximity",
    "alpha": "overlap",
    "theta": "overlap",
}


def parse_ranges(
    kinds: tuple[str, ...], option: str = "--ranked", **texts: str | None
) -> dict[str, dict[str, Any]]:
    """Return the arguments of `Workload.ranked` for each ranked kind.

    Parameters
    ----------
    kinds
        The ranked kinds of the command; options of other kinds are an error.
    option
        The option of the command that chooses the kind.
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
            raise misuse(_option(name), f"needs {option} {_KIND_OF[name]}")
    ranges: dict[str, dict[str, Any]] = {
        "proximity": {
            "text_share": parse_shares(given.get("delta", "0-1"), _option("delta")),
            "threshold": parse_shares(given.get("tau", "0.5-1"), _option("tau")),
            "max_distance_m": parse_distances(
                given.get("max_distance_m", "100000"), _option("max_distance_m")
            ),
        },
        "overlap": {
            "text_share": remaining_shares(
                parse_shares(given.get("alpha", "0-1"), _option("alpha"))
            ),
            "threshold": parse_shares(given.get("theta", "0.5-1"), _option("theta")),
        },
    }
    return {kind: ranges[kind] for kind in kinds}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
