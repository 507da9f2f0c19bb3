"""The papers' data sets beyond the workloads: boolean expressions, and words that drift."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from nearcast.benchmarks.paper import Boolean, Data, Drifting
from nearcast.benchmarks.paper.expressions import Expressions, draw_expressions, to_clauses
from nearcast.columns import Clauses
from nearcast.datasets.workloads import Workload


def evaluate(drawn: Expressions, number: int, present: set[int]) -> bool:
    """Evaluate a drawn expression."""
    first, last = drawn.token_start[number], drawn.token_start[number + 1]
    tokens = drawn.token[first:last].tolist()
    cut = int(drawn.left[number])
    left = (any if drawn.left_or[number] else all)(t in present for t in tokens[:cut])
    if cut == len(tokens):
        return left
    right = (any if drawn.right_or[number] else all)(t in present for t in tokens[cut:])
    return left or right if drawn.join_or[number] else left and right


def evaluate_clauses(clauses: Clauses, number: int, present: set[int]) -> bool:
    """Return whether a clause of a subscription has all its tokens present."""
    return any(
        set(clauses.token[clauses.token_start[c] : clauses.token_start[c + 1]].tolist()) <= present
        for c in np.flatnonzero(clauses.row == number)
    )


def test_clauses_are_equivalent_to_the_expression() -> None:
    rng = np.random.default_rng(3)
    tokens = [sorted(rng.choice(9, rng.integers(1, 8), replace=False)) for _ in range(200)]
    plain = Clauses.of(tokens, rng.integers(0, 9, (200, 2)).repeat(2, axis=1))
    drawn = draw_expressions(rng, plain)
    clauses = to_clauses(plain, drawn)
    assert clauses.subscriptions == 200
    assert np.array_equal(clauses.box, plain.box[clauses.row])
    for number in range(200):
        own = [int(token) for token in tokens[number]]
        for count in range(len(own) + 1):
            for chosen in combinations(own, count):
                present = set(chosen)
                said = evaluate_clauses(clauses, number, present)
                assert said == evaluate(drawn, number, present), (number, present)
    for c in range(len(clauses)):
        run = clauses.token[clauses.token_start[c] : clauses.token_start[c + 1]]
        assert len(run) > 0
        assert (np.diff(run) > 0).all()


def test_all_forms_of_expressions_are_drawn() -> None:
    plain = Workload("tweets", 1, keywords=(4, 4)).subscriptions(500)
    drawn = draw_expressions(np.random.default_rng(1), plain)
    forms = {
        (int(left), bool(a), bool(b), bool(c))
        for left, a, b, c in zip(
            drawn.left, drawn.left_or, drawn.right_or, drawn.join_or, strict=True
        )
    }
    assert len(forms) == 3 * 8
    assert not np.array_equal(drawn.token, plain.token)


def test_boolean_subscriptions_have_several_clauses() -> None:
    boolean = Data("tweets", {"keywords": (5, 5)}, Boolean)
    drawn = boolean.workload(7).subscriptions(1_000)
    assert drawn.subscriptions == 1_000
    assert 2_000 < len(drawn) < 5_000
    assert np.array_equal(drawn.token, boolean.workload(7).subscriptions(1_000).token)
    other = boolean.workload(7).subscriptions(1_000, first=1_000)
    assert not np.array_equal(drawn.token[:100], other.token[:100])


def test_drifting_subscriptions_are_the_same_in_another_order() -> None:
    plain = Data("tweets").workload(7).subscriptions(2_000)
    drifting = Data("tweets", workload_class=Drifting).workload(7).subscriptions(2_000)
    assert drifting.subscriptions == 2_000
    assert sorted(map(tuple, drifting.box.tolist())) == sorted(map(tuple, plain.box.tolist()))

    def shared(clauses: Clauses) -> float:
        """Return the share of the last tenth's tokens that occur in the first tenth."""
        early = clauses.take(np.arange(200)).token
        late = clauses.take(np.arange(1_800, 2_000)).token
        return float(np.isin(late, early).mean())

    assert shared(drifting) < 0.8 * shared(plain)


def test_unknown_parameters_of_a_data_set_are_rejected() -> None:
    with pytest.raises(ValueError, match="colour"):
        Data("tweets", {"colour": 1}).workload(0)
