"""The grids and quadtrees with few stamps, so that everything is swept often."""

from __future__ import annotations

from typing import Any

from nearcast.indexes.moving.grids import KkIndex, SsIndex
from nearcast.indexes.moving.quadtrees import IqPlusTree, RqPlusTree

STAMPS = 16


class SweepingSsIndex(SsIndex):
    """An ss-index with few stamps."""

    def __init__(self, options: Any) -> None:
        super().__init__(options, min_stamps=STAMPS)


class SweepingKkIndex(KkIndex):
    """A kk-index with few stamps."""

    def __init__(self, options: Any) -> None:
        super().__init__(options, min_stamps=STAMPS)


class SweepingIqPlusTree(IqPlusTree):
    """An iq+-tree with few stamps."""

    def __init__(self, options: Any) -> None:
        super().__init__(options, min_stamps=STAMPS)


class SweepingRqPlusTree(RqPlusTree):
    """An rq+-tree with few stamps."""

    def __init__(self, options: Any) -> None:
        super().__init__(options, min_stamps=STAMPS)
