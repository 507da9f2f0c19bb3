"""The comparison of indexes: the same subscriptions and messages for each, in one process.

Every index is compiled on tiny data first, so that compile time stands apart; its answers to a
sample of the messages are checked against the scan; then all take turns, round by round, so that
whatever else the machine does hits them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import indexes
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.indexes.warm import warm_up
from nearcast.plots.machine import PeakMemory, describe_machine

if TYPE_CHECKING:
    from nearcast.columns import Clauses, Messages
    from nearcast.indexes import Builder, Index

__all__ = ["GROUPS", "Comparison", "Step", "compare", "spread"]

GROUPS: dict[str, tuple[tuple[int, int] | None, bool]] = {
    "short-point": (None, False),
    "long-point": ((100, 1000), False),
    "short-range": (None, True),
    "long-range": ((100, 1000), True),
}
"""Groups of messages: how many tokens (None: as the data set has them), and whether boxes."""

LONGEST_ROUND_S = 5.0
"""An index that would take longer for all messages gets as many as it can do in this time."""

Step = Callable[[str, int, int], None]
"""Told what is being done, how many steps are done, and of how many."""


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Parameters
    ----------
    dataset, subscriptions, messages, seed
        The workload.
    builders
        The indexes by the names under which they are reported.
    groups
        Of `GROUPS`, those whose messages are matched: indexes are built once for all.
    range_share
        The most area of a message that is a box, as a share of the world's.
    rounds
        How often the messages are matched by each index.
    sample
        How many messages are checked against the scan.
    threads
        How many threads match.
    """

    dataset: str
    subscriptions: int
    messages: int
    builders: dict[str, Builder]
    seed: int = 0
    groups: tuple[str, ...] = ("short-point",)
    range_share: float = 0.0001
    rounds: int = 5
    sample: int = 20
    threads: int = 1

    def __post_init__(self) -> None:
        for group in self.groups:
            if group not in GROUPS:
                raise UnknownName("group", group, GROUPS)
        if not self.groups:
            raise InvalidInput("groups", self.groups, "there must be one at least")
        for name in ("subscriptions", "messages", "rounds"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "must be at least 1")


def compare(plan: Comparison, step: Step = lambda what, done, total: None) -> list[dict[str, Any]]:
    """Run the comparison and return all figures, a result for each group.

    Raises
    ------
    NearcastError
        When an index does not agree with the scan.
    """
    return _Run(plan, step).results()


def spread(values: list[float]) -> dict[str, float]:
    """Return the median of measurements, the least and the most.

    Examples
    --------
    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'least': 1.0, 'most': 3.0}
    """
    return {"median": float(np.median(values)), "least": min(values), "most": max(values)}


class _Contender:
    """One index and what was measured of it so far."""

    def __init__(self, name: str, builder: Builder) -> None:
        self.name = name
        self.builder = builder
        self.figures: dict[str, Any] = {"index": name, "options": vars(builder.options)}
        self.index: Index
        self.messages: Messages
        self.us_per_message: list[float]

    def build(self, clauses: Clauses) -> None:
        """Build the index, watching time and memory."""
        with PeakMemory() as memory:
            began = time.perf_counter()
            self.index = self.builder.build(clauses)
            spent = time.perf_counter() - began
        self.figures |= {
            "build_s": spent,
            "build_peak_bytes": memory.growth_bytes,
            "index_bytes": self.index.nbytes,
            "bytes_per_subscription": self.index.nbytes / clauses.subscriptions,
        }

    def verify(self, sample: Messages, expected: set[tuple[int, int]]) -> None:
        """Compare the answers to a sample of messages with those of the scan."""
        found = self.index.match(sample).pairs()
        if found != expected:
            missing, wrong = len(expected - found), len(found - expected)
            raise NearcastError(
                f"{self.name} does not agree with the scan: of {len(expected)} matches of "
                f"{len(sample)} messages it missed {missing} and gave {wrong} that are none; "
                "its figures would mean nothing"
            )
        self.figures["verified_messages"] = len(sample)

    def choose(self, messages: Messages, threads: int) -> None:
        """Take as many of a group's messages as a round has time for, and match them once."""
        self.us_per_message = []
        few = min(20, len(messages))
        began = time.perf_counter()
        self.index.match(messages.take(np.arange(few)), threads=threads)
        each = (time.perf_counter() - began) / few
        most = max(few, int(LONGEST_ROUND_S / max(each, 1e-9)))
        self.messages = messages if most >= len(messages) else messages.take(np.arange(most))
        matches = self.index.match(self.messages, threads=threads)
        self.figures |= {
            "messages": len(self.messages),
            "matches_per_message": len(matches) / len(self.messages),
            "examined_per_message": matches.examined / len(self.messages),
            "visited_per_message": matches.visited / len(self.messages),
        }

    def measure(self, threads: int) -> None:
        """Match all messages and note the time."""
        began = time.perf_counter()
        self.index.match(self.messages, threads=threads)
        taken = time.perf_counter() - began
        self.us_per_message.append(taken / len(self.messages) * 1e6)

    def result(self) -> dict[str, Any]:
        """Return all figures."""
        timing = spread(self.us_per_message)
        return {
            **self.figures,
            "us_per_message": timing,
            "messages_per_second": 1e6 / timing["median"],
            "rounds_us": self.us_per_message,
        }


class _Run:
    """The steps of a comparison."""

    def __init__(self, plan: Comparison, step: Step) -> None:
        self.plan = plan
        self._step = step
        self._done = 0
        contenders = len(plan.builders)
        each = 1 + contenders * (2 + plan.rounds)
        self._total = 1 + 2 * contenders + len(plan.groups) * each

    def results(self) -> list[dict[str, Any]]:
        plan = self.plan
        self._say("drawing the workload")
        workload = Workload(plan.dataset, plan.seed)
        clauses = workload.subscriptions(plan.subscriptions)
        contenders = [_Contender(name, builder) for name, builder in plan.builders.items()]
        for one in contenders:
            self._say(f"compiling {one.name}")
            one.figures["compile_s"] = warm_up(one.builder)
        for one in contenders:
            self._say(f"building {one.name}")
            one.build(clauses)
        results = []
        for group in plan.groups:
            tokens, ranges = GROUPS[group]
            share = plan.range_share if ranges else 0.0
            messages = workload.messages(plan.messages, tokens=tokens, range_share=share)
            self._verify(contenders, clauses, messages)
            self._measure(contenders, messages, group)
            results.append(self._report(contenders, clauses, group))
        return results

    def _say(self, what: str) -> None:
        self._step(what, self._done, self._total)
        self._done += 1

    def _verify(self, contenders: list[_Contender], clauses: Clauses, messages: Messages) -> None:
        rows = np.linspace(0, len(messages) - 1, min(self.plan.sample, len(messages)))
        sample = messages.take(np.unique(rows.astype(np.int64)))
        self._say("scanning the sample")
        expected = indexes.create("scan").build(clauses).match(sample).pairs()
        for one in contenders:
            self._say(f"checking {one.name}")
            one.verify(sample, expected)

    def _measure(self, contenders: list[_Contender], messages: Messages, group: str) -> None:
        for one in contenders:
            self._say(f"{group}: first round of {one.name}")
            one.choose(messages, self.plan.threads)
        for turn in range(self.plan.rounds):
            for i in range(len(contenders)):
                one = contenders[(turn + i) % len(contenders)]
                self._say(f"{group}: round {turn + 1} of {one.name}")
                one.measure(self.plan.threads)

    def _report(self, contenders: list[_Contender], clauses: Clauses, group: str) -> dict[str, Any]:
        plan = self.plan
        return {
            "experiment": "compare",
            "dataset": plan.dataset,
            "subscriptions": plan.subscriptions,
            "messages": plan.messages,
            "group": group,
            "range_share": plan.range_share if GROUPS[group][1] else 0.0,
            "seed": plan.seed,
            "rounds": plan.rounds,
            "threads": plan.threads,
            "column_bytes_per_subscription": clauses.nbytes / plan.subscriptions,
            "machine": describe_machine(),
            "results": [one.result() for one in contenders],
        }
