"""Run recorded ticks through moving indexes, in rotation, and compare all updates."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import InvalidInput, NearcastError
from nearcast.indexes.moving import registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.benchmarks.compare import Step
    from nearcast.benchmarks.moving.load import MovingLoad, Recording
    from nearcast.columns import Messages
    from nearcast.indexes.moving.contract import Changes
    from nearcast.indexes.moving.registry import MovingBuilder

__all__ = ["MovingPlan", "check_with_scan", "measure_ticks"]

SCAN = "moving-scan"
_FEW_WORDS = {"vocabulary": 100, "topics": 4, "topic_words": 10, "keywords": (1, 3)}
"""Words of the load that the scan is compared with, so that its few subscriptions match."""

_CHECKED_TICKS = 2


@dataclass(frozen=True)
class MovingPlan:
    """How long a load is measured.

    Parameters
    ----------
    ticks, warm_up
        Ticks that are measured, and ticks before them.
    memory_bytes
        Maximum size of the indexes in memory. Indexes that fit run in rotation; the others run the
        same ticks afterwards.
    apart
        Whether storing messages and updating places are also measured apart: messages are matched
        before they are published, and some moves are made while no message is alive.
    """

    ticks: int = 5
    warm_up: int = 1
    memory_bytes: float = 8e9
    apart: bool = False

    def __post_init__(self) -> None:
        if self.ticks < 1:
            raise InvalidInput("ticks", self.ticks, "must be at least 1")

    @property
    def still(self) -> int:
        """Ticks of moves without messages."""
        return 1 + self.ticks if self.apart else 0

    def record(self, load: MovingLoad) -> Recording:
        """Draw what all indexes run."""
        return load.record(self.warm_up + self.ticks, self.still)


@dataclass
class _Costs:
    """What each measured tick took: seconds of CPU time, and what came out."""

    expire_s: list[float] = field(default_factory=list)
    move_s: list[float] = field(default_factory=list)
    publish_s: list[float] = field(default_factory=list)
    match_s: list[float] = field(default_factory=list)
    still_us: list[float] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    matches: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    quiet: list[float] = field(default_factory=list)


class _IndexRun:
    """One index with its messages, and what it cost so far."""

    def __init__(self, label: str, builder: MovingBuilder, recording: Recording) -> None:
        self.label = label
        self.recording = recording
        self.costs = _Costs()
        self.digests: list[str] = []
        self._serial_of = np.empty(0, np.int64)
        self._serial = 0
        self._alive: list[NDArray[np.int32]] = []
        self._digest = 0
        began = time.process_time()
        self.index = builder.build(recording.clauses)
        self.build_s = time.process_time() - began
        self.built_bytes = self.index.nbytes
        self.token_bytes = int(getattr(self.index, "token_nbytes", 0))

    def prepare(self) -> None:
        """Make the moves without messages, then publish all messages that live at the start."""
        for tick, moves in enumerate(self.recording.still):
            began = time.process_time()
            found = self.index.move(moves.mover, moves.box)
            spent = time.process_time() - began
            if tick:
                self.costs.still_us.append(spent / max(1, len(moves.mover)) * 1e6)
            self._count(found)
        self.fill_s = 0.0
        for batch in self.recording.fill:
            self.fill_s += self._publish(batch)[0]
        self.copies = self.index.copies / max(1, self.recording.messages)
        self._end_tick()

    def tick(self, number: int, *, measured: bool, apart: bool) -> None:
        """Run one tick: the oldest messages expire, subscriptions move, messages arrive."""
        moves, messages, placed = self.recording.ticks[number]
        costs, clock = self.costs, time.process_time
        match_s = 0.0
        if apart:
            began = clock()
            self.index.match(messages)
            match_s = clock() - began
        began = clock()
        ended = self.index.expire(self._alive[0])
        expire_s = clock() - began
        self._count(ended)
        began = clock()
        if placed is None:
            moved = self.index.move(moves.mover, moves.box)
        else:
            moved = self.index.replace(moves.mover, placed)
        move_s = clock() - began
        self._count(moved)
        del self._alive[0]
        publish_s, matches = self._publish(messages)
        self._end_tick()
        if not measured:
            return
        costs.expire_s.append(expire_s)
        costs.move_s.append(move_s)
        costs.publish_s.append(publish_s)
        costs.match_s.append(match_s)
        costs.moves.append(len(moves.mover))
        costs.updates.append(len(moved))
        costs.matches.append(matches)
        costs.ended.append(len(ended))
        changed = np.zeros(len(self.index), np.bool_)
        changed[moved.row] = True
        costs.quiet.append(1 - np.count_nonzero(changed) / max(1, len(moves.mover)))

    def _publish(self, messages: Messages) -> tuple[float, int]:
        """Publish messages; return the seconds, and the number of matches."""
        began = time.process_time()
        numbers, found = self.index.publish(messages)
        spent = time.process_time() - began
        self._alive.append(numbers)
        end = int(numbers.max(initial=-1)) + 1
        if end > len(self._serial_of):
            more = np.empty(2 * end - len(self._serial_of), np.int64)
            self._serial_of = np.concatenate([self._serial_of, more])
        self._serial_of[numbers] = np.arange(self._serial, self._serial + len(numbers))
        self._serial += len(numbers)
        self._count(found)
        return spent, len(found)

    def _count(self, found: Changes) -> None:
        """Add updates to the digest of the tick; it does not depend on their order."""
        self._digest += digest(found, self._serial_of)

    def _end_tick(self) -> None:
        self.digests.append(f"{self._digest % 2**64:016x}")
        self._digest = 0

    def result(self, heat: int) -> dict[str, Any]:
        """Return all measurements; per operation, one number for every tick."""
        costs, index, arriving = self.costs, self.index, self.recording.load.arriving
        live, subscriptions = index.live_messages, len(index)

        def us(seconds: list[float], counts: list[int]) -> list[float]:
            return [s / max(1, n) * 1e6 for s, n in zip(seconds, counts, strict=True)]

        each = [arriving] * len(costs.moves)
        parts = zip(costs.expire_s, costs.move_s, costs.publish_s, strict=True)
        apart = bool(costs.still_us)
        return {
            "series": self.label,
            "index": index.name,
            "heat": heat,
            "subscriptions": subscriptions,
            "messages": live,
            "build_s": self.build_s,
            "fill_s": self.fill_s,
            "bytes": index.nbytes,
            "bytes_per_subscription": self.built_bytes / subscriptions,
            "bytes_of_tokens_per_subscription": self.token_bytes / subscriptions,
            "bytes_per_message": (index.nbytes - self.built_bytes) / max(1, live),
            "copies_per_message": self.copies,
            "moves_per_tick": float(np.mean(costs.moves)),
            "updates_per_move": sum(costs.updates) / max(1, sum(costs.moves)),
            "matches_per_message": sum(costs.matches) / (arriving * len(costs.moves)),
            "ended_per_message": sum(costs.ended) / (arriving * len(costs.moves)),
            "quiet_moves": float(np.mean(costs.quiet)),
            "us_per_move": us(costs.move_s, costs.moves),
            "us_per_publish": us(costs.publish_s, each),
            "us_per_expire": us(costs.expire_s, each),
            "us_per_match": us(costs.match_s, each) if apart else [],
            "us_per_still_move": costs.still_us,
            "tick_s": [sum(part) for part in parts],
            "digests": self.digests,
        }


def digest(changes: Changes, serial_of: NDArray[np.int64]) -> int:
    """Return a hash of updates, whatever their order: the sum of a hash of each.

    Examples
    --------
    >>> from nearcast.indexes.moving.contract import Changes
    >>> some, others = Changes.of([1, 2], [0, 1], 1), Changes.of([2, 1], [1, 0], 1)
    >>> serial = np.array([7, 8])
    >>> digest(some, serial) == digest(others, serial)
    True
    """
    serial = serial_of[changes.message].astype(np.uint64)
    key = changes.row.astype(np.uint64) << np.uint64(33) | serial << np.uint64(1)
    key |= (changes.sign > 0).astype(np.uint64)
    # The mixing function of splitmix64.
    key = (key ^ key >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ key >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return int((key ^ key >> np.uint64(31)).sum(dtype=np.uint64))


def measure_ticks(
    series: Mapping[str, MovingBuilder],
    recording: Recording,
    plan: MovingPlan,
    step: Step = lambda name, done, total: None,
) -> list[dict[str, Any]]:
    """Run the ticks of a recording through indexes; return the measurements of each.

    Raises
    ------
    NearcastError
        If the updates of two indexes differ in a tick.
    """
    done, total, results = 0, 2 * len(series), []
    waiting = list(series.items())
    heat = 0
    while waiting:
        heat += 1
        runs: list[_IndexRun] = []
        held = largest = 0
        # The next index may be as large as the largest, and need twice that during its build.
        while waiting and (not runs or held + 2 * largest <= plan.memory_bytes):
            label, builder = waiting.pop(0)
            step(f"building {label}", done, total)
            run = _IndexRun(label, builder, recording)
            run.prepare()
            runs.append(run)
            held, largest = held + run.index.nbytes, max(largest, run.index.nbytes)
            done += 1
        step(f"{plan.ticks} ticks of {', '.join(run.label for run in runs)}", done, total)
        _rotate(runs, plan)
        done += len(runs)
        results += [run.result(heat) for run in runs]
        del run
    check_agreement(results)
    return results


def _rotate(runs: list[_IndexRun], plan: MovingPlan) -> None:
    """Run all ticks; in each, all indexes in turn, and each time another one first."""
    for number in range(plan.warm_up + plan.ticks):
        for i in range(len(runs)):
            run = runs[(number + i) % len(runs)]
            run.tick(number, measured=number >= plan.warm_up, apart=plan.apart)


def check_agreement(results: list[dict[str, Any]]) -> None:
    """Raise an error if two indexes had different updates in a tick."""
    first = results[0]
    for other in results[1:]:
        pairs = zip(first["digests"], other["digests"], strict=True)
        differing = [tick for tick, (a, b) in enumerate(pairs) if a != b]
        if differing:
            raise NearcastError(
                f"{first['series']} and {other['series']} have different updates in tick "
                f"{differing[0]} of {len(first['digests']) - 1}; one of them is wrong"
            )


def check_with_scan(
    series: Mapping[str, MovingBuilder], load: MovingLoad, *, apart: bool = False
) -> int:
    """Compare all updates of indexes with those of the scan, on a small load of few words.

    It also compiles or loads the kernels. Returns the number of updates of the scan.

    Raises
    ------
    NearcastError
        If the updates of an index differ from those of the scan.
    """
    small = replace(
        load,
        subscriptions=400,
        messages=150,
        arrivals=15,
        dataset="tweets",
        changes=_FEW_WORDS,
        tokens=(6, 12),
        mobility=0.4,
        box_share=(0.01, 0.2),
    )
    plan = MovingPlan(ticks=_CHECKED_TICKS, warm_up=0, apart=apart)
    recording = plan.record(small)
    compared = {SCAN: registry.create(SCAN), **series}
    scan, *_ = measure_ticks(compared, recording, plan)
    moved: float = scan["updates_per_move"] * scan["moves_per_tick"] * plan.ticks
    arrived: float = scan["matches_per_message"] + scan["ended_per_message"]
    return round(moved + arrived * small.arriving * plan.ticks)
