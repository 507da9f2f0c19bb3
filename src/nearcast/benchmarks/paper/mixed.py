"""Subscriptions change while messages are matched, directly on indexes.

As in section 7.5 of the rt-tree's journal paper: of 100 operations, ten insert a subscription, ten
delete one and 80 match a message. (`nearcast.benchmarks.churn` measures engines instead.)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import indexes
from nearcast.benchmarks.compare import spread
from nearcast.indexes import UpdatableIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.benchmarks.paper.experiment import Plan
    from nearcast.columns import Clauses, Messages
    from nearcast.datasets.workloads import Workload

__all__ = ["BATCH", "MixedLoad"]

BATCH = 100
"""Operations per batch: first inserts, then deletes, then messages."""

_INSERTS = _DELETES = 10
_MESSAGES = BATCH - _INSERTS - _DELETES


class _Batch(NamedTuple):
    """The subscriptions and messages of one batch."""

    inserted: Clauses
    deleted: NDArray[np.int64]
    messages: Messages


class _Spent(NamedTuple):
    """The seconds of a round, by kind of operation."""

    insert_s: float
    delete_s: float
    message_s: float

    @property
    def total_s(self) -> float:
        return sum(self)


class MixedLoad:
    """The changes of a data set's subscriptions, which are the same for all indexes.

    For each index, ``scan`` returns a scan with the same changes, as an oracle.
    """

    def __init__(self, workload: Workload, clauses: Clauses, plan: Plan, groups: list[str]) -> None:
        self._clauses = clauses
        self._plan = plan
        # At most half of the subscriptions are deleted, for any number of groups and rounds.
        share = clauses.subscriptions // 2 // (_DELETES * len(groups) * plan.rounds)
        self._max_batches = max(1, min(share, plan.messages // _MESSAGES))
        total = 1 + self._max_batches * len(groups) * plan.rounds
        rng = np.random.default_rng([workload.seed, 4])
        self._to_delete = rng.permutation(clauses.subscriptions)[: total * _DELETES]
        self._to_insert = workload.subscriptions(total * _INSERTS, first=clauses.subscriptions)
        self._next_batch = 0
        self._applied: dict[str, list[int]] = {}

    def begin(self, indexes_by_label: dict[str, UpdatableIndex], messages: Messages) -> None:
        """Apply one batch to each index: the first change may copy the arrays of the index."""
        work = [self._batch(0, 0, messages)]
        for label, index in indexes_by_label.items():
            _run_batches(index, work)
            self._applied[label] = [0]
        self._next_batch = 1

    def run(
        self,
        group: str,
        indexes_by_label: dict[str, UpdatableIndex],
        messages: Messages,
        slowest_us: float,
    ) -> list[dict[str, Any]]:
        """Run all rounds of a group, the indexes in rotation; return the measurements of each."""
        rounds, labels = self._plan.rounds, list(indexes_by_label)
        affordable = self._plan.point_s / rounds / (slowest_us * _MESSAGES / 1e6)
        batches = int(min(max(affordable, 1), self._max_batches))
        spent: dict[str, list[_Spent]] = {label: [] for label in labels}
        for turn in range(rounds):
            work = [self._batch(self._next_batch + i, i, messages) for i in range(batches)]
            for i in range(len(labels)):
                label = labels[(turn + i) % len(labels)]
                spent[label].append(_run_batches(indexes_by_label[label], work))
                numbers = range(self._next_batch, self._next_batch + batches)
                self._applied[label].extend(numbers)
            self._next_batch += batches
        return [_summarize(label, group, batches, rounds) for label, rounds in spent.items()]

    def scan(self, label: str) -> UpdatableIndex:
        """Return a scan with the changes that were applied to an index."""
        scan = indexes.create("scan").build(self._clauses)
        assert isinstance(scan, UpdatableIndex)
        applied = np.array(self._applied[label])
        scan.insert(self._to_insert.take(_rows(applied, _INSERTS)))
        scan.delete(self._to_delete[_rows(applied, _DELETES)])
        return scan

    def _batch(self, number: int, of_round: int, messages: Messages) -> _Batch:
        numbers = np.array([number])
        first = of_round * _MESSAGES
        return _Batch(
            self._to_insert.take(_rows(numbers, _INSERTS)),
            self._to_delete[_rows(numbers, _DELETES)],
            messages.take(np.arange(first, first + _MESSAGES) % len(messages)),
        )


def _rows(batches: NDArray[Any], each: int) -> NDArray[np.int64]:
    """Return the row numbers of these batches, with ``each`` rows per batch."""
    rows: NDArray[np.int64] = (batches[:, None] * each + np.arange(each)).ravel()
    return rows


def _run_batches(index: UpdatableIndex, work: list[_Batch]) -> _Spent:
    insert_s = delete_s = message_s = 0.0
    clock = time.perf_counter
    for batch in work:
        began = clock()
        index.insert(batch.inserted)
        inserted = clock()
        index.delete(batch.deleted)
        deleted = clock()
        index.match(batch.messages)
        insert_s += inserted - began
        delete_s += deleted - inserted
        message_s += clock() - deleted
    return _Spent(insert_s, delete_s, message_s)


def _summarize(label: str, group: str, batches: int, spent: list[_Spent]) -> dict[str, Any]:
    rates = [batches * BATCH / one.total_s for one in spent]
    return {
        "series": label,
        "group": group,
        "operations": batches * BATCH,
        "operations_per_second": spread(rates),
        "rounds_operations_per_second": rates,
        "us_per_insert": spread([s.insert_s / batches / _INSERTS * 1e6 for s in spent]),
        "us_per_delete": spread([s.delete_s / batches / _DELETES * 1e6 for s in spent]),
        "us_per_message": spread([s.message_s / batches / _MESSAGES * 1e6 for s in spent]),
    }
