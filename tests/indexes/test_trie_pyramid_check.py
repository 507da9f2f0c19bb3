"""Damage to the arrays of a trie-pyramid, one kind at a time: each has its own refusal.

Kernels trust what `nearcast.indexes.trie_pyramid.check` lets pass, so dropping a check must show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast.compiled.pyramids import KEY, PADDING, POSITION_BITS, TARGET
from nearcast.errors import StorageError
from nearcast.indexes import create
from nearcast.indexes.trie_pyramid.layout import CHILDREN, IS_NODE, KEPT
from nearcast.testing import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

CASE = draw("lattice", 0)
INDEX = create("trie-pyramid", list_size=2, child_size=0).build(CASE.clauses)


def load(arrays: Arrays) -> None:
    """Load an index with these arrays, and check it."""
    type(INDEX).from_arrays(CASE.clauses, INDEX.options, arrays).check_structure()


def rows(slot: NDArray[np.uint64], nodes: bool) -> NDArray[np.int64]:
    """Return the slots that lead to nodes, or those that lead to pyramids."""
    target = slot[:, TARGET]
    return np.flatnonzero((target != 0) & (((target & IS_NODE) != 0) == nodes))


def no_free_slot(arrays: Arrays) -> None:
    arrays["slot"] = arrays["slot"][arrays["slot"][:, TARGET] != 0]


def value_in_a_free_slot(arrays: Arrays) -> None:
    free = np.flatnonzero(arrays["slot"][:, TARGET] == 0)[0]
    arrays["slot"][free, KEY] = 5


def node_without_a_slot(arrays: Arrays) -> None:
    """Another node is below two slots then."""
    first, second = rows(arrays["slot"], nodes=True)[:2]
    arrays["slot"][first, TARGET] = arrays["slot"][second, TARGET]


def node_below_itself(arrays: Arrays) -> None:
    slot = arrays["slot"]
    one = rows(slot, nodes=True)[0]
    number = slot[one, TARGET] ^ IS_NODE
    slot[one, KEY] = (number << np.uint64(32)) | (slot[one, KEY] & np.uint64(0xFFFFFFFF))


def child_of_two_nodes(arrays: Arrays) -> None:
    arrays["node"][-1, CHILDREN] += np.uint64(1) << np.uint64(32)


def slot_out_of_range(arrays: Arrays) -> None:
    token = arrays["child"][0] >> np.uint64(32)
    arrays["child"][0] = (token << np.uint64(32)) | np.uint64(len(arrays["slot"]))


def slot_of_another_node(arrays: Arrays) -> None:
    arrays["child"][0] += np.uint64(1) << np.uint64(32)


def slot_that_no_node_names(arrays: Arrays) -> None:
    slot = arrays["slot"]
    root = next(i for i in rows(slot, nodes=False) if slot[i, KEY] >> np.uint64(32) == 0)
    slot[root, KEY] |= np.uint64(1) << np.uint64(32)


def node_that_keeps_a_node(arrays: Arrays) -> None:
    arrays["node"][1, KEPT] = IS_NODE | np.uint64(1)


def empty_pyramid(arrays: Arrays) -> None:
    """All clauses are in their pyramids still: one more has none."""
    arrays["node"][np.flatnonzero(arrays["node"][1:, KEPT] == 0)[0] + 1, KEPT] = 1


def clause_too_many(arrays: Arrays) -> None:
    one = rows(arrays["slot"], nodes=False)[0]
    arrays["slot"][one, TARGET] += np.uint64(1) << np.uint64(POSITION_BITS)


def pyramid_beyond_the_end(arrays: Arrays) -> None:
    one = rows(arrays["slot"], nodes=False)[0]
    size = arrays["slot"][one, TARGET] >> np.uint64(POSITION_BITS)
    end = np.uint64(len(arrays["pyramid"]) - PADDING)
    arrays["slot"][one, TARGET] = (size << np.uint64(POSITION_BITS)) | end


def clause_in_two_pyramids(arrays: Arrays) -> None:
    slot = arrays["slot"]
    sizes = slot[:, TARGET] >> np.uint64(POSITION_BITS)
    first, second = [i for i in rows(slot, nodes=False) if sizes[i] == 1][:2]
    slot[first, TARGET] = slot[second, TARGET]


def short_queue(arrays: Arrays) -> None:
    arrays["setting"][3] -= 1


def no_header(arrays: Arrays) -> None:
    arrays["setting"] = arrays["setting"][:3]


def one_box_per_block(arrays: Arrays) -> None:
    arrays["setting"][0] = 1


def grid_too_fine(arrays: Arrays) -> None:
    arrays["setting"][1] = 63


def neither_yes_nor_no(arrays: Arrays) -> None:
    arrays["setting"][2] = 2


def parts_of_another_block(arrays: Arrays) -> None:
    arrays["shape"] = arrays["shape"] + 1


def no_node_0(arrays: Arrays) -> None:
    arrays["node"] = arrays["node"][:0]


def narrow_slots(arrays: Arrays) -> None:
    arrays["slot"] = np.ascontiguousarray(arrays["slot"][:, :3])


REFUSED: dict[Callable[[Arrays], None], str] = {
    narrow_slots: "has the shape",
    no_header: "must have 4 fields",
    one_box_per_block: "1 boxes per block",
    grid_too_fine: "has grid level 63",
    neither_yes_nor_no: "has 2 for clauses without tokens",
    parts_of_another_block: "does not fit the block size",
    no_free_slot: "has no free slot",
    value_in_a_free_slot: "has values in a free slot",
    no_node_0: "must have a node 0",
    node_without_a_slot: "nodes once",
    node_below_itself: "parent is not above it",
    child_of_two_nodes: "must name each child once",
    slot_out_of_range: "leads out of",
    slot_of_another_node: "leads to a slot of another node",
    slot_that_no_node_names: "must name each slot below a node",
    node_that_keeps_a_node: "keeps a node instead of a pyramid",
    empty_pyramid: "must lead to",
    clause_too_many: "must lead to",
    pyramid_beyond_the_end: "must hold each of",
    clause_in_two_pyramids: "must hold each of",
    short_queue: "must have a queue size of",
}


@pytest.mark.parametrize("damage", REFUSED, ids=lambda damage: damage.__name__)
def test_damage_is_refused(damage: Callable[[Arrays], None]) -> None:
    arrays = {name: array.copy() for name, array in INDEX.arrays().items()}
    load(arrays)
    damage(arrays)
    with pytest.raises(StorageError, match=REFUSED[damage]):
        load(arrays)


def test_a_child_that_is_named_twice_is_refused() -> None:
    """Of two children of a node with the same token, one slot would never be reached."""
    arrays = {name: array.copy() for name, array in INDEX.arrays().items()}
    count = arrays["node"][:, CHILDREN] >> np.uint64(32)
    node = int(np.flatnonzero(count >= 2)[0])
    first = int(arrays["node"][node, CHILDREN] & np.uint64(0xFFFFFFFF))
    arrays["child"][first + 1] = arrays["child"][first]
    with pytest.raises(StorageError, match="names a slot twice"):
        load(arrays)
