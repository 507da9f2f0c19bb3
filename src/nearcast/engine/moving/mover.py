"""Moving and replacing subscriptions: one, or the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import gather, place_conjunctions
from nearcast.engine.moving.updates import Updates
from nearcast.intake.places import regions_of
from nearcast.model.subscriptions import region_for
from nearcast.segments import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nearcast.columns import Ids, Regions
    from nearcast.engine.moving.live import Live
    from nearcast.engine.store import Store
    from nearcast.intake import MoveBatch
    from nearcast.model import Id, Region

__all__ = ["Mover"]


@dataclass(frozen=True)
class Mover:
    """Moves the subscriptions of a store, and says what that changes.

    Callers hold the lock of ``live``.
    """

    store: Store
    live: Live

    def move(self, id: Id, region: Region | Any, time_us: int | None) -> Updates:
        """Move one subscription."""
        handle = self.store.handle_at(id, self.live.moment(time_us))
        handles = np.array([handle], np.int32)
        place = region_for(int(self.store.kinds(handles)[0]), region)
        if self.store.by_replacing(handles)[0]:
            return self.replace(id, lambda part: _placed(part, regions_of([place])), time_us)
        when = np.array([self.live.begin(time_us)])
        rows, boxes = self.store.take_out(handles), place.boxes()
        if len(boxes) == 1 and place.rings() is None and self.live.movers.is_plain(rows[0]):
            moved = self.live.move_boxes(rows, np.array(boxes, np.int32), when)[1]
        else:
            moved = self._move_rows(rows, regions_of([place]), when)
        return self.live.returned(moved)

    def replace(self, id: Id, change: Callable[[Part], Part], time_us: int | None) -> Updates:
        """Put a changed subscription in the place of one."""
        handle = np.array([self.store.handle_at(id, self.live.moment(time_us))], np.int32)
        when = self.live.begin(time_us)
        before, after = self.store.replace(id, change)
        ended, begun = self.live.find(before, handle), self.live.find(after, handle)
        changed = self.live.difference(before.subscriptions.ids, ended, begun, when)
        return self.live.returned(changed)

    def move_batch(self, batch: MoveBatch) -> tuple[Updates, NDArray[np.bool_]]:
        """Move subscriptions by time, equal times by row.

        Returns
        -------
        tuple
            What that changes, and which of the subscriptions are not registered.
        """
        unknown = np.zeros(len(batch), np.bool_)
        time_us = self.live.effective_us(batch.time_us)
        number = _numbered(batch.ids)
        counts = _last_of(number, time_us, batch.time_us)
        chosen = np.flatnonzero(counts == np.arange(len(counts)))
        updates = []
        for run in self._runs(number, time_us, chosen):
            parts = []
            handle = self.store.handles(batch.ids.take(run), int(time_us[run[0]]))
            unknown[run] = handle < 0
            known = handle >= 0
            chosen, handle = run[known], handle[known]
            replaced = self.store.by_replacing(handle)
            for row in chosen[replaced].tolist():
                parts.append(self._move_by_replacing(batch, row, int(time_us[row])))
            chosen, handle = chosen[~replaced], handle[~replaced]
            if len(chosen):
                rows = self.store.take_out(handle)
                regions = batch.regions_of(chosen)
                moved = self._move_rows(rows, regions, time_us[chosen])
                parts.append(self.live.returned(moved))
            several = Updates.concatenate(parts)
            if len(parts) > 1:
                place = {id: i for i, id in enumerate(batch.ids.take(run).tolist())}
                rank = [place[id] for id in several.subscription.tolist()]
                several = several.take(np.argsort(np.array(rank, np.int64), kind="stable"))
            updates.append(several)
        return Updates.concatenate(updates).by_time(), unknown[counts]

    def _runs(
        self, number: NDArray[np.int64], time_us: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> Iterator[NDArray[np.int64]]:
        """Yield rows by time: runs in which nothing expires, and no number is there twice."""
        order = rows[np.argsort(time_us[rows], kind="stable")]
        times = time_us[order]
        before = _before(number[order])
        first = 0
        while first < len(order):
            self.live.begin(int(times[first]))
            end = int(np.searchsorted(times, self.live.next_expiry_us, side="left"))
            again = np.flatnonzero(before[first:end] >= first)
            stop = max(first + 1, min(end, first + int(again[0]) if len(again) else end))
            yield order[first:stop]
            first = stop
        if len(order):
            self.live.begin(int(times[-1]))

    def _move_by_replacing(self, batch: MoveBatch, row: int, time_us: int) -> Updates:
        regions = batch.regions_of(np.array([row]))
        [id] = batch.ids.take(np.array([row])).tolist()
        return self.replace(id, lambda part: _placed(part, regions), time_us)

    def _move_rows(
        self, rows: NDArray[np.int32], regions: Regions, time_us: NDArray[np.int64]
    ) -> Updates:
        """Move subscriptions of the moving index."""
        easy = (np.diff(regions.box_start) == 1) & (regions.shape < 0)
        easy &= self.live.movers.plain(rows)
        if easy.all():
            return self.live.move_boxes(rows, regions.box, time_us)[1]
        parts = []
        chosen = np.flatnonzero(easy)
        if len(chosen):
            box = regions.box[regions.box_start[chosen]]
            position, updates = self.live.move_boxes(rows[chosen], box, time_us[chosen])
            parts.append((chosen[position], updates))
        chosen = np.flatnonzero(~easy)
        start, boxes = gather(regions.box_start, chosen)
        others = regions._replace(
            box_start=start, box=regions.box[boxes], shape=regions.shape[chosen]
        )
        position, updates = self.live.move_regions(rows[chosen], others, time_us[chosen])
        parts.append((chosen[position], updates))
        position = np.concatenate([position for position, _ in parts])
        updates = Updates.concatenate([updates for _, updates in parts])
        return updates.take(np.argsort(position, kind="stable"))


def _placed(part: Part, regions: Regions) -> Part:
    """Return a subscription with another region; it asks for the same words."""
    subscriptions = part.subscriptions
    clauses = place_conjunctions(subscriptions.clauses.conjunctions(), regions)
    return Part(replace(subscriptions, clauses=clauses), part.vocabulary)


def _numbered(ids: Ids) -> NDArray[np.int64]:
    """Return a number for every id, the same for the same id."""
    if not ids.has_text:
        return np.unique(ids.number, return_inverse=True)[1]
    number: dict[str | int, int] = {}
    return np.array([number.setdefault(value, len(number)) for value in ids.tolist()], np.int64)


def _last_of(
    number: NDArray[np.int64], time_us: NDArray[np.int64], given_us: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for every row the one that counts instead, of those of one number that happen at once.

    That is the one with the latest time as it was given, and the last of several with that.
    """
    order = np.lexsort((given_us, time_us, number))
    same = (number[order[1:]] == number[order[:-1]]) & (time_us[order[1:]] == time_us[order[:-1]])
    ends = np.flatnonzero(~np.append(same, False))
    last = np.empty(len(order), np.int64)
    last[order] = order[ends[np.searchsorted(ends, np.arange(len(order)))]]
    return last


def _before(number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each number stood last before, -1 if it did not."""
    order = np.argsort(number, kind="stable")
    before = np.full(len(number), -1)
    same = number[order[1:]] == number[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before
