"""``lfilter``: a trie of token sets and a quadtree of pivotal tokens, chosen by cost.

LFilter of Yu, Li and Feng, "A cost-based method for location-aware publish/subscribe services"
(CIKM 2015), section 5. Each message is filtered by the index that costs it less; of lists that the
quadtree leaves, the trie prunes what cannot match (`nearcast.indexes.lfilter.prune`), where that
pays. `Lfilter.explain` tells what was chosen, and at which cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import WORLD, Clauses, Messages, read_only
from nearcast.errors import UnknownName
from nearcast.indexes.in_place import InPlaceIndex
from nearcast.indexes.lfilter import match as matches
from nearcast.indexes.lfilter import prune as pruning
from nearcast.indexes.lfilter.cost import ALL_LONG, SHORT, Model, trie_cost, weigh
from nearcast.indexes.mbr_trie.index import PROBES, MbrTrie, MbrTrieOptions
from nearcast.indexes.mbr_trie.trie import DEPTH
from nearcast.indexes.pt_quadtree.index import PtQuadtree, PtQuadtreeOptions
from nearcast.indexes.pt_quadtree.tree import NODES
from nearcast.storage import nested, prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays
    from nearcast.indexes.boolean import Progress


__all__ = ["FILTERS", "VERIFIES", "Explanation", "Lfilter", "LfilterOptions"]

FILTERS = {
    "cost": matches.BY_COST,
    "trie": matches.BY_TRIE,
    "quadtree": matches.BY_QUADTREE,
}
VERIFIES = {"cost": pruning.COST, "direct": pruning.DIRECT, "prune": pruning.PRUNE}

_SHARED = {"alive"}
"""Arrays that both parts have, and the whole."""

_TALLY = pruning.PRUNED + 1
_RUNS, _PARTS = 4096, 1024

_SAMPLE = 768
"""So many tokens messages of the sample have together."""

_CHANGES = 8
"""The costs are reckoned anew when one in so many clauses has changed."""


@dataclass(frozen=True)
class LfilterOptions:
    """Options of ``lfilter``: those of its parts, and what is left to the cost model.

    Parameters
    ----------
    probe, order
        As of ``mbr-trie``.
    list_size, area_share, place, push
        As of ``pt-quadtree``.
    filter
        Which part filters messages: ``trie``, ``quadtree``, or for each the one that ``cost`` less.
    verify
        How lists of the quadtree are verified: one entry after the other (``direct``), pruned by
        the trie to its end (``prune``), or by what ``cost`` less at each node of the trie.
    """

    probe: str = MbrTrieOptions.probe
    order: str = MbrTrieOptions.order
    list_size: int = PtQuadtreeOptions.list_size
    area_share: float = PtQuadtreeOptions.area_share
    place: str = PtQuadtreeOptions.place
    push: float = PtQuadtreeOptions.push
    filter: str = "cost"
    verify: str = "cost"

    def __post_init__(self) -> None:
        _ = self.trie, self.quadtree  # they check what is theirs
        if self.filter not in FILTERS:
            raise UnknownName("filter", self.filter, FILTERS)
        if self.verify not in VERIFIES:
            raise UnknownName("verify", self.verify, VERIFIES)

    @property
    def trie(self) -> MbrTrieOptions:
        """The options of the trie."""
        return MbrTrieOptions(self.probe, self.order)

    @property
    def quadtree(self) -> PtQuadtreeOptions:
        """The options of the quadtree."""
        return PtQuadtreeOptions(self.list_size, self.area_share, self.place, self.push)


@dataclass(frozen=True)
class Explanation:
    """What was chosen for messages; all arrays have one number a message.

    A message across the antimeridian is two here, one on either side.

    Parameters
    ----------
    by_trie
        Whether the trie filtered, and not the quadtree.
    trie_ns, quadtree_ns
        What either was expected to cost, in nanoseconds of the machine that the model was made on.
    lists, pruned
        The lists that the quadtree left, and how many of them were pruned by the trie.
    examined, visited
        The candidates verified, and the nodes opened.
    """

    by_trie: NDArray[np.bool_]
    trie_ns: NDArray[np.float64]
    quadtree_ns: NDArray[np.float64]
    lists: NDArray[np.int64]
    pruned: NDArray[np.int64]
    examined: NDArray[np.int64]
    visited: NDArray[np.int64]

    def __str__(self) -> str:
        count, by_trie = len(self.by_trie), int(self.by_trie.sum())
        if not count:
            return "no messages"
        return (
            f"{count:,} messages: {by_trie:,} by the trie, {count - by_trie:,} by the quadtree "
            f"(expected {self.trie_ns.mean() / 1e3:,.1f} and {self.quadtree_ns.mean() / 1e3:,.1f} "
            f"µs); {self.lists.sum():,} lists, {self.pruned.sum():,} of them pruned; "
            f"{self.examined.sum():,} examined, {self.visited.sum():,} visited"
        )


class Lfilter(InPlaceIndex):
    """A trie and a quadtree over the same clauses.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = Lfilter.build(clauses, LfilterOptions())
    >>> messages = Messages.of([[1, 2]], [[7, 7]])
    >>> sorted(index.match(messages).pairs())
    [(0, 0), (0, 1)]
    >>> index.explain(messages).examined.tolist()
    [2]
    """

    name = "lfilter"
    summary = "mbr-trie and pt-quadtree, chosen per message by cost; changes in place"
    Options = LfilterOptions

    def __init__(
        self,
        clauses: Clauses,
        options: LfilterOptions,
        parts: tuple[MbrTrie, PtQuadtree],
        model: Model | None = None,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._trie, self._quadtree = parts
        self._model = model if model is not None else self._weighed()
        self._changes = 0
        self._seen: pruning.Both | None = None

    @classmethod
    def build(cls, clauses: Clauses, options: LfilterOptions) -> Self:
        """Build the trie, and the quadtree with its lists in the order of the trie's labels."""
        trie = MbrTrie.build(clauses, options.trie, labels=True)
        quadtree = PtQuadtree.build(clauses, options.quadtree, trie.clause_label)
        return cls(clauses, options, (trie, quadtree))

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of both parts, of the cost model, and which rows are alive."""
        parts = {"trie": self._trie.arrays(), "quadtree": self._quadtree.arrays()}
        own = {
            f"{part}.{name}": array
            for part, arrays in parts.items()
            for name, array in arrays.items()
            if name not in _SHARED
        }
        return {**own, **prefixed("model", self._model._asdict()), "alive": self.alive}

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: LfilterOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        shared = {name: arrays[name] for name in _SHARED}
        trie = MbrTrie.from_arrays(clauses, options.trie, nested("trie", arrays) | shared)
        quadtree = PtQuadtree.from_arrays(
            clauses, options.quadtree, nested("quadtree", arrays) | shared
        )
        trie.labelled = True
        quadtree.label(trie.clause_label)
        stored = nested("model", arrays)
        model = Model(*(read_only(stored[name], np.float64) for name in Model._fields))
        return cls(clauses, options, (trie, quadtree), model, arrays["alive"])

    def find_part(
        self,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: matches.Rooms,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Filter every message by the part that costs less."""
        notes = matches.Notes(np.empty((0, 2)), np.empty((0, _TALLY), np.int64))
        return self._find_noting(notes, messages, part, scratch, start, clause)

    def make_scratch(self, tokens: int) -> matches.Rooms:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        pool = pruning.Pool(
            np.empty((_RUNS, 3), np.int64),
            np.empty((8 * _PARTS, 3), np.int64),
            np.empty(_PARTS, np.int64),
            np.empty((int(self._both().trie.state[DEPTH]) + 2, 5), np.int64),
            np.zeros(_TALLY, np.int64),
        )
        return matches.Rooms(
            self._quadtree.make_scratch(tokens), self._trie.make_scratch(tokens), pool
        )

    def explain(self, messages: Messages) -> Explanation:
        """Match messages, and tell what was chosen for each."""
        if messages.wraps.any():
            messages, _ = messages.cut()
        count = np.zeros((len(messages), _TALLY), np.int64)
        notes = matches.Notes(np.zeros((len(messages), 2)), count)
        if len(messages):
            self._find(messages, 1, partial(self._find_noting, notes))
        return Explanation(
            count[:, matches.CHOSEN] == matches.BY_TRIE,
            notes.cost[:, 0],
            notes.cost[:, 1],
            count[:, pruning.LISTS],
            count[:, pruning.PRUNED],
            count[:, pruning.EXAMINED],
            count[:, pruning.VISITED],
        )

    def _find_noting(
        self,
        notes: matches.Notes,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: matches.Rooms,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Find clauses, and note what was chosen for each message if there is room for notes."""
        options = self.options
        ways = matches.Ways(
            FILTERS[options.filter], VERIFIES[options.verify], PROBES[options.probe]
        )
        reached, examined, visited = matches.match_messages(
            self._both(), self._model, messages, ways, part, scratch, notes, start, clause
        )
        return int(reached), int(examined), int(visited)

    def _both(self) -> pruning.Both:
        if self._seen is None:
            self._seen = pruning.Both(*self._quadtree.seen(), self._trie.seen())
        return self._seen

    def _weighed(self) -> Model:
        """Return what messages are expected to meet in both parts as they are now."""
        tree, _ = self._quadtree.seen()
        weight = np.empty((int(tree.state[NODES]), ALL_LONG + 1))
        weigh(tree, self._trie.seen(), weight)
        return Model(read_only(weight, np.float64), read_only([self._token_cost()], np.float64))

    def _token_cost(self) -> float:
        """Return what a token of a message costs with the trie.

        That of a sample: short messages, anywhere, of the tokens of clauses, at even distances.
        """
        token, count = self.clauses.token, _SAMPLE // SHORT
        if not len(token):
            return 0.0
        drawn = token[np.arange(count * SHORT) * len(token) // (count * SHORT)]
        rows = drawn.reshape(SHORT, count).T
        sample = Messages.of([np.unique(row).tolist() for row in rows], [WORLD] * count)
        opened = self._trie.find(sample, 1).visited - count
        cost = trie_cost(self._trie.seen(), sample.token, SHORT, opened)
        return float(cost) / len(sample.token)

    def _add(self, first: int, last: int) -> None:
        builds = self._trie.builds
        self._trie.follow_insert(self, first, last)
        self._quadtree.label(self._trie.clause_label)
        self._quadtree.follow_insert(self, first, last)
        if self._trie.builds > builds:
            self._quadtree.relabel(self._trie.clause_label)
        self._changed(last - first)

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        builds = self._trie.builds
        self._trie.follow_delete(self, clauses)
        self._quadtree.label(self._trie.clause_label)
        self._quadtree.follow_delete(self, clauses)
        if self._trie.builds > builds:
            self._quadtree.relabel(self._trie.clause_label, clauses)
        self._changed(len(clauses))

    def _changed(self, clauses: int) -> None:
        """Look at the parts anew, and reckon the costs anew from time to time."""
        self._seen = None
        self._changes += clauses
        nodes = int(self._quadtree.seen()[0].state[NODES])
        if nodes != len(self._model.weight) or _CHANGES * self._changes > len(self.clauses):
            self._model, self._changes = self._weighed(), 0
