"""Runbooks: the steps of a benchmark with changing subscriptions.

As in the streaming track of big-ann-benchmarks, a runbook is a small JSON file that is used for
all indexes::

    {"name": "mixed", "dataset": "tweets", "batch": 1000, "steps": [
        {"do": "insert", "count": 100000},
        {"do": "settle"},
        {"do": "search", "count": 20000},
        {"do": "mix", "count": 200000, "insert": 0.1, "delete": 0.1},
        {"do": "settle"},
        {"do": "search", "count": 20000}
    ]}

``count`` is the number of subscriptions to insert or delete, of messages to publish, or of
operations to mix. In a mix, ``insert`` and ``delete`` are shares of the operations; the rest are
messages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nearcast.errors import InvalidInput, UnknownName, UnsupportedFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Runbook", "RunbookStep", "mixed_load", "read_runbook"]

_FIELDS = {
    "insert": {"count"},
    "delete": {"count"},
    "search": {"count"},
    "mix": {"count", "insert", "delete"},
    "settle": set(),
}


@dataclass(frozen=True)
class RunbookStep:
    """One step: its kind, its count, and the shares of inserts and deletes in a mix."""

    do: str
    count: int = 0
    insert: float = 0.1
    delete: float = 0.1

    def __post_init__(self) -> None:
        if self.do not in _FIELDS:
            raise UnknownName("step", self.do, _FIELDS)
        if not isinstance(self.count, int) or self.count < (self.do != "settle"):
            raise InvalidInput("count", self.count, "must be a whole number of at least 1")
        for name in ("insert", "delete"):
            share = getattr(self, name)
            if not isinstance(share, int | float) or not 0 <= share <= 1:
                raise InvalidInput(name, share, "must be a share from 0 to 1")
        if self.insert + self.delete > 1:
            problem = "the shares of inserts and deletes must add up to at most 1"
            raise InvalidInput("insert", (self.insert, self.delete), problem)


@dataclass(frozen=True)
class Runbook:
    """Steps on one data set; rows are inserted, deleted and published in batches of ``batch``."""

    steps: tuple[RunbookStep, ...]
    name: str = "mixed"
    dataset: str = "tweets"
    batch: int = 1_000

    def __post_init__(self) -> None:
        if not isinstance(self.batch, int) or self.batch < 1:
            raise InvalidInput("batch", self.batch, "must be a whole number of at least 1")
        if not self.steps:
            raise InvalidInput("steps", [], "must have at least one step")

    def to_dict(self) -> dict[str, Any]:
        """Return the runbook in the form of its JSON file."""
        steps = [
            {"do": step.do, **{name: getattr(step, name) for name in sorted(_FIELDS[step.do])}}
            for step in self.steps
        ]
        return {"name": self.name, "dataset": self.dataset, "batch": self.batch, "steps": steps}


def mixed_load(
    subscriptions: int, operations: int, *, dataset: str = "tweets", batch: int = 1_000
) -> Runbook:
    """Return the built-in runbook: 10 % inserts, 10 % deletes, 80 % messages.

    Before and after the mix, only messages are published, for comparison.

    Examples
    --------
    >>> [step.do for step in mixed_load(1000, 500).steps]
    ['insert', 'settle', 'search', 'mix', 'settle', 'search']
    """
    search = RunbookStep("search", max(batch, operations // 10))
    steps = (
        RunbookStep("insert", subscriptions),
        RunbookStep("settle"),
        search,
        RunbookStep("mix", operations, 0.1, 0.1),
        RunbookStep("settle"),
        search,
    )
    return Runbook(steps, "mixed", dataset, batch)


def read_runbook(path: Path) -> Runbook:
    """Read a runbook from a JSON file."""
    try:
        given = json.loads(path.read_text())
    except FileNotFoundError:
        raise UnsupportedFile(f"{path}: there is no such file; check the path") from None
    except ValueError as error:
        raise UnsupportedFile(f"{path}: is not JSON: {error}") from None
    if not isinstance(given, dict) or not isinstance(given.get("steps"), list):
        raise UnsupportedFile(f'{path}: must be an object with a list of "steps"')
    unknown = given.keys() - {"name", "dataset", "batch", "steps"}
    if unknown:
        raise UnknownName(
            "entry", min(unknown), ["name", "dataset", "batch", "steps"], of="a runbook"
        )
    steps = tuple(_step(step) for step in given["steps"])
    fields = {name: given[name] for name in ("name", "dataset", "batch") if name in given}
    return Runbook(steps, **fields)


def _step(given: Mapping[str, Any]) -> RunbookStep:
    if not isinstance(given, dict) or given.get("do") not in _FIELDS:
        raise UnknownName("step", given.get("do") if isinstance(given, dict) else given, _FIELDS)
    allowed = _FIELDS[given["do"]]
    for name in given.keys() - {"do"}:
        if name not in allowed:
            raise UnknownName("entry", name, allowed, of=f"the step {given['do']}")
    return RunbookStep(**given)
