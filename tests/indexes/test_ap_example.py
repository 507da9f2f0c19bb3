"""The running example of the ap-tree paper (VLDB Journal 2015, section 3), rebuilt from its text.

The figures are lost. The text gives the tokens of s1 and s7, the first tokens of all, the second
ones of four, the ranges around m1, and what is visited and verified; the rest is completed such
that all of it holds. Two sentences do not agree: example 2 says that the keywords of m1 contain
only those of s7, and section 3.1 of the keyword trie that they lead to s3 and s7. The former is
true of the subscriptions around m1.
"""

from __future__ import annotations

from typing import Any

import pytest
from test_ap_tree import KEYWORDS, LEAF, SPACE, Node, build, check_ap_tree, root_of

from nearcast.columns import Clauses, Messages

SUBSCRIPTIONS = {
    "s1": ([1, 2], [0, 0, 60, 90]),
    "s2": ([1, 3], [10, 5, 80, 90]),
    "s3": ([2, 3], [5, 0, 20, 4]),
    "s4": ([1, 5], [20, 0, 90, 89]),
    "s5": ([1, 2, 4], [50, 0, 90, 88]),
    "s6": ([4, 6], [0, 70, 30, 80]),
    "s7": ([3, 4], [30, 86, 49, 90]),
    "s8": ([3, 5], [60, 0, 85, 4]),
    "s9": ([5, 6], [60, 72, 90, 85]),
}
NAMES = list(SUBSCRIPTIONS)
M1, M2 = ([2, 3, 4], [40, 88]), ([1, 2, 5], [55, 30])

PAPER: dict[str, Any] = {"leaf": 1, "tokens": 1, "order": "alphabet"}
"""Leaves of one, the cost model as it is printed, and ``w1 < w2 < ...``."""


def example(**options: Any) -> Any:
    clauses = Clauses.of(
        [tokens for tokens, _ in SUBSCRIPTIONS.values()],
        [box for _, box in SUBSCRIPTIONS.values()],
    )
    index = build(clauses, **(PAPER | options))
    check_ap_tree(index)
    return index


def match(index: Any, message: tuple[list[int], list[int]]) -> tuple[set[str], int, int]:
    """Return the answers, how many were verified, and the nodes visited."""
    found = index.match(Messages.of([message[0]], [message[1]]))
    assert len(found) == len(found.pairs())
    return {NAMES[row] for row in found.subscription.tolist()}, found.examined, found.visited


def tree_of(index: Any) -> Node:
    root = root_of(index)
    assert root is not None
    return root


def cuts(node: Node) -> list[tuple[int, int]]:
    """Return the lowest and highest token of each cut; ranks count from 0, tokens from 1."""
    return [(low + 1, high + 1) for low, high in zip(node.low, node.high, strict=True)]


def subscriptions(node: Node | None) -> set[str]:
    return {NAMES[clause] for clause in node.clauses()} if node else set()


@pytest.mark.parametrize("partition", ["heuristic", "optimal"])
@pytest.mark.parametrize("prefer", [None, "keyword", "space"])
def test_example_2_the_answers(partition: str, prefer: str | None) -> None:
    index = example(partition=partition, prefer=prefer, fanout=3)
    assert match(index, M1)[0] == {"s7"}
    assert match(index, M2)[0] == {"s1", "s4"}
    around = {
        name
        for name, (_, (west, south, east, north)) in SUBSCRIPTIONS.items()
        if west <= M1[1][0] <= east and south <= M1[1][1] <= north
    }
    assert around == {"s1", "s2", "s4", "s7"}
    asked = {name for name, (tokens, _) in SUBSCRIPTIONS.items() if set(tokens) <= set(M1[0])}
    assert asked == {"s3", "s7"}


@pytest.mark.parametrize("partition", ["heuristic", "optimal"])
def test_example_3_only_keywords(partition: str) -> None:
    root = tree_of(example(prefer="keyword", fanout=3, partition=partition))
    assert (root.kind, root.offset) == (KEYWORDS, 0)
    assert cuts(root) == [(1, 1), (2, 3), (4, 5)]
    second = root.children[0]
    assert second is not None
    assert subscriptions(second) == {"s1", "s2", "s4", "s5"}
    # The second keywords are w2, w3 and w5: a cut for each.
    assert (second.kind, second.offset) == (KEYWORDS, 1)
    assert cuts(second) == [(2, 2), (3, 3), (5, 5)]
    assert [subscriptions(child) for child in second.children] == [
        {"s1", "s5"},
        {"s2"},
        {"s4"},
        set(),
    ]


def test_example_4_only_space() -> None:
    index = example(prefer="space", fanout=4)
    inner = [node for node in tree_of(index).below() if node.kind == SPACE]
    assert inner
    assert all(node.parts <= 4 for node in inner)
    # Who contains the region of a space node lies in its dummy cell, if it is parted at all.
    for node in inner:
        assert len(node.children) == node.parts + 1
        for name in subscriptions(node.children[-1]):
            west, south, east, north = SUBSCRIPTIONS[name][1]
            assert west <= node.region[0]
            assert south <= node.region[1]
            assert east >= node.region[2]
            assert north >= node.region[3]


def test_examples_5_and_6_both() -> None:
    index = example(fanout=3)
    root = tree_of(index)
    assert root.kind == KEYWORDS
    assert cuts(root) == [(1, 1), (2, 3), (4, 5)]
    first, second = root.children[1], root.children[2]
    assert first is not None
    assert second is not None
    assert (first.kind, second.kind) == (SPACE, SPACE)
    assert subscriptions(first) == {"s3", "s7", "s8"}
    # m1 hits c[w2, w3] by two tokens, and it is opened once; below it, a cell has s7 alone. It
    # hits c[w4, w5] by w4, where its cell is empty: four nodes are opened, and one is verified.
    answers, verified, visited = match(index, M1)
    assert answers == {"s7"}
    assert verified == 1
    assert visited == 4
    assert [node.kind for node in first.below()].count(LEAF) >= 2
