"""Every index, every check; then whatever Hypothesis thinks of."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import LONG, examples
from nearcast import indexes
from nearcast.compiled.jit import JIT
from nearcast.indexes import create
from nearcast.testing import Case
from nearcast.testing import strategies as draw
from nearcast.testing.checks import Check, check_case, checks_of, scan_case
from nearcast.testing.ranked_cases import SCORINGS
from nearcast.testing.ranked_checks import RANKED_CHECKS, check_ranked_case, scan_ranked

if TYPE_CHECKING:
    from nearcast.columns import Clauses, Messages, Scoring
    from nearcast.indexes import Builder

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))


def tree(name: str, most: int, load: str, tokens: str | None = None) -> Builder:
    """Choose a tree of small nodes, which is deep over few subscriptions."""
    options = {} if tokens is None else {"tokens": tokens, "cells": 9, "seed": SEED}
    return create(name, least=2, most=most, load=load, **options)


BUILDERS = {
    **{name: create(name) for name in indexes.names()},
    "trie-pyramid, all nodes": create("trie-pyramid", list_size=2, child_size=0),
    "trie-pyramid, deep pyramids": create("trie-pyramid", list_size=3),
    "trie-pyramid, many children": create("trie-pyramid", child_size=0),
    "ranked-pyramid, deep pyramids": create("ranked-pyramid", list_size=2),
    "ir-tree, hilbert": tree("ir-tree", 4, "hilbert"),
    "rt-tree, str": tree("rt-tree", 3, "str"),
    "rt+-tree, str, local-df": tree("rt+-tree", 4, "str", "local-df"),
    "rt++-tree, str, idf": tree("rt++-tree", 3, "str", "idf"),
    "ir-tree-1, str": tree("ir-tree-1", 3, "str"),
    "mbr-trie, cost, alphabet": create("mbr-trie", probe="cost", order="alphabet"),
    "mbr-trie, tokens, alphabet": create("mbr-trie", probe="tokens", order="alphabet"),
    "mbr-trie, trie, alphabet": create("mbr-trie", probe="trie", order="alphabet"),
    "pt-quadtree, leaf": create("pt-quadtree", list_size=3, area_share=1e-3, place="leaf"),
    "pt-quadtree, push": create("pt-quadtree", list_size=3, area_share=1e-3, push=2.0),
    "lfilter, pruned": create("lfilter", filter="quadtree", verify="prune", list_size=20, push=0.0),
    "ap-tree, small": create("ap-tree", fanout=4, leaf=2),
    "iq-tree, small": create("iq-tree", list_size=2, depth=5),
    "rq-tree, small": create("rq-tree", list_size=2),
    "trie-quadtree, small": create("trie-quadtree", list_size=2, child_size=1),
    "stamp, cost": create("stamp", filters="cost", leaf=3),
    "stamp, deep": create("stamp", filters="sp+rp+hi", leaf=2),
}

if JIT:  # the choice above is enough for kernels as plain Python, which takes its time
    BUILDERS |= {
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
        "rt++-tree, no lists of the index": create(
            "rt++-tree", least=2, most=3, load="insert", anywhere="nodes"
        ),
        "ir-tree-1, insert": tree("ir-tree-1", 4, "insert"),
        "ir-tree-100, hilbert": tree("ir-tree-100", 3, "hilbert"),
        "ir-tree-100, insert": tree("ir-tree-100", 4, "insert"),
        "mbr-trie, tokens": create("mbr-trie", probe="tokens"),
        "mbr-trie, trie": create("mbr-trie", probe="trie"),
        "pt-quadtree, mx-cif": create("pt-quadtree", list_size=3, area_share=1e-3, push=0.0),
        "pt-quadtree, one leaf": create("pt-quadtree", list_size=1 << 28, area_share=1.0),
        "lfilter, chosen": create("lfilter", list_size=3, area_share=1e-3),
        "lfilter, trie": create("lfilter", filter="trie"),
        "lfilter, pruned leaves": create(
            "lfilter",
            filter="quadtree",
            verify="prune",
            list_size=3,
            area_share=1e-3,
            place="leaf",
        ),
        "lfilter, one list": create("lfilter", filter="quadtree", area_share=1.0, order="alphabet"),
        "ap-tree, keyword": create("ap-tree", fanout=3, leaf=1, prefer="keyword", order="alphabet"),
        "ap-tree, space": create("ap-tree", fanout=9, leaf=2, prefer="space"),
        "ap-tree, optimal": create("ap-tree", fanout=9, leaf=3, partition="optimal"),
        "ap-tree, optimal, frequent": create(
            "ap-tree", fanout=5, leaf=3, partition="optimal", order="frequent", tokens=20
        ),
        "iq-tree, many cells": create("iq-tree", list_size=1, update_cost=1e-12, parts=64),
        "iq-tree, one cell": create("iq-tree", list_size=1, depth=0),
        "iq-tree, expensive": create("iq-tree", list_size=3, update_cost=0.1, parts=1),
        "rq-tree, many cells": create("rq-tree", list_size=1, update_cost=1e-12, parts=64),
        "rq-tree, lists": create("rq-tree", list_size=1 << 28),
        "trie-quadtree, the paper's": create(
            "trie-quadtree", list_size=3, child_size=0, update_cost=1e-9
        ),
        "trie-quadtree, frequent": create(
            "trie-quadtree", list_size=1, child_size=1, update_cost=1e-12, order="frequent"
        ),
        "trie-quadtree, lists": create("trie-quadtree", list_size=1 << 28, child_size=1 << 28),
        "stamp, sp": create("stamp", filters="sp"),
        "stamp, sp+hi": create("stamp", filters="sp+hi", leaf=3),
        "stamp, sp+st+hi": create("stamp", filters="sp+st+hi", leaf=4),
        "stamp, sp+rp+st+hi": create("stamp", filters="sp+rp+st+hi", leaf=3),
        "stamp, one leaf": create("stamp", filters="sp+rp+st+hi", leaf=50_000),
    }


if not (JIT or LONG):  # one small index of each family
    SMALL = (
        "trie-pyramid, all nodes",
        "keyword-first",
        "ranked-pyramid, deep pyramids",
        "ir-tree-1, str",
        "rt++-tree, str, idf",
        "mbr-trie, cost, alphabet",
        "pt-quadtree, leaf",
        "lfilter, pruned",
        "ap-tree, small",
        "iq-tree, small",
        "trie-quadtree, small",
        "stamp, deep",
    )
    BUILDERS = {name: BUILDERS[name] for name in SMALL}

NAMES = {builder.index.name for builder in BUILDERS.values()}

SHAPES = ("agrees_on_circles", "agrees_on_polygons", "agrees_on_ranked_shapes")
"""Checks of exact shapes, which the same kernels verify after every index."""

BITS = "same_bits_as_linear"
"""What vector instructions could change, which plain Python does not have."""


SLOW = re.compile(
    "long_messages|crowd|ranges|batches|threads|ties|near|conditions|ranked_antimeridian"
)
"""Checks that take longest as plain Python: data of other kinds runs through the same lines."""


def chosen_checks(name: str) -> list[Check]:
    """Return the checks of a builder: of shapes as plain Python, two kinds of indexes are enough.

    An index in place and one that is not: for the kernels of shapes, candidates are the same.
    """
    checks = list(checks_of(BUILDERS[name]))
    if not (JIT or LONG):
        checks = [check for check in checks if not SLOW.search(check.__name__)]
    if JIT or name in ("trie-pyramid", "keyword-first"):
        return checks
    return [check for check in checks if check.__name__ not in (*SHAPES, BITS)]


def seeds(number: int, check: Check) -> list[int]:
    """Return the seeds of a check: of three in a row, each has a third of the scorings.

    In the short form builders take turns, so that every builder and every case meet all scorings.
    """
    if check not in RANKED_CHECKS:
        return [SEED]
    return [SEED, SEED + 1, SEED + 2] if LONG else [SEED + number % 3]


@pytest.mark.parametrize(
    ("builder", "check", "seed"),
    [
        pytest.param(builder, check, seed, id=f"{name}-{check.__name__}-{seed}")
        for number, (name, builder) in enumerate(BUILDERS.items())
        for check in chosen_checks(name)
        for seed in seeds(number, check)
    ],
)
def test_check(builder: Builder, check: Check, seed: int) -> None:
    check(builder, seed)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, kind) for kind in ("proximity", "overlap") for n in indexes.names(kind) if n in NAMES],
)
@settings(max_examples=examples(240 if JIT else 18), deadline=None)
@given(data=st.data(), scoring=st.sampled_from(SCORINGS))
def test_agrees_on_any_ranking(name: str, kind: str, scoring: Scoring, data: st.DataObject) -> None:
    """Shares, thresholds, weights and places are drawn at their edges, and scanned once."""
    case = data.draw(draw.ranked(kind, scoring))
    expected = scan_ranked(case)
    for options, builder in BUILDERS.items():
        if builder.index.name == name:
            check_ranked_case(builder, replace(case, name=options), expected)


@pytest.mark.parametrize("name", [name for name in indexes.names("boolean") if name in NAMES])
@settings(max_examples=examples(60), deadline=None)
@given(clauses=draw.clauses(), messages=draw.messages())
def test_agrees_on_anything(name: str, clauses: Clauses, messages: Messages) -> None:
    """Clauses and messages are drawn, and scanned, once for all options of an index."""
    expected = scan_case(Case("drawn", clauses, messages))
    for options, builder in BUILDERS.items():
        if builder.index.name == name:
            check_case(builder, Case(options, clauses, messages), expected)
