"""What was measured, by quantity, data set, series and group of messages."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["QUANTITIES", "Measured", "Quantity", "Results"]


class Quantity(NamedTuple):
    """Something that is measured.

    Figures within the share ``near`` of a bound are on neither side of it: copies of one index
    differ by a few percent, by where they lie in memory, and what is measured once by more. It is
    0 for what is the same in every run.
    """

    unit: str
    label: str
    near: float
    more_is_better: bool = False


_ROUNDS, _ONCE, _EXACT = 0.05, 0.2, 0.0

QUANTITIES = {
    "time": Quantity("µs", "µs a message", _ROUNDS),
    "examined": Quantity("examined", "examined a message", _EXACT),
    "visited": Quantity("visited", "nodes visited a message", _EXACT),
    "bytes": Quantity("bytes", "bytes a subscription", _EXACT),
    "build": Quantity("s", "seconds to build", _ONCE),
    "insert": Quantity("µs", "µs an insert", _ONCE),
    "operations": Quantity("a second", "operations a second", _ROUNDS, more_is_better=True),
}
"""All that statements can be about and figures can show."""

_OF_BUILDS = {"bytes": "bytes_per_subscription", "build": "build_s", "insert": "us_per_insert"}
_OF_POINTS = {"examined": "examined_per_message", "visited": "visited_per_message"}


class Measured(NamedTuple):
    """One series somewhere: its rounds, and the work that a message makes, where it is matched."""

    label: str
    rounds: list[float]
    median: float
    work: dict[str, float]

    @classmethod
    def once(cls, label: str, value: float) -> Measured:
        """Return what has no rounds."""
        return cls(label, [value], value, {})


class Results:
    """A result of `measure`, to be asked for its figures."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._points = {(p["dataset"], p["series"], p["group"]): p for p in result["points"]}
        self._mixed = {(p["dataset"], p["series"], p["group"]): p for p in result["mixed"]}
        self._builds = {(b["dataset"], b["series"]): b for b in result["builds"]}

    def index(self, dataset: str, label: str) -> str:
        """Return which index a series is."""
        return str(self._builds[dataset, label]["index"])

    def subscriptions(self, dataset: str, label: str) -> int:
        """Return over how many subscriptions a series is."""
        return int(self._builds[dataset, label]["subscriptions"])

    def find(self, quantity: str, dataset: str, label: str, group: str) -> Measured:
        """Return what was measured; the group means nothing to what comes from a build."""
        if quantity in _OF_BUILDS:
            build = self._builds[dataset, label]
            return Measured.once(label, float(build[_OF_BUILDS[quantity]]))
        if quantity == "operations":
            point = self._mixed[dataset, label, group]
            rounds = point["rounds_operations_per_second"]
            return Measured(label, rounds, point["operations_per_second"]["median"], {})
        point = self._points[dataset, label, group]
        if quantity in _OF_POINTS:
            return Measured.once(label, float(point[_OF_POINTS[quantity]]))
        work = {name: float(point[key]) for name, key in _OF_POINTS.items()}
        return Measured(label, point["rounds_us"], point["us_per_message"]["median"], work)
