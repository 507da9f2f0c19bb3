"""The class of the ``stamp`` index, its options, and the explanation of its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import KINDS, PROXIMITY, Messages, Ranked, read_only
from nearcast.compiled.scoring import RankedMessages, ScoredOutput
from nearcast.errors import UnknownName
from nearcast.indexes.array_tuples import read_only_views
from nearcast.indexes.contract import UpdatableIndex
from nearcast.indexes.in_place import check_tokens
from nearcast.indexes.options import check_whole
from nearcast.indexes.ranked import RankedIndex
from nearcast.indexes.stamp.build import build_arrays
from nearcast.indexes.stamp.layout import Filters, StampArrays
from nearcast.indexes.stamp.match import (
    SHORT,
    TALLY_WIDTH,
    Index,
    MatchScratch,
    Trace,
    Weights,
    match_messages,
)
from nearcast.indexes.stamp.sets import LEAF_COLUMNS, SetScratch, match_by_sets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.indexes.batches import Progress

__all__ = ["FILTERS", "Stamp", "StampOptions"]

FILTERS = {
    "sp": Filters(0, 0, 0, 0),
    "sp+hi": Filters(1, 0, 0, 0),
    "sp+rp+hi": Filters(1, 1, 0, 0),
    "sp+st+hi": Filters(1, 0, 1, 0),
    "sp+rp+st+hi": Filters(1, 1, 1, 0),
    "cost": Filters(1, 1, 1, 1),
}

_RUNS, _CANDIDATES, _HITS = 512, 4096, 4096


@dataclass(frozen=True)
class StampOptions:
    """Options of ``stamp``.

    Parameters
    ----------
    filters
        The paper's filters: spatial-oriented prefix (sp), hierarchical index (hi), region-aware
        prefix (rp), spatio-textual prefix (st). ``cost``: all of them, where each leaf region uses
        the next signature set only if that is expected to cost less than verifying.
    leaf
        The most subscriptions of a leaf region; the paper tries 100 to 50,000.
    """

    filters: str = "cost"
    leaf: int = 5000

    def __post_init__(self) -> None:
        if self.filters not in FILTERS:
            raise UnknownName("filters", self.filters, FILTERS)
        check_whole("leaf", self.leaf, 2, 1 << 20)


class Stamp(RankedIndex):
    """x."""

    name = "stamp"
    summary = "lists by token and region with reaches; changes in place"
    kinds = (KINDS[PROXIMITY],)
    Options = StampOptions

    def __init__(self, ranked: Ranked, options: StampOptions, arrays: StampArrays) -> None:
        super().__init__(ranked, options)
        check_tokens(ranked.clauses)
        self._arrays = arrays
        self._filters = FILTERS[options.filters]
        self._view: Index | None = None

    @classmethod
    def build(cls, content: Ranked, options: StampOptions) -> Self:
        """Build the index."""
        index = cls(content, options, None)  # type: ignore[arg-type]
        live = np.arange(len(content))
        filters = FILTERS[options.filters]
        index._arrays = build_arrays(index.codes, index.columns, live, filters, options.leaf)
        index._columns = None
        return index

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return self._arrays._asdict()

    @classmethod
    def from_arrays(cls, content, options, arrays):
        return cls(content, options, StampArrays(**{n: arrays[n] for n in StampArrays._fields}))

    def check_structure(self) -> None:
        pass

    def _index(self) -> Index:
        if self._view is None:
            ranked = self.ranked
            weights = Weights(ranked.weight, ranked.unknown_weight, int(ranked.scoring.weighs))
            self._view = Index(read_only_views(self._arrays), self.codes, self._filters, weights)
        return self._view

    def make_scratch(self, tokens: int) -> list[Any]:
        """Return scratch for messages of at most ``tokens`` tokens."""
        size = 1 << max(8, (8 * tokens - 1).bit_length())
        regions = len(self._arrays.region)
        scratch = MatchScratch(
            np.full(size, -1, np.int32),
            np.empty(size),
            np.empty(regions),
            np.zeros(regions, np.int64),
            np.empty(tokens + 1, np.int64),
            np.empty((_RUNS, 3), np.int64),
            np.empty(_RUNS),
            np.empty((_CANDIDATES, 2), np.int32),
            np.empty(_CANDIDATES),
            np.zeros(TALLY_WIDTH, np.int64),
        )
        if not self._filters.sets:
            return [scratch]
        sets = SetScratch(
            np.empty(tokens + 1, np.int64),
            np.empty(tokens),
            np.empty((_HITS, 4), np.int64),
            np.full((regions, LEAF_COLUMNS), -1, np.int64),
            np.empty(regions, np.int64),
            np.empty((_CANDIDATES, 4), np.int32),
            np.empty(_CANDIDATES),
            np.zeros(len(self._arrays.record), np.int32),
            np.zeros(3, np.int64),
        )
        return [scratch, sets]

    def match_part(
        self,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: list[Any],
        output: ScoredOutput,
    ) -> Progress:
        """Read the lists of every message in regions that are near enough, and score."""
        return self._match_traced(_trace(0), messages, part, scratch, output)

    def _match_traced(
        self,
        trace: Trace,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: list[Any],
        output: ScoredOutput,
    ) -> Progress:
        """Match messages, and write what was counted to a trace that is not empty."""
        index = self._index()
        if not self._filters.sets:
            done, examined, visited = match_messages(
                index, messages, part, scratch[0], trace, output
            )
            return int(done), int(examined), int(visited)
        done, examined, visited = part[0], 0, 0
        while True:
            done, more_examined, more_visited = match_by_sets(
                index, messages, (done, part[1]), scratch[0], scratch[1], trace, output
            )
            examined += more_examined
            visited += more_visited
            if done == part[1] or not scratch[0].tally[SHORT]:
                return int(done), int(examined), int(visited)
            sets = scratch[1]
            scratch[1] = sets._replace(
                hit=np.empty((2 * len(sets.hit), 4), np.int64),
                chosen=np.empty((2 * len(sets.chosen), 4), np.int32),
                distance=np.empty(2 * len(sets.chosen)),
            )


def _trace(messages: int) -> Trace:
    """Return a trace of messages that are not matched yet."""
    return Trace(np.zeros((messages, TALLY_WIDTH), np.int64), np.zeros((messages, 2)))
