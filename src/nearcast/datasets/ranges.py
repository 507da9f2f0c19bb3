"""Ranges from which rankings are drawn, as users name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["remaining_shares", "show_ranges"]


def show_ranges(ranges: Mapping[str, Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return arguments of `Workload.ranked` by kind under the names that users know, for JSON.

    Examples
    --------
    >>> show_ranges({"overlap": {"text_share": (0.5, 0.8), "threshold": (0.5, 1.0)}})
    {'alpha': [0.2, 0.5], 'theta': [0.5, 1.0]}
    """
    shown: dict[str, list[float]] = {}
    if near := ranges.get("proximity"):
        shown |= {"delta": list(near["text_share"]), "tau": list(near["threshold"])}
        shown["max_distance_m"] = list(near["max_distance_m"])
    if cover := ranges.get("overlap"):
        shown["alpha"] = list(remaining_shares(cover["text_share"]))
        shown["theta"] = list(cover["threshold"])
    return shown


def remaining_shares(shares: tuple[float, float]) -> tuple[float, float]:
    """Return what a range of shares leaves to the other side, without the noise of floats.

    Examples
    --------
    >>> remaining_shares((0.2, 0.7))
    (0.3, 0.8)
    """
    least, most = shares
    return round(1 - most, 12), round(1 - least, 12)
