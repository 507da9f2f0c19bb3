"""``mbr-trie``: a trie of token sets whose nodes know the box of what is below them.

The MBRTrie of Yu et al., "A cost-based method for location-aware publish/subscribe services"
(CIKM 2015), section 3. Tokens have one global order; the clauses of a token set stand in a list at
the end of its path, so that a message which comes there has all their tokens, and only their boxes
are left to be checked. A node is opened when its token occurs and its box meets the message.

`nearcast.indexes.mbr_trie.trie` describes the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, at_cache_line, gather, read_only, starts
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.errors import UnknownName
from nearcast.indexes.in_place import InPlaceIndex, check_tokens
from nearcast.indexes.mbr_trie import change as changes
from nearcast.indexes.mbr_trie import load as loads
from nearcast.indexes.mbr_trie import match as matches
from nearcast.indexes.mbr_trie.labels import give_all_labels
from nearcast.indexes.mbr_trie.trie import (
    ADDED,
    BUILT,
    DEPTH,
    DROPPED,
    ENTRIES,
    FIRST_RANK,
    NEXT_RANK,
    NODE_WIDTH,
    NODES,
    PADDING,
    RANK,
    STATES,
    TIMES,
    TOKEN,
    TOKENS,
    Columns,
    Trie,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays
    from nearcast.indexes.boolean import Progress


__all__ = ["MbrTrie", "MbrTrieOptions"]

PROBES = {"cost": matches.COST, "tokens": matches.TOKEN_SET, "trie": matches.TRIE}
ORDERS = ("frequency", "alphabet")

_MIN_SLOTS = 64
_FEW = 32
"""So many clauses may be dead, or new, whatever their share."""


@dataclass(frozen=True)
class MbrTrieOptions:
    """Options of ``mbr-trie``.

    Parameters
    ----------
    probe
        How the children of a node are found (section 3.3): each child is looked for in the message
        (``tokens``, the paper's ProbeTokenSet), each token of the message among the children
        (``trie``, its ProbeTrie), or whichever ``cost`` less at that node.
    order
        The global order of tokens: the rarest first (``frequency``), or by their numbers, which
        stand for the ``alphabet``.
    """

    probe: str = "cost"
    order: str = "frequency"

    def __post_init__(self) -> None:
        if self.probe not in PROBES:
            raise UnknownName("probe", self.probe, PROBES)
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)


class MbrTrie(InPlaceIndex):
    """A trie of token sets with boxes.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = MbrTrie.build(clauses, MbrTrieOptions())
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "mbr-trie"
    summary = "a trie of token sets with a box in every node; changes in place"
    Options = MbrTrieOptions

    def __init__(
        self,
        clauses: Clauses,
        options: MbrTrieOptions,
        trie: Trie,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._trie = trie
        self.labelled = False
        """Whether every clause that comes is to know its label."""
        self.builds = 1
        """How often ranks were given to tokens: labels have another order afterwards."""

    @classmethod
    def build(cls, clauses: Clauses, options: MbrTrieOptions, *, labels: bool = False) -> Self:
        """Rank the tokens of all clauses, and lay the trie out level by level.

        With ``labels``, every clause knows its own.
        """
        check_tokens(clauses)
        numbers = np.arange(len(clauses), dtype=np.int32)
        known = np.empty(len(clauses) if labels else 0, np.int64)
        index = cls(clauses, options, _built(clauses, numbers, options.order, known))
        index.labelled = labels
        return index

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the trie, and which subscriptions are alive."""
        return {**self._used()._asdict(), "alive": self.alive}

    def _used(self) -> Trie:
        """Return the trie without the room that it has to spare."""
        trie = self._trie
        nodes, entries = int(trie.state[NODES]), int(trie.state[ENTRIES])
        return trie._replace(
            rank=trie.rank[:nodes],
            outline=trie.outline[:nodes],
            node=trie.node[:nodes],
            label=trie.label[:nodes],
            entry=trie.entry[: entries + PADDING],
            clause_label=trie.clause_label[: len(self.clauses)],
        )

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: MbrTrieOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        trie = _read_only(Trie(*(arrays[name] for name in Trie._fields)))
        return cls(clauses, options, trie, arrays["alive"])

    def find_part(
        self,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: matches.Scratch,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Take every message through the trie."""
        reached, examined, visited = matches.match_messages(
            self.seen(),
            self.clauses.box,
            messages,
            PROBES[self.options.probe],
            part,
            scratch,
            start,
            clause,
        )
        return int(reached), int(examined), int(visited)

    def make_scratch(self, tokens: int) -> matches.Scratch:
        """Return room for messages of so many tokens at most."""
        return matches.Scratch(
            np.zeros(FILTER_WORDS, np.uint64),
            np.empty(tokens + 1, np.int64),
            np.empty(tokens + 1, np.int32),
            np.empty(int(self._trie.state[NODES]) + 1, np.int64),
        )

    def seen(self) -> Trie:
        """Return what matching sees: read-only views of the arrays."""
        return _read_only(self._trie)

    @property
    def clause_label(self) -> NDArray[np.int64]:
        """The labels of all clauses, if they were asked for; they change with the trie."""
        return self._trie.clause_label

    def _begin_changing(self) -> None:
        if self._trie.state.flags.writeable:  # built here, and nobody else's
            return
        slot, rank, outline, node, label, entry, clause_label, state = self._used()
        self._trie = Trie(
            slot.copy(),
            _larger(rank, 16),
            _larger(outline, 16),
            _larger(node, 16),
            _larger(label, 16),
            _larger(entry, 16),
            clause_label.copy(),
            state.copy(),
        )

    def _add(self, first: int, last: int) -> None:
        columns = _columns(self.clauses)
        if self.labelled and last > len(self._trie.clause_label):
            label = _larger(self._trie.clause_label, last - first)
            self._trie = self._trie._replace(clause_label=label)
        path = self._path(np.diff(columns.token_start[first : last + 1]))
        while first < last:
            missing = changes.insert_clauses(self._trie, columns, first, last, path)
            first = int(missing.reached)
            if first < last:
                self._make_room(missing)
        if self._worn_out():
            self._renew(self.alive[self.clauses.row])

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        columns, gone = _columns(self.clauses), read_only(clauses, np.int64)
        lengths = columns.token_start[gone + 1] - columns.token_start[gone]
        changes.remove_clauses(self._trie, columns, gone, self._path(lengths))
        if self._worn_out():
            alive = self.alive[self.clauses.row]
            alive[clauses] = False
            self._renew(alive)

    def _path(self, lengths: NDArray[np.int64]) -> changes.Path:
        """Make room for the ways of clauses with so many tokens."""
        most = int(lengths.max(initial=0))
        depth = max(most, int(self._trie.state[DEPTH]))
        return changes.Path(
            np.zeros(most + 1, np.int64),
            np.zeros(most + 1, np.int64),
            np.zeros((depth + 2, 2), np.int64),
        )

    def _make_room(self, missing: changes.Missing) -> None:
        """Let grow what had no room."""
        trie = self._trie
        if missing.slots:
            trie = _with_slots(trie, 2 * len(trie.slot))
        if missing.nodes:
            more = int(missing.nodes)
            trie = trie._replace(
                rank=_larger(trie.rank, more),
                outline=_larger(trie.outline, more),
                node=_larger(trie.node, more),
                label=_larger(trie.label, more),
            )
        if missing.entries:
            pool = at_cache_line(2 * len(trie.entry) + int(missing.entries), np.int32)
            pool[: len(trie.entry)] = trie.entry
            trie = trie._replace(entry=pool)
        self._trie = trie

    def _worn_out(self) -> bool:
        """Tell whether a third of the clauses are dead, or most came after ranks were given."""
        built, added, dropped = self._trie.state[[BUILT, ADDED, DROPPED]].tolist()
        return bool(3 * dropped > built + added + _FEW or added > built + _FEW)

    def _renew(self, alive: NDArray[np.bool_]) -> None:
        """Build the trie again, in the order of today's frequencies, of the clauses alive."""
        numbers = np.flatnonzero(alive).astype(np.int32)
        labels = self._trie.clause_label
        self._trie = _built(self.clauses, numbers, self.options.order, labels)
        self.builds += 1


def _built(
    clauses: Clauses, numbers: NDArray[np.int32], order: str, clause_label: NDArray[np.int64]
) -> Trie:
    """Build the trie of the clauses with these numbers."""
    columns = _columns(clauses)
    length = np.diff(columns.token_start)[numbers]
    ranked = loads.Ranked(
        numbers,
        starts(length),
        np.empty(int(length.sum()), np.int32),
        np.zeros(len(numbers), np.int32),
    )
    # Room is reserved amply: untouched, it costs nothing.
    nodes = len(ranked.rank) + 1
    trie = Trie(
        np.zeros((_MIN_SLOTS, 4), np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.uint64),
        np.zeros((nodes, NODE_WIDTH), np.int32),
        np.zeros((nodes, 2), np.int64),
        at_cache_line(11 * len(numbers) + 2 * PADDING, np.int32),
        clause_label,
        np.zeros(STATES, np.int64),
    )
    trie.state[BUILT] = len(numbers)
    trie = _count_tokens(trie, _tokens_of(clauses, numbers))
    _give_ranks(trie, order)
    loads.rank_clauses(trie, columns, ranked, np.empty(int(length.max(initial=0)) + 1, np.int64))
    _lay_out(trie, columns, ranked)
    give_all_labels(trie, np.zeros((int(trie.state[DEPTH]) + 2, 2), np.int64))
    return trie


def _tokens_of(clauses: Clauses, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the tokens of the clauses with these numbers."""
    if len(numbers) == len(clauses):
        return clauses.token
    _, position = gather(clauses.token_start, numbers)
    return read_only(clauses.token[position], np.int32)


def _count_tokens(trie: Trie, tokens: NDArray[np.int32]) -> Trie:
    """Count tokens in a table that grows, and that is just large enough at the end."""
    done = 0
    while True:
        done = int(loads.count_tokens(trie.slot, tokens, done, trie.state))
        if done == len(tokens):
            return _with_slots(trie, _MIN_SLOTS + 2 * int(trie.state[TOKENS]))
        trie = _with_slots(trie, 4 * len(trie.slot))


def _with_slots(trie: Trie, slots: int) -> Trie:
    """Return the trie with a table of so many slots."""
    slot = np.zeros((slots, 4), np.int32)
    loads.move_slots(trie.slot, slot)
    return trie._replace(slot=slot)


def _give_ranks(trie: Trie, order: str) -> None:
    """Give every token that was counted its rank."""
    used = np.flatnonzero(trie.slot[:, TOKEN])
    token = trie.slot[used, TOKEN] - 1
    if order == "alphabet":
        trie.slot[used, RANK] = token
        trie.state[NEXT_RANK] = -1
        return
    rising = used[np.lexsort((token, trie.slot[used, TIMES]))]
    trie.slot[rising, RANK] = FIRST_RANK + np.arange(len(rising))
    trie.state[NEXT_RANK] = FIRST_RANK - 1


def _lay_out(trie: Trie, columns: Columns, ranked: loads.Ranked) -> None:
    """Make all nodes, level by level."""
    count = len(ranked.clause)
    level = loads.Level(np.empty(count, np.int32), np.empty(count, np.int32))
    count, depth = int(loads.lay_root(trie, columns, ranked, level)), 0
    while count:
        level = loads.Level(level.number[:count], level.parent[:count])
        key = np.empty(count, np.int64)
        loads.level_keys(ranked, level, depth, key)
        order = np.argsort(key, kind="stable")
        ordered = level.number[order].astype(np.int64), key[order]
        depth += 1
        count = int(loads.lay_level(trie, columns, ranked, ordered, level, depth))


def _columns(clauses: Clauses) -> Columns:
    return Columns(clauses.token_start, clauses.token, clauses.box)


def _read_only(trie: Trie) -> Trie:
    """Return read-only views: one type, whether the arrays were just made or memory-mapped."""
    slot, rank, outline, node, label, entry, clause_label, state = trie
    return Trie(
        read_only(slot, np.int32),
        read_only(rank, np.int32),
        read_only(outline, np.uint64),
        read_only(node, np.int32),
        read_only(label, np.int64),
        read_only(entry, np.int32),
        read_only(clause_label, np.int64),
        read_only(state, np.int64),
    )


def _larger(array: NDArray[Any], more: int) -> NDArray[Any]:
    """Return a copy with room for at least so many more rows."""
    larger = np.zeros((2 * len(array) + more, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
