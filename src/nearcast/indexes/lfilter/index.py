"""The class of the ``lfilter`` index, its options, and the explanation of its choices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import WORLD, Clauses, Messages, read_only
from nearcast.errors import UnknownName
from nearcast.indexes.damage import require
from nearcast.indexes.in_place import InPlaceIndex
from nearcast.indexes.lfilter import prune
from nearcast.indexes.lfilter.cost import SHORT, WEIGHTS, Model, trie_cost, weigh_nodes
from nearcast.indexes.lfilter.match import (
    CHOSEN,
    FILTER_BY_QUADTREE,
    FILTER_BY_TRIE,
    FILTER_CHEAPER,
    MatchScratch,
    Strategy,
    Trace,
    match_messages,
)
from nearcast.indexes.lfilter.prune import (
    TALLY_WIDTH,
    VERIFY_BY_PRUNING,
    VERIFY_CHEAPER,
    VERIFY_DIRECTLY,
    BothIndexes,
    PruneScratch,
)
from nearcast.indexes.mbr_trie.index import PROBES, MbrTrie, MbrTrieOptions
from nearcast.indexes.mbr_trie.layout import DEPTH
from nearcast.indexes.pt_quadtree.index import PtQuadtree, PtQuadtreeOptions
from nearcast.indexes.pt_quadtree.layout import NODES
from nearcast.storage import nested, prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.boolean import Progress

__all__ = ["FILTERS", "VERIFIES", "Explanation", "Lfilter", "LfilterOptions"]

FILTERS = {
    "cost": FILTER_CHEAPER,
    "trie": FILTER_BY_TRIE,
    "quadtree": FILTER_BY_QUADTREE,
}
VERIFIES = {
    "cost": VERIFY_CHEAPER,
    "direct": VERIFY_DIRECTLY,
    "prune": VERIFY_BY_PRUNING,
}

_SHARED = {"alive"}
"""Arrays that the trie, the quadtree and this index have in common."""

_RUNS, _SPANS = 4096, 1024

_SAMPLE = 768
"""How many tokens the messages of the sample have in total."""

_CHANGES = 8
"""The cost model is computed again when one in this many clauses has changed."""


@dataclass(frozen=True)
class LfilterOptions:
    """Options of ``lfilter``: those of the trie and the quadtree, and how to choose.

    Parameters
    ----------
    probe, order
        As for ``mbr-trie``.
    list_size, area_share, place, push
        As for ``pt-quadtree``.
    filter
        What filters messages: the ``trie``, the ``quadtree``, or for each message the one with the
        lower ``cost``.
    verify
        How lists of the quadtree are verified: entry by entry (``direct``), pruned by the trie to
        its end (``prune``), or whichever has the lower ``cost`` at each node of the trie.
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
        _ = self.trie, self.quadtree  # check their own options
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
    """What was chosen for messages; every array has one value per message.

    A message that crosses the antimeridian counts as two, one on each side.

    Parameters
    ----------
    by_trie
        Whether the trie filtered the message, and not the quadtree.
    trie_ns, quadtree_ns
        The expected costs, in nanoseconds of the machine on which the model was fitted.
    lists, pruned
        How many lists the quadtree left, and how many of them were pruned by the trie.
    examined, visited
        How many candidates were verified, and how many nodes were opened.
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
        trie: MbrTrie,
        quadtree: PtQuadtree,
        model: Model | None = None,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._trie, self._quadtree = trie, quadtree
        self._model = model if model is not None else self._fit_model()
        self._changes = 0
        self._view: BothIndexes | None = None

    @classmethod
    def build(cls, clauses: Clauses, options: LfilterOptions) -> Self:
        """Build the trie, and the quadtree with its lists in the order of the trie's labels."""
        trie = MbrTrie.build(clauses, options.trie, labels=True)
        quadtree = PtQuadtree.build(clauses, options.quadtree, trie.clause_label)
        return cls(clauses, options, trie, quadtree)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of both indexes and of the cost model, and which rows are alive."""
        arrays = {
            **prefixed("trie", self._trie.arrays()),
            **prefixed("quadtree", self._quadtree.arrays()),
            **prefixed("model", self._model._asdict()),
        }
        shared = {f"{part}.{name}" for part in ("trie", "quadtree") for name in _SHARED}
        own = {name: array for name, array in arrays.items() if name not in shared}
        return {**own, "alive": self.alive}

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
        trie.labeled = True
        quadtree.set_labels(trie.clause_label)
        stored = nested("model", arrays)
        model = Model(*(read_only(stored[name], np.float64) for name in Model._fields))
        return cls(clauses, options, trie, quadtree, model, arrays["alive"])

    def check_structure(self) -> None:
        """Raise `StorageError` unless kernels can follow the arrays safely."""
        self._trie.check_structure()
        self._quadtree.check_structure()
        nodes = int(self._quadtree.view()[0].state[NODES])
        for name, shape in {"weight": (nodes, WEIGHTS), "token_cost": (1,)}.items():
            array = getattr(self._model, name)
            sound = array.shape == shape and (np.isfinite(array) & (array >= 0)).all()
            expected = f"must have the shape {shape} and finite values of at least 0"
            require(self.name, sound, f"model.{name}", expected)

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: MatchScratch, output: Output
    ) -> Progress:
        """Filter every message by the index that costs less."""
        return self._find_traced(_trace(0), messages, part, scratch, output)

    def make_scratch(self, tokens: int) -> MatchScratch:
        """Return scratch for messages of at most ``tokens`` tokens."""
        pruning = PruneScratch(
            np.empty((_RUNS, 3), np.int64),
            np.empty((8 * _SPANS, 3), np.int64),
            np.empty(_SPANS, np.int64),
            np.empty((int(self._both().trie.state[DEPTH]) + 2, 5), np.int64),
            np.zeros(TALLY_WIDTH, np.int64),
        )
        return MatchScratch(
            self._quadtree.make_scratch(tokens), self._trie.make_scratch(tokens), pruning
        )

    def explain(self, messages: Messages) -> Explanation:
        """Match messages, and tell what was chosen for each."""
        if messages.wraps.any():
            messages, _ = messages.cut()
        trace = _trace(len(messages))
        if len(messages):
            self._find(messages, 1, partial(self._find_traced, trace))
        return Explanation(
            trace.tally[:, CHOSEN] == FILTER_BY_TRIE,
            trace.cost[:, 0],
            trace.cost[:, 1],
            trace.tally[:, prune.LISTS],
            trace.tally[:, prune.PRUNED],
            trace.tally[:, prune.EXAMINED],
            trace.tally[:, prune.VISITED],
        )

    def _find_traced(
        self,
        trace: Trace,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: MatchScratch,
        output: Output,
    ) -> Progress:
        """Find clauses, and write what was chosen for each message to a trace that is not empty."""
        options = self.options
        strategy = Strategy(
            FILTERS[options.filter], VERIFIES[options.verify], PROBES[options.probe]
        )
        done, examined, visited = match_messages(
            self._both(), self._model, messages, strategy, part, scratch, trace, output
        )
        return int(done), int(examined), int(visited)

    def _both(self) -> BothIndexes:
        if self._view is None:
            self._view = BothIndexes(*self._quadtree.view(), self._trie.view())
        return self._view

    def _fit_model(self) -> Model:
        """Return the cost model of both indexes as they are now."""
        tree, _ = self._quadtree.view()
        weight = np.empty((int(tree.state[NODES]), WEIGHTS))
        weigh_nodes(tree, self._trie.view(), weight)
        return Model(read_only(weight, np.float64), read_only([self._token_cost()], np.float64))

    def _token_cost(self) -> float:
        """Return what a token of a message costs with the trie, by a sample of short messages.

        They are as large as the world, and have tokens of clauses at even distances.
        """
        token, count = self.clauses.token, _SAMPLE // SHORT
        if not len(token):
            return 0.0
        drawn = token[np.arange(count * SHORT) * len(token) // (count * SHORT)]
        rows = drawn.reshape(SHORT, count).T
        sample = Messages.of([np.unique(row).tolist() for row in rows], [WORLD] * count)
        opened = self._trie.find(sample, 1).visited - count
        cost = trie_cost(self._trie.view(), sample.token, SHORT, opened)
        return float(cost) / len(sample.token)

    def _add(self, first: int, last: int) -> None:
        builds = self._trie.builds
        self._trie.follow_insert(self, first, last)
        self._quadtree.set_labels(self._trie.clause_label)
        self._quadtree.follow_insert(self, first, last)
        if self._trie.builds > builds:
            self._quadtree.reorder(self._trie.clause_label)
        self._changed(last - first)

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        builds = self._trie.builds
        self._trie.follow_delete(self, clauses)
        self._quadtree.set_labels(self._trie.clause_label)
        self._quadtree.follow_delete(self, clauses)
        if self._trie.builds > builds:
            self._quadtree.reorder(self._trie.clause_label, clauses)
        self._changed(len(clauses))

    def _changed(self, clauses: int) -> None:
        """Drop the view of the arrays, and fit the cost model again from time to time."""
        self._view = None
        self._changes += clauses
        nodes = int(self._quadtree.view()[0].state[NODES])
        if nodes != len(self._model.weight) or _CHANGES * self._changes > len(self.clauses):
            self._model, self._changes = self._fit_model(), 0


def _trace(messages: int) -> Trace:
    """Return a trace of messages that are not matched yet."""
    return Trace(np.zeros((messages, 2)), np.zeros((messages, TALLY_WIDTH), np.int64))
