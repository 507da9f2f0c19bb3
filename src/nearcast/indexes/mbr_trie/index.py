"""The class of the ``mbr-trie`` index and its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, at_cache_line, read_only
from nearcast.compiled.clauses import clause_columns
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.errors import UnknownName
from nearcast.indexes.in_place import InPlaceIndex, check_tokens
from nearcast.indexes.mbr_trie.build import build_trie, resize_slots
from nearcast.indexes.mbr_trie.check import check_trie
from nearcast.indexes.mbr_trie.layout import (
    ADDED,
    BUILT,
    DEPTH,
    DROPPED,
    ENTRIES,
    NODES,
    PADDING,
    Trie,
)
from nearcast.indexes.mbr_trie.match import (
    PROBE_CHEAPER,
    PROBE_TOKEN_SET,
    PROBE_TRIE,
    MatchScratch,
    match_messages,
)
from nearcast.indexes.mbr_trie.update import (
    PathScratch,
    Shortage,
    insert_clauses,
    remove_clauses,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.boolean import Progress

__all__ = ["ORDERS", "PROBES", "MbrTrie", "MbrTrieOptions"]

PROBES = {"cost": PROBE_CHEAPER, "tokens": PROBE_TOKEN_SET, "trie": PROBE_TRIE}
ORDERS = ("frequency", "alphabet")

_TOLERATED = 32
"""How many clauses may be dead or new, whatever their share, before the trie is built again."""


@dataclass(frozen=True)
class MbrTrieOptions:
    """Options of ``mbr-trie``.

    Parameters
    ----------
    probe
        How the children of a node are found (section 3.3 of the paper): look up each child in the
        message (``tokens``, ProbeTokenSet), look up each token of the message among the children
        (``trie``, ProbeTrie), or take whichever has the lower ``cost`` at that node.
    order
        The global order of tokens: the rarest first (``frequency``), or by token id
        (``alphabet``).
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
        self.labeled = False
        """Whether the label of every clause is kept."""
        self.builds = 1
        """How often tokens were ranked; the order of labels changes each time."""

    @classmethod
    def build(cls, clauses: Clauses, options: MbrTrieOptions, *, labels: bool = False) -> Self:
        """Rank the tokens of all clauses and build the trie; ``labels`` keeps those of clauses."""
        check_tokens(clauses)
        numbers = np.arange(len(clauses), dtype=np.int32)
        clause_label = np.empty(len(clauses) if labels else 0, np.int64)
        index = cls(clauses, options, build_trie(clauses, numbers, options.order, clause_label))
        index.labeled = labels
        return index

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the trie, and which subscriptions are alive."""
        return {**self._trimmed()._asdict(), "alive": self.alive}

    def _trimmed(self) -> Trie:
        """Return the trie without unused capacity."""
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

    def check_structure(self) -> None:
        """Raise `StorageError` unless kernels can follow the arrays safely."""
        ranks_are_tokens = self.options.order == "alphabet"
        check_trie(self._trie, self.clauses, self.alive, ranks_are_tokens, self.labeled)

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: MatchScratch, output: Output
    ) -> Progress:
        """Take every message down the trie."""
        box, probe = self.clauses.box, PROBES[self.options.probe]
        done, examined, visited = match_messages(
            self.view(), box, messages, probe, part, scratch, output
        )
        return int(done), int(examined), int(visited)

    def make_scratch(self, tokens: int) -> MatchScratch:
        """Return scratch for messages of at most ``tokens`` tokens."""
        return MatchScratch(
            np.zeros(FILTER_WORDS, np.uint64),
            np.empty(tokens + 1, np.int64),
            np.empty(tokens + 1, np.int32),
            np.empty(int(self._trie.state[NODES]) + 1, np.int64),
        )

    def view(self) -> Trie:
        """Return read-only views of the arrays, for matching."""
        return _read_only(self._trie)

    @property
    def clause_label(self) -> NDArray[np.int64]:
        """The labels of all clauses, empty unless they are kept; updates change them in place."""
        return self._trie.clause_label

    def _begin_changing(self) -> None:
        if self._trie.state.flags.writeable:  # built here, and not shared
            return
        slot, rank, outline, node, label, entry, clause_label, state = self._trimmed()
        self._trie = Trie(
            slot.copy(),
            _enlarged(rank, 16),
            _enlarged(outline, 16),
            _enlarged(node, 16),
            _enlarged(label, 16),
            _enlarged(entry, 16),
            clause_label.copy(),
            state.copy(),
        )

    def _add(self, first: int, last: int) -> None:
        columns = clause_columns(self.clauses)
        if self.labeled and last > len(self._trie.clause_label):
            label = _enlarged(self._trie.clause_label, last - first)
            self._trie = self._trie._replace(clause_label=label)
        path = self._path_scratch(np.diff(columns.token_start[first : last + 1]))
        while first < last:
            shortage = insert_clauses(self._trie, columns, first, last, path)
            first = int(shortage.reached)
            if first < last:
                self._enlarge(shortage)
        if self._worth_rebuilding():
            self._rebuild(self.alive[self.clauses.row])

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        columns, removed = clause_columns(self.clauses), read_only(clauses, np.int64)
        lengths = columns.token_start[removed + 1] - columns.token_start[removed]
        remove_clauses(self._trie, columns, removed, self._path_scratch(lengths))
        if self._worth_rebuilding():
            alive = self.alive[self.clauses.row]
            alive[clauses] = False
            self._rebuild(alive)

    def _path_scratch(self, lengths: NDArray[np.int64]) -> PathScratch:
        """Return scratch for the paths of clauses with these numbers of tokens."""
        longest = int(lengths.max(initial=0))
        depth = max(longest, int(self._trie.state[DEPTH]))
        return PathScratch(
            np.zeros(longest + 1, np.int64),
            np.zeros(longest + 1, np.int64),
            np.zeros((depth + 2, 2), np.int64),
        )

    def _enlarge(self, shortage: Shortage) -> None:
        """Enlarge the arrays that are short."""
        trie = self._trie
        if shortage.slots:
            trie = resize_slots(trie, 2 * len(trie.slot))
        if shortage.nodes:
            more = int(shortage.nodes)
            trie = trie._replace(
                rank=_enlarged(trie.rank, more),
                outline=_enlarged(trie.outline, more),
                node=_enlarged(trie.node, more),
                label=_enlarged(trie.label, more),
            )
        if shortage.entries:
            pool = at_cache_line(2 * len(trie.entry) + int(shortage.entries), np.int32)
            pool[: len(trie.entry)] = trie.entry
            trie = trie._replace(entry=pool)
        self._trie = trie

    def _worth_rebuilding(self) -> bool:
        """Tell whether a third of the clauses are dead, or most came after tokens were ranked."""
        built, added, dropped = self._trie.state[[BUILT, ADDED, DROPPED]].tolist()
        return bool(3 * dropped > built + added + _TOLERATED or added > built + _TOLERATED)

    def _rebuild(self, alive: NDArray[np.bool_]) -> None:
        """Build the trie again from the live clauses, in the order of current frequencies."""
        numbers = np.flatnonzero(alive).astype(np.int32)
        labels = self._trie.clause_label
        self._trie = build_trie(self.clauses, numbers, self.options.order, labels)
        self.builds += 1


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


def _enlarged(array: NDArray[Any], more: int) -> NDArray[Any]:
    """Return a copy of at least twice the rows and ``more``."""
    larger = np.zeros((2 * len(array) + more, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
