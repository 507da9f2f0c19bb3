"""Every moving index, every check."""

from __future__ import annotations

import os
from typing import Any

import pytest

from nearcast.compiled.jit import JIT
from nearcast.indexes import moving
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.moving import MovingBuilder
from nearcast.indexes.moving.ap_plus import PRINTED
from nearcast.indexes.moving.grids import GridOptions
from nearcast.indexes.quadtrees import IqTreeOptions, RqTreeOptions
from nearcast.testing.moving_checks import MOVING_CHECKS

from .flat_index import FlatIndex
from .sweeping import (
    SweepingIqPlusTree,
    SweepingKkIndex,
    SweepingRqPlusTree,
    SweepingSsIndex,
)

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))

TINY: dict[str, Any] = {"fanout": 4, "leaf": 2, "kl": 0.0, "share": 0.0}
"""Options with which ap+-trees split, rebuild and degrade all the time."""

BUILDERS = {
    **{name: moving.create(name) for name in moving.names()},
    **{f"tiny {name}": moving.create(name, **TINY) for name in moving.names() if "ap+" in name},
    "tiny ap+-tree, few copies": moving.create("ap+-tree", **TINY, copies=2),
    "tiny ap+-tree, node lists": moving.create("ap+-tree", **TINY, node_lists=True, copies=5),
    "printed ap+-tree": moving.create("ap+-tree", **PRINTED),
    "flat": MovingBuilder(FlatIndex, NoOptions()),
    "twin-lists, tiny": moving.create(
        "twin-lists", leaf=4, flat=2, tile=1, regret=0, rekey_interval=1, min_stamps=16
    ),
    "ss-index, sweeping": MovingBuilder(SweepingSsIndex, GridOptions(size=3)),
    "kk-index, sweeping": MovingBuilder(SweepingKkIndex, GridOptions(size=3)),
    "kk-index, fine": moving.create("kk-index", size=200),
    "iq+-tree, sweeping": MovingBuilder(
        SweepingIqPlusTree, IqTreeOptions(list_size=2, update_cost=1e-9)
    ),
    "rq+-tree, sweeping": MovingBuilder(
        SweepingRqPlusTree, RqTreeOptions(list_size=2, update_cost=1e-9)
    ),
}

if not JIT:  # one of each family is enough for kernels as plain Python, which takes its time
    few = ("twin-lists, tiny", "tiny ap+-tree, node lists", "kk-index, sweeping")
    BUILDERS = {name: BUILDERS[name] for name in (*few, "rq+-tree, sweeping")}


@pytest.mark.parametrize("check", MOVING_CHECKS)
@pytest.mark.parametrize("name", BUILDERS)
def test_moving_checks(name: str, check: str) -> None:
    MOVING_CHECKS[check](BUILDERS[name], SEED)
