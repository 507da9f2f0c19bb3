"""What trees of all kinds share when they change: tables follow the tree, pools grow, marks go.

`TokenTree` holds no data of its own. The boolean trees and the ranked ones (but for ``rt++-tree``,
whose lists have more in them) have a tree, tables and postings, and use it to bring what nodes know
about tokens up to date.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearcast.indexes.rtree.balance import with_capacity
from nearcast.indexes.rtree.nodes import CONTENT_CHANGED, MARKED, NODES, ROOT_CHANGED, RTree
from nearcast.indexes.rtree.tokens import (
    INVERTED_FILES,
    NO_TOKENS,
    TOKEN_LISTS,
    IndexArrays,
    Postings,
    grow_postings,
    grow_tables,
    make_gather_scratch,
)
from nearcast.indexes.rtree.update import Shortage, rebuild_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.compiled.token_table import Tables

__all__ = ["TokenTree", "clear_marks", "marked_nodes", "with_tables"]


class TokenTree(ABC):
    """A tree with tables of tokens that follow it."""

    kind: ClassVar[int]
    """What the nodes know about tokens: one of the kinds of `nearcast.indexes.rtree.tokens`."""

    options: Any
    _tree: RTree
    _tables: Tables
    _postings: Postings

    @property
    @abstractmethod
    def height(self) -> int:
        """The number of levels above the leaves."""

    @abstractmethod
    def _index_arrays(self) -> IndexArrays:
        """Return the arrays as kernels take them."""

    def _rebuild_marked(self) -> None:
        """Rebuild what marked nodes know; token lists of all nodes if the depths changed."""
        tree = self._tree
        self._tables = with_tables(self._tables, len(tree.used))
        nodes = marked_nodes(tree)
        if self.kind == TOKEN_LISTS and tree.state[ROOT_CHANGED]:
            nodes = np.arange(int(tree.state[NODES]))
            tree.mark[nodes] |= CONTENT_CHANGED
        elif self.kind == TOKEN_LISTS:
            nodes = nodes[(tree.level[nodes] <= 0) | (tree.mark[nodes] & CONTENT_CHANGED != 0)]
        self._rebuild(nodes)

    def _rebuild(self, nodes: NDArray[np.int64]) -> None:
        """Rebuild what nodes know, children before parents, and drop what free nodes knew."""
        if self.kind == NO_TOKENS:
            return
        level = self._tree.level[nodes]
        drop = (level < 0) | (self._tree.mark[nodes] & CONTENT_CHANGED != 0)
        self._tables.table[nodes[drop]] = 0
        keep = level >= (0 if self.kind in (INVERTED_FILES, TOKEN_LISTS) else 1)
        if self.kind == TOKEN_LISTS and self.height > 0:
            keep &= level < self.height
        nodes = nodes[keep][np.argsort(level[keep], kind="stable")]
        scratch = make_gather_scratch(4096, self.height)

        def rebuild(first: int) -> Shortage:
            nonlocal scratch
            shortage = rebuild_nodes(self._index_arrays(), self.kind, nodes, first, scratch)
            if shortage.scratch_slots:
                scratch = make_gather_scratch(int(shortage.scratch_slots), self.height)
            return shortage

        self._run(0, len(nodes), rebuild)

    def _run(self, first: int, last: int, kernel: Callable[[int], Shortage]) -> None:
        """Run a kernel to its end; enlarge the pools that it finds full."""
        while first < last:
            shortage = kernel(first)
            first = int(shortage.reached)
            if shortage.slots:
                self._tables = grow_tables(self._tables, int(shortage.slots))
            if shortage.postings:
                self._postings = grow_postings(
                    self._tree, self._tables, self._postings, int(shortage.postings)
                )

    def _clear_marks(self) -> None:
        clear_marks(self._tree)


def marked_nodes(tree: RTree) -> NDArray[np.int64]:
    """Return the nodes that have a mark."""
    return tree.marked[: int(tree.state[MARKED])].astype(np.int64)


def clear_marks(tree: RTree) -> None:
    """Remove all marks."""
    marked = tree.marked[: int(tree.state[MARKED])]
    tree.mark[slice(None) if tree.state[ROOT_CHANGED] else marked] = 0
    tree.state[[ROOT_CHANGED, MARKED]] = 0


def with_tables(tables: Tables, owners: int) -> Tables:
    """Return tables with capacity for this number of owners; new owners have none."""
    before = len(tables.table)
    tables = tables._replace(table=with_capacity(tables.table, owners))
    tables.table[before:] = 0
    return tables
