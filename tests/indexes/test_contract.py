"""Every index, every check; then whatever Hypothesis thinks of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from nearcast import indexes
from nearcast.compiled.jit import JIT
from nearcast.testing import CHECKS, Case
from nearcast.testing import strategies as draw
from nearcast.testing.checks import Check, check_case

if TYPE_CHECKING:
    from nearcast.columns import Clauses, Messages
    from nearcast.indexes import Builder

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))


def tree(name: str, most: int, load: str, tokens: str | None = None) -> Builder:
    """Choose a tree of small nodes, which is deep over few subscriptions."""
    options = {} if tokens is None else {"tokens": tokens, "cells": 9, "seed": SEED}
    return indexes.create(name, least=2, most=most, load=load, **options)


SMALL_NODES = {
    "ir-tree, hilbert": tree("ir-tree", 4, "hilbert"),
    "rt-tree, str": tree("rt-tree", 3, "str"),
    "rt+-tree, str, local-df": tree("rt+-tree", 4, "str", "local-df"),
    "rt++-tree, str, idf": tree("rt++-tree", 3, "str", "idf"),
}

if JIT:  # a choice of them is enough for kernels as plain Python, which takes its time
    SMALL_NODES |= {
        "spatial-first, insert": tree("spatial-first", 3, "insert"),
        "ir-tree, insert": tree("ir-tree", 3, "insert"),
        "rt-tree, insert": tree("rt-tree", 4, "insert"),
        "rt+-tree, hilbert, random": tree("rt+-tree", 3, "hilbert", "random"),
        "rt+-tree, insert, df": tree("rt+-tree", 4, "insert", "df"),
        "rt+-tree, str, idf": tree("rt+-tree", 3, "str", "idf"),
        "rt++-tree, hilbert, random": tree("rt++-tree", 4, "hilbert", "random"),
        "rt++-tree, insert, df": tree("rt++-tree", 3, "insert", "df"),
        "rt++-tree, str, local-df": tree("rt++-tree", 4, "str", "local-df"),
        "rt++-tree, insert, local-idf": tree("rt++-tree", 4, "insert", "local-idf"),
    }

SMALL_PARTS: dict[str, Builder] = {
    "ap-tree, small": indexes.create("ap-tree", fanout=4, leaf=2),
    "iq-tree, small": indexes.create("iq-tree", list_size=2, depth=5),
    "rq-tree, small": indexes.create("rq-tree", list_size=2),
    "trie-quadtree, small": indexes.create("trie-quadtree", list_size=2, child_size=1),
}

if JIT:
    SMALL_PARTS |= {
        "ap-tree, keyword": indexes.create("ap-tree", fanout=3, leaf=1, prefer="keyword"),
        "ap-tree, space": indexes.create("ap-tree", fanout=9, leaf=2, prefer="space"),
        "ap-tree, optimal": indexes.create(
            "ap-tree", fanout=5, leaf=3, partition="optimal", order="frequent", tokens=20
        ),
        "iq-tree, many cells": indexes.create("iq-tree", list_size=1, update_cost=1e-12, parts=64),
        "rq-tree, many cells": indexes.create("rq-tree", list_size=1, update_cost=1e-12, parts=64),
        "trie-quadtree, frequent": indexes.create(
            "trie-quadtree", list_size=1, child_size=1, update_cost=1e-12, order="frequent"
        ),
    }

BUILDERS = {
    **{name: indexes.create(name) for name in indexes.names()},
    "trie-pyramid, all nodes": indexes.create("trie-pyramid", list_size=2, child_size=0),
    "trie-pyramid, deep pyramids": indexes.create("trie-pyramid", list_size=3),
    "trie-pyramid, many children": indexes.create("trie-pyramid", child_size=0),
    **SMALL_NODES,
    **SMALL_PARTS,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
def test_check(builder: Builder, check: Check) -> None:
    check(builder, SEED)


@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
@settings(max_examples=60, deadline=None)
@given(clauses=draw.clauses(), messages=draw.messages())
def test_agrees_on_anything(builder: Builder, clauses: Clauses, messages: Messages) -> None:
    check_case(builder, Case("drawn", clauses, messages))
