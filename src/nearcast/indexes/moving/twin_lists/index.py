"""`TwinLists`: the index as users see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import at_cache_line
from nearcast.indexes.moving.entries import FIRST
from nearcast.indexes.moving.listed import ListedIndex
from nearcast.indexes.moving.living import IS_RANGE, LENGTH, MIN_STAMPS, X, Y
from nearcast.indexes.moving.ranges import Shifted
from nearcast.indexes.moving.twin_lists.directory import (
    build_messages,
    drop_messages,
    words_to_build,
)
from nearcast.indexes.moving.twin_lists.frame import Frame, sample
from nearcast.indexes.moving.twin_lists.layout import (
    ARRIVED,
    CLAMPED,
    COPIES,
    EVERY,
    EVERY_POSTED,
    EVERY_TOKEN,
    EXAMINED,
    FREE_HEADER,
    FREE_TOKEN,
    FREE_WORDS,
    HEADER_WORDS,
    HEADERS,
    LIST,
    NOTHING,
    SIZE,
    TOKEN,
    TOKENS,
    TOP,
    TOTAL,
    VISITED,
    WANTED,
    TwinArrays,
    clear_header,
    fill_table,
    larger_pool,
    new_pool,
    new_table,
)
from nearcast.indexes.moving.twin_lists.match import match_messages
from nearcast.indexes.moving.twin_lists.move import Moved, shift_entries
from nearcast.indexes.moving.twin_lists.place import (
    count_all,
    place_entries,
    rekey_entries,
    remove_entries,
    rewrite_clauses,
)
from nearcast.indexes.moving.twin_lists.post import (
    CHUNK,
    LACKS_HEADERS,
    LACKS_WORDS,
    PostScratch,
    post_messages,
    rewrite_messages,
    words_to_rewrite,
)
from nearcast.indexes.options import check_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.columns import Clauses
    from nearcast.compiled.messages import MessageArrays, Output

_MIN_FREE_WORDS = 1 << 16
_CLAMPED_SHARE = 100
"""The frame is chosen again when one in so many places is beyond it."""

_MIN_ARRIVED = 4096


@dataclass(frozen=True)
class TwinListsOptions:
    """The thresholds of twin-lists; the defaults are the fastest that were measured.

    Parameters
    ----------
    leaf
        Clauses of a leaf: 4, 8, 16 or 32.
    flat
        A token with more messages than this has a directory.
    tile
        Messages of a tile when a directory is built.
    regret
        A list of clauses is sorted when so many leaves per clause were opened in vain.
    rekey_interval
        Every how many moves the key of a clause is looked at.
    min_stamps
        How many stamps there are at least; see `nearcast.indexes.moving.living`.
    """

    leaf: int = 32
    flat: int = 64
    tile: int = 24
    regret: int = 16
    rekey_interval: int = 64
    min_stamps: int = MIN_STAMPS

    def __post_init__(self) -> None:
        check_whole("leaf", self.leaf, 4, 32)
        if self.leaf.bit_count() != 1:
            check_whole("leaf", float(self.leaf), 4, 32)
        check_whole("flat", self.flat, 1, 1 << 20)
        check_whole("tile", self.tile, 1, 1 << 20)
        check_whole("regret", self.regret, 0, 1 << 20)
        check_whole("rekey_interval", self.rekey_interval, 1, 1 << 30)
        check_whole("min_stamps", self.min_stamps, 1, 1 << 30)


class TwinLists(ListedIndex):
    """The default moving index: clauses and messages stand under the same tokens.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = TwinLists.build(clauses, TwinListsOptions())
    >>> numbers, begun = index.publish(Messages.of([[1, 2]], [[7, 7]]))
    >>> sorted(begun.triples())
    [(0, 0, 1), (1, 0, 1)]
    >>> index.move([0], np.array([[8, 8, 9, 9]])).triples()
    {(0, 0, -1)}
    """

    name = "twin-lists"
    summary = "clauses and living messages under the same tokens; moves change no structure"
    Options = TwinListsOptions
    options: TwinListsOptions

    def __init__(self, options: TwinListsOptions) -> None:
        super().__init__(options, min_stamps=options.min_stamps)
        header = at_cache_line(64 * HEADER_WORDS, np.int32).reshape(-1, HEADER_WORDS)
        clear_header(header, EVERY)
        header[EVERY, TOKEN] = EVERY_TOKEN
        state = np.zeros(16, np.int64)
        state[HEADERS], state[FREE_HEADER] = 1, NOTHING
        Frame.world().write(state)
        leaf_bits = options.leaf.bit_length() - 1
        option = np.array([leaf_bits, options.flat, options.tile, options.regret], np.int64)
        self._arrays = TwinArrays(
            header,
            header.reshape(-1),
            new_table(1),
            new_pool(1024),
            new_pool(1024),
            state,
            option,
        )
        self._framed = 0
        self._moves = 0
        self._rekeyed_at = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Let arrays that are two views of the same words be that again."""
        self.__dict__.update(state)
        arrays = self._arrays
        header = at_cache_line(arrays.header.size, np.int32).reshape(-1, HEADER_WORDS)
        header[:] = arrays.header
        self._arrays = arrays._replace(
            header=header,
            header_word=header.reshape(-1),
            clauses=larger_pool(arrays.clauses, 0),
            messages=larger_pool(arrays.messages, 0),
        )

    @property
    def _own_nbytes(self) -> int:
        arrays = self._arrays
        pools = int(arrays.clauses.state[TOP] + arrays.messages.state[TOP])
        return 4 * pools + self.token_nbytes

    @property
    def token_nbytes(self) -> int:
        """The bytes that depend on the number of tokens only: a header each, and their table."""
        arrays = self._arrays
        return 4 * int(arrays.state[HEADERS]) * HEADER_WORDS + arrays.table.nbytes

    def _prepare(self, clauses: Clauses) -> None:
        box = clauses.box[sample(np.arange(len(clauses)))].astype(np.int64)
        if len(box):
            frame = Frame.around((box[:, 0] + box[:, 2]) // 2, (box[:, 1] + box[:, 3]) // 2)
            frame.write(self._arrays.state)
            self._framed = len(clauses)

    # --- messages --------------------------------------------------------------------------------

    def _match_part(self, messages: MessageArrays, part: tuple[int, int], output: Output) -> int:
        start = messages.token_start[part[0] : part[1] + 1]
        longest = int(np.diff(start).max(initial=0))
        done = match_messages(self._arrays, self.entries.arrays, messages, part, output, longest)
        self._take_counts()
        return int(done)

    def _post(self, first: int, last: int) -> None:
        self._check_frame()
        length = self.living.arrays.record[first:last, LENGTH] & (IS_RANGE - 1)
        begins = np.arange(0, last - first, CHUNK)
        longest = int(np.add.reduceat(length + 1, begins).max(initial=1)) if len(begins) else 1
        scratch = PostScratch(np.empty((longest, 4), np.int64), np.empty(longest, np.int64))
        done = 0
        while first < last:
            first, done, lacks = post_messages(
                self._arrays, self.living.arrays, scratch, (first, last), done
            )
            if lacks == LACKS_HEADERS:
                self._more_headers(longest)
            elif lacks == LACKS_WORDS:
                number = int(scratch.item[done, 0])
                words = words_to_build(int(self._arrays.header[number, TOTAL]), self.options.tile)
                self._more_messages(int(words))
        self._take_counts()
        if len(self.living) >= max(64, 4 * self._rekeyed_at, self.entries.count // 16):
            self._rekeyed_at = len(self.living)
            self._rekey(np.flatnonzero(self.entries.row >= 0).astype(np.int32))

    def _sweep(self, new_stamp: NDArray[np.int32]) -> None:
        arrays = self._arrays
        if arrays.state[EVERY_POSTED] and not arrays.header[EVERY, SIZE]:
            drop_messages(arrays, EVERY)
            arrays.state[EVERY_POSTED] = 0
        self._rewrite_messages(new_stamp, again=False)
        self._drop_headers()

    def _rewrite_messages(self, new_stamp: NDArray[np.int32], *, again: bool) -> None:
        arrays = self._arrays
        target = new_pool(int(words_to_rewrite(arrays)) + 1024)
        rewrite_messages(arrays, self.living.arrays, target, new_stamp, again)
        self._arrays = arrays._replace(messages=target)

    def _drop_headers(self) -> None:
        """Free the headers of tokens that nothing has, and make the table fit."""
        header, state = self._arrays.header, self._arrays.state
        used = header[: state[HEADERS]]
        gone = (used[:, [SIZE, WANTED, TOTAL]] == 0).all(axis=1) & (used[:, TOKEN] >= 0)
        for number in np.flatnonzero(gone).tolist():
            header[number, TOKEN] = FREE_TOKEN
            header[number, LIST] = state[FREE_HEADER]
            state[FREE_HEADER] = number
        state[TOKENS] -= np.count_nonzero(gone)
        table = new_table(int(state[TOKENS]) + 1)
        fill_table(header, state[HEADERS], table)
        self._arrays = self._arrays._replace(table=table)

    # --- subscriptions ---------------------------------------------------------------------------

    def _shift(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> Shifted:
        if not len(entry):
            return Shifted.none()
        # All of them come from nowhere, or go there, or none does.
        appears, vanishes = (bool(box[0, 0] > box[0, 2]) for box in (before, after))
        if appears:
            self._place(entry)
        moved = Moved(entry, before, after)
        count, changes = shift_entries(
            self._arrays,
            self.entries.arrays,
            self.living.arrays,
            moved,
            Shifted.with_capacity(1024 + 4 * len(entry)),
        )
        if vanishes:
            remove_entries(self._arrays, self.entries.arrays, entry)
            self._tidy_clauses()
        elif not appears:
            interval = self.options.rekey_interval
            self._rekey(entry[-self._moves % interval :: interval])
            self._moves += len(entry)
            self._check_frame()
        self._take_counts()
        return Shifted(*changes).first(int(count))

    def _place(self, entry: NDArray[np.int32]) -> None:
        """Put entries into the lists of their keys."""
        self._check_frame()
        entries = self.entries.arrays
        length = entries.pool[entries.record[entry, FIRST]]
        begin = 0
        while begin < len(entry):
            begin = count_all(self._arrays, entries, entry, begin)
            if begin < len(entry):
                self._more_headers(int(length[begin]))
        if not length.all() and not self._arrays.state[EVERY_POSTED]:
            self._post_under_every()
        self._in_steps(place_entries, entry)

    def _rekey(self, entry: NDArray[np.int32]) -> None:
        if len(entry):
            self._in_steps(rekey_entries, np.ascontiguousarray(entry))

    def _in_steps(self, run: Callable[..., int], entry: NDArray[np.int32]) -> None:
        """Run a kernel that stops where the pool of clauses has no room."""
        begin = 0
        while begin < len(entry):
            begin = run(self._arrays, self.entries.arrays, entry, begin)
            if begin < len(entry):
                pool = self._arrays.clauses
                longest = int(self._arrays.header[: self._arrays.state[HEADERS], SIZE].max())
                pool = larger_pool(pool, 8 * longest + 1024)
                self._arrays = self._arrays._replace(clauses=pool)

    def _tidy_clauses(self) -> None:
        state = self._arrays.clauses.state
        if state[FREE_WORDS] > _MIN_FREE_WORDS and 2 * state[FREE_WORDS] > state[TOP]:
            self._rewrite_clauses()

    def _rewrite_clauses(self) -> None:
        arrays = self._arrays
        target = new_pool(2 * int(arrays.clauses.state[TOP]) + 1024)
        rewrite_clauses(arrays, self.entries.arrays, target)
        self._arrays = arrays._replace(clauses=target)

    def _post_under_every(self) -> None:
        """Post all living messages that are points under `EVERY`."""
        living = self.living.arrays
        self._more_messages(int(words_to_build(len(self.living), self.options.tile)))
        stamps = self._living_points()
        build_messages(self._arrays, EVERY, living, stamps)
        self._arrays.state[EVERY_POSTED] = 1

    def _living_points(self) -> NDArray[np.int32]:
        record, _, alive = self.living.arrays
        bits = np.unpackbits(alive.view(np.uint8), bitorder="little")[: self.living.used]
        is_point = record[: self.living.used, LENGTH] & IS_RANGE == 0
        return np.flatnonzero(bits.astype(np.bool_) & is_point).astype(np.int32)

    # --- the frame -------------------------------------------------------------------------------

    def _check_frame(self) -> None:
        """Choose the frame again if much has come since, or many places are beyond it."""
        state = self._arrays.state
        count = self.entries.count + len(self.living)
        beyond = int(state[CLAMPED]) * _CLAMPED_SHARE > max(int(state[ARRIVED]), _MIN_ARRIVED)
        if count > 2 * self._framed or beyond:
            self._framed = count
            state[ARRIVED] = state[CLAMPED] = 0
            old, new = Frame.of(state), self._best_frame()
            if (beyond and new != old) or new[2:] != old[2:]:
                new.write(state)
                self._rewrite_clauses()
                self._rewrite_messages(np.arange(self.living.used, dtype=np.int32), again=True)

    def _best_frame(self) -> Frame:
        box = self.entries.arrays.record[sample(np.flatnonzero(self.entries.row >= 0)), :4]
        box = box[box[:, 0] <= box[:, 2]].astype(np.int64)
        place = self.living.arrays.record[sample(self._living_points())]
        x = np.concatenate([(box[:, 0] + box[:, 2]) // 2, place[:, X]])
        y = np.concatenate([(box[:, 1] + box[:, 3]) // 2, place[:, Y]])
        return Frame.around(x, y)

    # --- room ------------------------------------------------------------------------------------

    def _more_headers(self, count: int) -> None:
        arrays, state = self._arrays, self._arrays.state
        used = int(state[HEADERS])
        if used + count > len(arrays.header):
            size = (2 * used + count) * HEADER_WORDS
            header = at_cache_line(size, np.int32).reshape(-1, HEADER_WORDS)
            header[:used] = arrays.header[:used]
            arrays = arrays._replace(header=header, header_word=header.reshape(-1))
        if 2 * (state[TOKENS] + count) > len(arrays.table):
            table = new_table(int(state[TOKENS]) + count)
            fill_table(arrays.header, used, table)
            arrays = arrays._replace(table=table)
        self._arrays = arrays

    def _more_messages(self, words: int) -> None:
        pool = larger_pool(self._arrays.messages, words)
        self._arrays = self._arrays._replace(messages=pool)

    def _take_counts(self) -> None:
        state = self._arrays.state
        self.examined, self.visited = int(state[EXAMINED]), int(state[VISITED])
        self.copies = int(state[COPIES])
