"""Compare indexes on the same subscriptions and messages, in one process.

Each index is first compiled on tiny data, so that compile time is measured separately. Its matches
for a sample of the messages, and their scores if the subscriptions are ranked, are compared with
the scan's (see `nearcast.benchmarks.answers`). Then the indexes run in rotation, round
by round, so that other load on the machine affects all of them equally. All indexes must find
the same number of matches for each message that is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast import __version__
from nearcast.benchmarks.answers import Answers
from nearcast.benchmarks.own_files import GROUP
from nearcast.benchmarks.ranking import of_kind
from nearcast.columns import Clauses
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.plots.machine import PeakMemory, describe_machine
from nearcast.segments.warm import warm_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.benchmarks.own_files import FileLoad
    from nearcast.benchmarks.ranking import Ranking
    from nearcast.columns import Messages, Ranked, Scoring
    from nearcast.indexes import Builder, Index

__all__ = [
    "ALL_GROUPS",
    "DEFAULT_SAMPLE",
    "GROUPS",
    "GROUPS_OF_KIND",
    "RANGE_SHARES",
    "Comparison",
    "Step",
    "compare",
    "ns_per_match",
    "spread",
]

GROUPS: dict[str, tuple[tuple[int, int] | None, bool]] = {
    "short-point": (None, False),
    "long-point": ((100, 1000), False),
    "short-range": (None, True),
    "long-range": ((100, 1000), True),
}
"""Groups of messages: range of tokens (None: as in the data set), and whether they are boxes."""

RANKED_GROUPS: dict[str, tuple[tuple[int, int] | None, bool]] = {
    "mean-12-point": ((6, 18), False),
    "mean-41-point": ((35, 47), False),
    "mean-12-range": ((6, 18), True),
    "mean-41-range": ((35, 47), True),
}
"""Messages of 12 and of 41 tokens on average, as in the experiments with ranked subscriptions."""

ALL_GROUPS = GROUPS | RANKED_GROUPS
"""All groups of messages by name."""

GROUPS_OF_KIND = {
    "boolean": tuple(GROUPS),
    "proximity": ("mean-12-point", "mean-41-point"),
    "overlap": ("mean-12-range", "mean-41-range"),
}
"""The groups to measure for each kind of subscriptions, the default first."""

RANGE_SHARES = {"boolean": 0.0001, "proximity": 0.0001, "overlap": 0.01}
"""The default of the largest area of a range message, as a share of the world. Smaller messages
cover next to nothing of the regions of ``tweets``, and overlap would not count."""

DEFAULT_SAMPLE = 20
"""How many messages are compared with the scan at least."""

MAX_ROUND_S = 5.0
"""If a round would take longer, the index gets only as many messages as fit in this time."""

MAX_CHECK_S = 20.0
"""If an index needs longer for the whole sample, only a part of the sample is checked."""

Step = Callable[[str, int, int], None]
"""Called with the name of the current step, the number of finished steps, and the total."""


@dataclass(frozen=True)
class Comparison:
    """The workload, the indexes and the rounds of a comparison.

    Parameters
    ----------
    dataset, subscriptions, messages, seed
        The workload.
    builders
        The indexes, by their names in the report.
    groups
        Names of `ALL_GROUPS` to match. Indexes are built once for all groups.
    range_share
        Largest area of a range message, as a share of the world.
    rounds
        How often each index matches the messages.
    sample
        Number of messages to compare with the scan; more if they have few matches.
    threads
        Number of threads.
    ranking
        The ranges of ranked subscriptions; None for boolean ones.
    files
        Subscriptions and messages that were read from files; then nothing is drawn, and
        ``dataset``, ``seed``, ``groups`` and ``ranking`` do not matter.
    """

    dataset: str
    subscriptions: int
    messages: int
    builders: dict[str, Builder]
    seed: int = 0
    groups: tuple[str, ...] = ("short-point",)
    range_share: float = 0.0001
    rounds: int = 5
    sample: int = DEFAULT_SAMPLE
    threads: int = 1
    ranking: Ranking | None = None
    files: FileLoad | None = None

    @classmethod
    def of_files(
        cls, name: str, files: FileLoad, builders: dict[str, Builder], **more: Any
    ) -> Self:
        """Return the comparison on the content of files.

        Parameters
        ----------
        name
            What reports call it.
        files
            What was read.
        builders, more
            As for a comparison on drawn data.
        """
        content = files.content
        count = content.subscriptions if isinstance(content, Clauses) else len(content)
        sizes = count, len(files.messages)
        return cls(name, *sizes, builders, groups=(GROUP,), files=files, **more)

    @property
    def kind(self) -> str:
        """The kind of the subscriptions."""
        if self.files is not None:
            return self.files.kind
        return "boolean" if self.ranking is None else self.ranking.kind

    @property
    def scoring(self) -> Scoring | None:
        """How the subscriptions score; None for boolean ones."""
        if self.files is not None:
            content = self.files.content
            return None if isinstance(content, Clauses) else content.scoring
        return None if self.ranking is None else self.ranking.scoring

    def is_range(self, group: str) -> bool:
        """Return whether the messages of a group are drawn as boxes."""
        return self.files is None and ALL_GROUPS[group][1]

    def draw(self, workload: Workload) -> Clauses | Ranked:
        """Draw the subscriptions."""
        if self.ranking is None:
            return workload.subscriptions(self.subscriptions)
        return self.ranking.draw(workload, self.subscriptions)

    def __post_init__(self) -> None:
        for group in self.groups if self.files is None else ():
            if group not in ALL_GROUPS:
                raise UnknownName("group", group, ALL_GROUPS)
        for builder in self.builders.values():
            of_kind(builder, self.kind)
        if not self.groups:
            raise InvalidInput("groups", self.groups, "must have at least one group")
        for name in ("subscriptions", "messages", "rounds"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "must be at least 1")


def compare(plan: Comparison, step: Step = lambda name, done, total: None) -> list[dict[str, Any]]:
    """Run the comparison and return one result per group.

    Raises
    ------
    NearcastError
        If the matches of an index differ from the scan's, or from those of another index.
    """
    return _Run(plan, step).results()


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, the minimum and the maximum of measurements.

    Examples
    --------
    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'least': 1.0, 'most': 3.0}
    """
    return {"median": float(np.median(values)), "least": min(values), "most": max(values)}


def ns_per_match(us_per_message: float, matches_per_message: float) -> float | None:
    """Return the nanoseconds per delivered match; None if there are no matches.

    Examples
    --------
    >>> ns_per_match(10.0, 400.0)
    25.0
    """
    return us_per_message * 1000 / matches_per_message if matches_per_message else None


class _MeasuredIndex:
    """An index and its measurements."""

    def __init__(self, name: str, builder: Builder, kind: str) -> None:
        self.name = name
        self.builder = of_kind(builder, kind)
        self.measurements: dict[str, Any] = {"index": name, "options": vars(self.builder.options)}
        self.index: Index
        self.messages: Messages
        self.start: NDArray[np.int64]
        self.us_per_message: list[float]

    def build(self, content: Clauses | Ranked) -> None:
        """Build the index, and measure time and memory."""
        count = content.subscriptions if isinstance(content, Clauses) else len(content)
        with PeakMemory() as memory:
            began = time.perf_counter()
            self.index = self.builder.build(content)
            spent = time.perf_counter() - began
        self.measurements |= {
            "build_s": spent,
            "build_peak_bytes": memory.growth_bytes,
            "index_bytes": self.index.nbytes,
            "bytes_per_subscription": self.index.nbytes / count,
        }

    def verify(self, answers: Answers, least: int) -> None:
        """Compare the answers to a sample of messages with the right ones.

        At least the first ``least`` messages are checked, and as many others as there is time for.
        """
        least = min(least, len(answers.sample))
        began = time.perf_counter()
        matches = answers.check_part(self.name, self.index, 0, least)
        seconds_each = (time.perf_counter() - began) / least
        limit = max(least, int(MAX_CHECK_S / max(seconds_each, 1e-9)))
        last = min(len(answers.sample), limit)
        if last > least:
            matches += answers.check_part(self.name, self.index, least, last)
        self.measurements |= {"verified_matches": matches, "verified_messages": last}

    def choose_messages(self, messages: Messages, threads: int) -> None:
        """Take as many messages as fit in a round, and match them once."""
        self.us_per_message = []
        few = min(20, len(messages))
        began = time.perf_counter()
        self.index.match(messages.take(np.arange(few)), threads=threads)
        seconds_each = (time.perf_counter() - began) / few
        limit = max(few, int(MAX_ROUND_S / max(seconds_each, 1e-9)))
        self.messages = messages if limit >= len(messages) else messages.take(np.arange(limit))
        matches = self.index.match(self.messages, threads=threads)
        self.start = matches.start
        self.measurements |= {
            "messages": len(self.messages),
            "matches_per_message": len(matches) / len(self.messages),
            "examined_per_message": matches.examined / len(self.messages),
            "visited_per_message": matches.visited / len(self.messages),
        }

    def measure(self, threads: int) -> None:
        """Match all messages and record the time."""
        began = time.perf_counter()
        self.index.match(self.messages, threads=threads)
        taken = time.perf_counter() - began
        self.us_per_message.append(taken / len(self.messages) * 1e6)

    def result(self) -> dict[str, Any]:
        """Return all measurements."""
        timing = spread(self.us_per_message)
        return {
            **self.measurements,
            "us_per_message": timing,
            "ns_per_match": ns_per_match(
                timing["median"], self.measurements["matches_per_message"]
            ),
            "messages_per_second": 1e6 / timing["median"],
            "rounds_us": self.us_per_message,
        }


class _Run:
    """The steps of a comparison."""

    def __init__(self, plan: Comparison, step: Step) -> None:
        self.plan = plan
        self._step = step
        self._done = 0
        count = len(plan.builders)
        steps_per_group = 1 + count * (2 + plan.rounds)
        self._total = 1 + 2 * count + len(plan.groups) * steps_per_group

    def results(self) -> list[dict[str, Any]]:
        plan = self.plan
        if plan.files is None:
            self._next_step("drawing the workload")
            workload = Workload(plan.dataset, plan.seed)
            content = plan.draw(workload)
        else:
            self._next_step("taking the files")
            content = plan.files.content
        measured = [
            _MeasuredIndex(name, builder, plan.kind) for name, builder in plan.builders.items()
        ]
        for index in measured:
            self._next_step(f"compiling {index.name}")
            index.measurements["compile_s"] = warm_up(index.builder, (plan.kind,), plan.scoring)
        for index in measured:
            self._next_step(f"building {index.name}")
            index.build(content)
        results = []
        for group in plan.groups:
            if plan.files is not None:
                messages = plan.files.messages
            else:
                messages = _draw_messages(plan, workload, content, group)
            self._verify(measured, content, messages)
            self._measure(measured, content, messages, group)
            results.append(self._report(measured, content, group))
        return results

    def _next_step(self, name: str) -> None:
        self._step(name, self._done, self._total)
        self._done += 1

    def _verify(
        self, measured: list[_MeasuredIndex], content: Clauses | Ranked, messages: Messages
    ) -> None:
        self._next_step("scanning the sample")
        answers = Answers.of_sample(content, messages, self.plan.sample)
        for index in measured:
            self._next_step(f"checking {index.name}")
            index.verify(answers, self.plan.sample)

    def _measure(
        self,
        measured: list[_MeasuredIndex],
        content: Clauses | Ranked,
        messages: Messages,
        group: str,
    ) -> None:
        for index in measured:
            self._next_step(f"{group}: first round of {index.name}")
            index.choose_messages(messages, self.plan.threads)
        _compare_counts(measured, content)
        for turn in range(self.plan.rounds):
            for i in range(len(measured)):
                index = measured[(turn + i) % len(measured)]
                self._next_step(f"{group}: round {turn + 1} of {index.name}")
                index.measure(self.plan.threads)

    def _report(
        self, measured: list[_MeasuredIndex], content: Clauses | Ranked, group: str
    ) -> dict[str, Any]:
        plan = self.plan
        return {
            "experiment": "compare",
            "kind": plan.kind,
            "ranking": _described_ranking(plan),
            "dataset": plan.dataset,
            "subscriptions": plan.subscriptions,
            "messages": plan.messages,
            "group": group,
            "range_share": plan.range_share if plan.is_range(group) else 0.0,
            "seed": plan.seed,
            "rounds": plan.rounds,
            "threads": plan.threads,
            "sample": plan.sample,
            "column_bytes_per_subscription": content.nbytes / plan.subscriptions,
            **({} if plan.files is None else {"files": plan.files.to_dict()}),
            "nearcast": __version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": describe_machine(),
            "results": [index.result() for index in measured],
        }


def _compare_counts(measured: list[_MeasuredIndex], content: Clauses | Ranked) -> None:
    """Raise an error if two indexes found other numbers of matches for a message that both had."""
    if not measured:
        return
    other = max(measured, key=lambda index: len(index.messages))
    for index in measured:
        count = len(index.messages)
        differs = np.diff(index.start) != np.diff(other.start[: count + 1])
        if not differs.any():
            continue
        message = int(np.flatnonzero(differs)[0])
        answers = Answers(content, index.messages.take(np.array([message])))
        detail = ""
        for one in (index, other):
            try:
                answers.check(one.name, one.index)
            except NearcastError as error:
                detail = f"; for message {message + 1:,}, {error}"
                break
        wrong, right = (other, index) if detail and one is other else (index, other)
        raise NearcastError(
            f"{wrong.name} found {wrong.start[count]:,} matches of {count:,} messages, "
            f"{right.name} found {right.start[count]:,}{detail}"
        )


def _draw_messages(
    plan: Comparison, workload: Workload, content: Clauses | Ranked, group: str
) -> Messages:
    tokens, ranges = ALL_GROUPS[group]
    share = plan.range_share if ranges else 0.0
    messages = workload.messages(plan.messages, tokens=tokens, range_share=share)
    return messages if isinstance(content, Clauses) else content.weigh(messages)


def _described_ranking(plan: Comparison) -> dict[str, Any] | None:
    if plan.ranking is not None:
        return plan.ranking.to_dict()
    if plan.scoring is None:
        return None
    described = {"similarity": plan.scoring.similarity}
    return described | ({"distance": plan.scoring.distance} if plan.kind == "proximity" else {})
