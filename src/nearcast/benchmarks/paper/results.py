"""Measurements by quantity, data set, series and group of messages."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

__all__ = ["QUANTITIES", "Measured", "Quantity", "Results"]


class Quantity(NamedTuple):
    """A measured quantity.

    A value within the share ``near`` of a bound is neither below nor above it: copies of one index
    differ by a few percent, depending on their memory layout; quantities that are measured only
    once differ by more. ``near`` is 0 for quantities that are the same in every run.
    """

    unit: str
    label: str
    near: float
    more_is_better: bool = False


_ROUNDS, _ONCE, _EXACT = 0.05, 0.2, 0.0

QUANTITIES = {
    "time": Quantity("µs", "µs per message", _ROUNDS),
    "match": Quantity("ns", "ns per match", _ROUNDS),
    "answers": Quantity("matches", "matches per message", _EXACT),
    "accessed": Quantity("accessed", "postings accessed per message", _EXACT),
    "examined": Quantity("examined", "examined per message", _EXACT),
    "visited": Quantity("visited", "nodes visited per message", _EXACT),
    "bytes": Quantity("bytes", "bytes per subscription", _EXACT),
    "build": Quantity("s", "seconds to build", _ONCE),
    "insert": Quantity("µs", "µs per insert", _ONCE),
    "operations": Quantity("a second", "operations per second", _ROUNDS, more_is_better=True),
    "imm": Quantity("µs", "µs per arrival (IMM)", _ROUNDS),
    "msp": Quantity("µs", "µs per move (MSP)", _ROUNDS),
    "mi": Quantity("µs", "µs to store a message (MI)", _ROUNDS),
    "slu": Quantity("µs", "µs per move without messages (SLU)", _ROUNDS),
    "expire": Quantity("µs", "µs per expiry", _ROUNDS),
    "total_msp": Quantity("s", "seconds of all moves of a tick", _ROUNDS),
    "tick": Quantity("s", "seconds of a tick", _ROUNDS),
    "ticks": Quantity("a second", "ticks per second", _ROUNDS, more_is_better=True),
    "total_bytes": Quantity("MB", "MB in total", _EXACT),
    "message_bytes": Quantity("bytes", "bytes per living message", _EXACT),
    "copies": Quantity("copies", "copies of a message", _EXACT),
    "quiet": Quantity("%", "% of moves without an update", _EXACT),
}
"""The quantities of statements and figures."""

_OF_BUILDS = {"bytes": "bytes_per_subscription", "build": "build_s", "insert": "us_per_insert"}
_WORK = {"examined": "examined_per_message", "visited": "visited_per_message"}
_OF_POINTS = _WORK | {"answers": "matches_per_message", "accessed": "accessed_per_message"}


class Measured(NamedTuple):
    """The measurement of one series: its rounds, and the work per message, if any.

    What was not measured is NaN: an index may not count what it accessed, and without matches
    there is no time per match.
    """

    label: str
    rounds: list[float]
    median: float
    work: dict[str, float]

    @classmethod
    def once(cls, label: str, value: float) -> Measured:
        """Return a measurement without rounds."""
        return cls(label, [value], value, {})


class Results:
    """Finds measurements in a result of `measure`."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._points = {(p["dataset"], p["series"], p["group"]): p for p in result["points"]}
        self._mixed = {(p["dataset"], p["series"], p["group"]): p for p in result["mixed"]}
        self._builds = {(b["dataset"], b["series"]): b for b in result["builds"]}

    def index(self, dataset: str, label: str) -> str:
        """Return the name of the index of a series."""
        return str(self._builds[dataset, label]["index"])

    def series(self, dataset: str, group: str) -> list[str]:
        """Return the series over all subscriptions that are measured on a data set and a group."""
        found = [label for data, label, name in self._points if (data, name) == (dataset, group)]
        whole = max((self.subscriptions(dataset, label) for label in found), default=0)
        built = {label: self._builds[dataset, label]["built"] for label in found}
        return [label for label in found if built[label] == whole]

    def subscriptions(self, dataset: str, label: str) -> int:
        """Return the number of subscriptions of a series."""
        return int(self._builds[dataset, label]["subscriptions"])

    def find(self, quantity: str, dataset: str, label: str, group: str) -> Measured:
        """Return a measurement; quantities of the build ignore the group."""
        if quantity in _OF_BUILDS:
            build = self._builds[dataset, label]
            return Measured.once(label, float(build[_OF_BUILDS[quantity]]))
        if quantity == "operations":
            point = self._mixed[dataset, label, group]
            rounds = point["rounds_operations_per_second"]
            return Measured(label, rounds, point["operations_per_second"]["median"], {})
        point = self._points[dataset, label, group]
        if "quantities" in point:  # of moving subscriptions: one value for each tick
            rounds = point["quantities"][quantity]
            return Measured(label, rounds, float(np.median(rounds)), {})
        if quantity in _OF_POINTS:
            value = point.get(_OF_POINTS[quantity])
            return Measured.once(label, math.nan if value is None else float(value))
        work = {name: float(point[key]) for name, key in _WORK.items()}
        if quantity == "match":
            if not point["matches_per_message"]:
                return Measured.once(label, math.nan)
            scale = 1000 / point["matches_per_message"]
            rounds = [us * scale for us in point["rounds_us"]]
            return Measured(label, rounds, point["us_per_message"]["median"] * scale, work)
        return Measured(label, point["rounds_us"], point["us_per_message"]["median"], work)
