"""The simplest index of entries and lists: all messages in one list, all entries compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.indexes.moving.entries import FIRST, PLACE
from nearcast.indexes.moving.listed import ListedIndex
from nearcast.indexes.moving.lists import (
    MessageLists,
    append,
    capacity_of,
    new_list,
    size_of,
    start_of,
)
from nearcast.indexes.moving.living import X, Y, is_alive, is_range
from nearcast.indexes.moving.ranges import Shifted, has_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.contract import NoOptions


class FlatIndex(ListedIndex):
    """Compares everything, but through entries and one list of messages."""

    name = "flat"
    summary = "for tests of what moving indexes share"

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options, min_stamps=16)
        self._lists = MessageLists()
        self._lists.reserve(1, 0)
        new_list(self._lists.arrays)

    @property
    def _own_nbytes(self) -> int:
        return self._lists.nbytes

    def _match_part(self, messages: MessageArrays, part: tuple[int, int], output: Output) -> int:
        record, pool = self.entries.arrays
        for message in range(*part):
            begin, end = messages.token_start[message : message + 2]
            tokens = {*messages.token[begin:end].tolist()}
            west, south, east, north = messages.box[message]
            found = [
                entry
                for entry in np.flatnonzero(record[:, PLACE] == 1).tolist()
                if record[entry, 0] <= east
                and record[entry, 1] <= north
                and record[entry, 2] >= west
                and record[entry, 3] >= south
                and tokens.issuperset(_tokens(pool, record[entry, FIRST]))
            ]
            count = output.start[message] + len(found)
            if count > len(output.clause):
                return message
            output.clause[output.start[message] : count] = found
            output.start[message + 1] = count
        return part[1]

    def _post(self, first: int, last: int) -> None:
        self._lists.reserve(0, last - first)
        record, _, alive = self.living.arrays
        for stamp in range(first, last):
            if not is_range(record, stamp):
                append(self._lists.arrays, alive, 0, record[stamp, X], record[stamp, Y], stamp, 0)

    def _shift(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> Shifted:
        lists, found = self._lists.arrays, []
        entries, living = self.entries.arrays, self.living.arrays
        entries.record[entry, :4] = after
        entries.record[entry, PLACE] = (after[:, 0] <= after[:, 2]).astype(np.int32)
        start, capacity = start_of(lists, 0), capacity_of(lists, 0)
        for i in range(len(entry)):
            for at in range(start, start + size_of(lists, 0)):
                x, y, stamp = lists.pool[at::capacity][:3]
                if not is_alive(living.alive, stamp):
                    continue
                sign = int(_inside(after[i], x, y)) - int(_inside(before[i], x, y))
                if sign and has_tokens(entries, entry[i], living, stamp):
                    found.append((i, stamp, sign))
        columns = np.array(found, np.int64).reshape(-1, 3)
        return Shifted(columns[:, 0], columns[:, 1].astype(np.int32), columns[:, 2].astype(np.int8))

    def _sweep(self, new_stamp: NDArray[np.int32]) -> None:
        self._lists.sweep(new_stamp)


def _tokens(pool: NDArray[np.int32], first: int) -> set[int]:
    return {*pool[first + 1 : first + 1 + pool[first]].tolist()}


def _inside(box: NDArray[np.int32], x: int, y: int) -> bool:
    return bool(box[0] <= x <= box[2] and box[1] <= y <= box[3])
