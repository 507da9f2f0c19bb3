"""Ranked subscriptions as clauses: whatever matches has a clause in common."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nearcast import indexes
from nearcast.columns import Clauses, Messages, Ranked, Rankings, Scoring
from nearcast.segments import routing_clauses
from nearcast.testing.ranked_cases import RANKED_CASES, SCORINGS, draw_ranked
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from nearcast.columns import Matches

KINDS = ("proximity", "overlap")


def reached(clauses: Clauses, messages: Messages) -> set[tuple[int, int]]:
    """Return the messages and rows of which a clause is true, without kernels or routers."""
    pieces, message_of = messages.cut()
    found = set()
    starts = clauses.token_start.tolist()
    wanted = [set(clauses.token[a:b].tolist()) for a, b in pairwise(starts)]
    for piece, (west, south, east, north) in enumerate(pieces.box.tolist()):
        box = clauses.box
        meets = (box[:, 0] <= east) & (box[:, 2] >= west)
        meets &= (box[:, 1] <= north) & (box[:, 3] >= south)
        text = pieces.token[pieces.token_start[piece] : pieces.token_start[piece + 1]].tolist()
        for clause in np.flatnonzero(meets).tolist():
            if wanted[clause] <= set(text):
                found.add((int(message_of[piece]), int(clauses.row[clause])))
    return found


def scan(ranked: Ranked, messages: Messages) -> Matches:
    return indexes.create("scan").build(ranked).match(messages)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RANKED_CASES)
def test_every_match_has_a_clause(name: str, kind: str) -> None:
    for seed, scoring in enumerate(SCORINGS):
        case = draw_ranked(name, kind, scoring, seed)
        clauses = routing_clauses(case.ranked, Vocabulary())
        assert clauses.subscriptions == len(case.ranked)
        assert (np.diff(clauses.row) >= 0).all()
        assert (clauses.box[:, 0] <= clauses.box[:, 2]).all()
        matched = scan(case.ranked, case.messages).pairs()
        missing = matched - reached(clauses, case.messages)
        assert not missing, f"{scoring}: {min(missing)} of {len(matched)}"


def test_boolean_rows_among_ranked_ones_keep_their_clauses() -> None:
    clauses = Clauses.of(
        [[1], [2], [3], [3]],
        [[0, 0, 9, 9], [0, 0, 0, 0], [5, 5, 6, 6], [7, 7, 8, 8]],
        row=[0, 1, 2, 2],
    )
    by_distance = Rankings.of("proximity", 1, p=1.0, q=1.0, max_distance_m=10.0)
    rankings = Rankings.concatenate([Rankings.boolean(1), by_distance, Rankings.boolean(1)])
    ranked = Ranked(
        clauses=clauses, rankings=rankings, weight=np.ones(4), unknown_weight=1.0, scoring=Scoring()
    )
    routed = routing_clauses(ranked, Vocabulary())
    assert routed.row.tolist() == [0, 1, 2, 2]
    assert routed.token.tolist() == [1, 2, 3, 3]
    assert np.array_equal(routed.box[[0, 2, 3]], clauses.box[[0, 2, 3]])
    assert routing_clauses(clauses, Vocabulary()) is clauses


def test_few_clauses_are_made() -> None:
    """Text alone, place alone, either, and neither."""

    def made(p: float, q: float, tokens: list[int]) -> list[list[int]]:
        one = Ranked.of(
            [tokens],
            [[0, 0]],
            kind="proximity",
            p=p,
            q=q,
            max_distance_m=100.0,
            weight=[3, 2, 1, 1],
        )
        clauses = routing_clauses(one, Vocabulary())
        ends = clauses.token_start.tolist()
        return [clauses.token[a:b].tolist() for a, b in pairwise(ends)]

    assert made(1.0, 1.0, [0, 1, 2]) == [[0]], "all of them, so also the heaviest"
    assert made(1.0, 0.5, [0, 1, 2]) == [[1], [0]], "3 of 6, without the heaviest 2 + 1"
    assert made(0.0, 0.5, [0, 1, 2]) == [[]], "the place alone"
    assert sorted(made(0.5, 0.5, [0, 1, 2])) == [[], [0], [1], [2]]
    assert made(0.5, 0.0, [0, 1, 2]) == [[]], "everything"
    assert made(1.0, 1.0, []) == [[]], "it asks for nothing"
