"""Subscriptions that change while messages are matched, straight on indexes.

As in section 7.5 of the rt-tree's journal paper: of a hundred operations ten insert a subscription,
ten delete one and eighty match a message. (`benchmarks.churn` measures engines instead.)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.compare import spread
from nearcast import indexes
from nearcast.indexes import UpdatableIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.paper.experiment import Plan
    from nearcast.columns import Clauses, Messages
    from nearcast.datasets.workloads import Workload

__all__ = ["BATCH", "MixedLoad"]

BATCH = 100
"""Operations of a batch: first inserts, then deletes, then messages."""

_INSERTS = _DELETES = 10
_MESSAGES = BATCH - _INSERTS - _DELETES


class _Batch(NamedTuple):
    """What one batch inserts, deletes and matches."""

    inserted: Clauses
    deleted: NDArray[np.int64]
    messages: Messages


class _Spent(NamedTuple):
    """The seconds of a round, by what they were spent on."""

    insert_s: float
    delete_s: float
    message_s: float

    @property
    def total_s(self) -> float:
        return sum(self)


class MixedLoad:
    """The changes of a data set's subscriptions: the same for all indexes that take them.

    ``scan`` gives, for each index, an oracle that went through the same changes.
    """

    def __init__(self, workload: Workload, clauses: Clauses, plan: Plan, groups: list[str]) -> None:
        self._clauses = clauses
        self._plan = plan
        # At most half of the subscriptions go, whatever the number of groups and rounds.
        share = clauses.subscriptions // 2 // (_DELETES * len(groups) * plan.rounds)
        self._most_batches = max(1, min(share, plan.messages // _MESSAGES))
        most = 1 + self._most_batches * len(groups) * plan.rounds
        rng = np.random.default_rng([workload.seed, 4])
        self._going = rng.permutation(clauses.subscriptions)[: most * _DELETES]
        self._coming = workload.subscriptions(most * _INSERTS, first=clauses.subscriptions)
        self._begun = 0
        self._took: dict[str, list[int]] = {}

    def begin(self, takers: dict[str, UpdatableIndex], messages: Messages) -> None:
        """Let every index take its first changes, for which it may have to copy what it holds."""
        work = [self._batch(0, 0, messages)]
        for label, index in takers.items():
            _do(index, work)
            self._took[label] = [0]
        self._begun = 1

    def run(
        self,
        group: str,
        takers: dict[str, UpdatableIndex],
        messages: Messages,
        slowest_us: float,
    ) -> list[dict[str, Any]]:
        """Run all rounds of a group, the indexes in turn; return the figures of each."""
        rounds, labels = self._plan.rounds, list(takers)
        wanted = self._plan.point_s / rounds / (slowest_us * _MESSAGES / 1e6)
        batches = int(min(max(wanted, 1), self._most_batches))
        spent: dict[str, list[_Spent]] = {label: [] for label in labels}
        for turn in range(rounds):
            work = [self._batch(self._begun + i, i, messages) for i in range(batches)]
            for i in range(len(labels)):
                label = labels[(turn + i) % len(labels)]
                spent[label].append(_do(takers[label], work))
                numbers = range(self._begun, self._begun + batches)
                self._took[label].extend(numbers)
            self._begun += batches
        return [_figures(label, group, batches, own) for label, own in spent.items()]

    def scan(self, label: str) -> UpdatableIndex:
        """Return a scan over what is left after the changes that an index took."""
        scan = indexes.create("scan").build(self._clauses)
        assert isinstance(scan, UpdatableIndex)
        took = np.array(self._took[label])
        scan.insert(self._coming.take(_rows(took, _INSERTS)))
        scan.delete(self._going[_rows(took, _DELETES)])
        return scan

    def _batch(self, number: int, of_round: int, messages: Messages) -> _Batch:
        numbers = np.array([number])
        first = of_round * _MESSAGES
        return _Batch(
            self._coming.take(_rows(numbers, _INSERTS)),
            self._going[_rows(numbers, _DELETES)],
            messages.take(np.arange(first, first + _MESSAGES) % len(messages)),
        )


def _rows(batches: NDArray[Any], each: int) -> NDArray[np.int64]:
    """Return the rows of these batches, ``each`` of them in every one."""
    rows: NDArray[np.int64] = (batches[:, None] * each + np.arange(each)).ravel()
    return rows


def _do(index: UpdatableIndex, work: list[_Batch]) -> _Spent:
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


def _figures(label: str, group: str, batches: int, spent: list[_Spent]) -> dict[str, Any]:
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
