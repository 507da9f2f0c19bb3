"""Arrays from a crafted folder: refused on loading, or harmless to every kernel.

A folder whose checksums are valid may still hold offsets that lead out of its arrays, or nodes that
lead in circles. As plain Python (`NUMBA_DISABLE_JIT=1`) a kernel raises where it would read
out of bounds; compiled, it would crash the process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast import indexes
from nearcast.compiled.jit import JIT
from nearcast.errors import StorageError
from nearcast.testing import draw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes import Builder

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
TRIES = 400 if JIT else 60

BUILDERS: dict[str, Builder] = {
    **{name: indexes.create(name) for name in indexes.names("boolean")},
    "ap-tree, small": indexes.create("ap-tree", fanout=4, leaf=2),
    "iq-tree, small": indexes.create("iq-tree", list_size=2, depth=5),
    "pt-quadtree, small": indexes.create("pt-quadtree", list_size=2),
    "rq-tree, small": indexes.create("rq-tree", list_size=2),
    "rt++-tree, small": indexes.create("rt++-tree", least=2, most=3),
    "ir-tree, small": indexes.create("ir-tree", least=2, most=3),
    "trie-pyramid, small": indexes.create("trie-pyramid", list_size=2, child_size=0),
    "trie-quadtree, small": indexes.create("trie-quadtree", list_size=2, child_size=1),
}


def crafted(array: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Return a copy with one to three values replaced, or one value more or less."""
    flat = array.copy().reshape(-1)
    if not len(flat) or rng.random() < 0.1:
        return array[:-1] if len(array) else np.ones(3, array.dtype)
    for position in rng.integers(0, len(flat), rng.integers(1, 4)):
        flat[position] = _value(flat, int(position), rng)
    return flat.reshape(array.shape)


def _value(flat: NDArray[Any], position: int, rng: np.random.Generator) -> Any:
    if flat.dtype == np.bool_:
        return not flat[position]
    if flat.dtype.kind == "f":
        large = np.finfo(flat.dtype).max
        return flat.dtype.type(rng.choice([np.nan, np.inf, -1.0, 0.0, large]))
    limits = np.iinfo(flat.dtype)
    near = int(flat[position])
    choices = [0, 1, -1, near + 1, near - 1, 2 * near, len(flat), limits.max, limits.min]
    choices += [near ^ (1 << int(rng.integers(0, limits.bits))), int(flat[rng.integers(len(flat))])]
    value = choices[int(rng.integers(len(choices)))] & ((1 << limits.bits) - 1)
    unsigned = np.array([value], np.uint64).astype(f"u{flat.dtype.itemsize}")
    return unsigned.view(flat.dtype)[0]


@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
def test_crafted_arrays_are_refused_or_harmless(builder: Builder) -> None:
    rng = np.random.default_rng(SEED)
    case = draw("lattice", SEED)
    index = builder.build(case.clauses)
    arrays = dict(index.arrays())
    refused = 0
    for _ in range(TRIES):
        name = sorted(arrays)[int(rng.integers(len(arrays)))]
        changed = arrays | {name: crafted(arrays[name], rng)}
        try:
            loaded = type(index).from_arrays(case.clauses, index.options, changed)
            loaded.check_structure()
        except StorageError:
            refused += 1
            continue
        loaded.match(case.messages)
    assert refused


@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
def test_arrays_of_a_built_index_are_accepted(builder: Builder) -> None:
    for name in ("lattice", "identical"):
        index = builder.build(draw(name, SEED).clauses)
        type(index).from_arrays(index.clauses, index.options, index.arrays()).check_structure()
