"""``stamp``: the paper's running example, what each filter removes, and changes in place."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from test_crafted_arrays import crafted

from effort import examples
from nearcast import indexes
from nearcast.columns import KINDS, UNITS, Messages, Ranked, Scoring
from nearcast.compiled.distances import METERS_PER_UNIT
from nearcast.compiled.jit import JIT
from nearcast.compiled.scoring import ScoringCodes
from nearcast.datasets import Workload
from nearcast.errors import InvalidInput, StorageError, UnknownId, UnknownName
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.ranked import ranked_columns
from nearcast.indexes.ranked_scan import RankedScan
from nearcast.indexes.stamp import Stamp
from nearcast.indexes.stamp import index as stamp_index
from nearcast.indexes.stamp.bounds import border_distance_m, box_gap_m, make_plan, plan_postings
from nearcast.indexes.stamp.build import is_marked
from nearcast.indexes.stamp.index import FILTERS, StampOptions
from nearcast.indexes.stamp.layout import (
    DUMMY,
    FIRST_CHILD,
    NEXT,
    POSTING_RECORD,
    REACH,
    REGION,
    REGIONS,
    ROW,
    SET_BITS,
    SLOT_COUNT,
    SLOT_START,
    as_float,
    find_token,
    float_bits,
)
from nearcast.testing.ranked_cases import SCORINGS, draw_ranked
from nearcast.testing.ranked_checks import assert_same_scores

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
EXAMPLES = (120 if SEED else 20) if JIT else 4
STEPS = 20 if JIT else 6
ALL = list(FILTERS)

# --- the running example -------------------------------------------------------------------------

D = 100_000.0
WEIGHT = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
PLANAR = Scoring("containment", "planar")
CODES = ScoringCodes(*PLANAR.codes, 1)

EXAMPLE: list[tuple[list[int], float, float, float, dict[int, float], dict[int, float]]] = [
    # tokens, delta, tau, spatial similarity, SIG and SIG1 with the least spatial similarity (LSB)
    ([4, 2], 0.7, 0.8, 0.6, {4: 0.333}, {2: 0.333}),
    ([4, 3, 2], 0.5, 0.8, 0.7, {4: 0.6}, {3: 0.6, 2: 0.933}),
    ([4, 3, 1], 0.5, 0.7, 0.6, {4: 0.4, 3: 0.9}, {1: 0.775}),
    ([5, 4, 1], 0.6, 0.75, 0.6, {5: 0.375}, {4: 0.375, 1: 0.975}),
    ([5, 2, 1], 0.5, 0.6, 0.55, {5: 0.2, 2: 0.825}, {1: 0.45}),
    ([3, 2, 1], 0.5, 0.6, 0.55, {3: 0.2, 2: 0.7}, {1: 0.533}),
    ([3, 2, 1], 0.2, 0.7, 0.4, {3: 0.625, 2: 0.75, 1: 0.833, int(DUMMY): 0.875}, {}),
    ([5, 4, 1], 0.6, 0.7, 0.3, {5: 0.25, 4: 1.0}, {1: 0.85}),
    ([5, 4, 2], 0.7, 0.7, 0.4, {5: 0.0}, {4: 0.0, 2: 0.848}),
    ([4, 2, 1], 0.5, 0.8, 0.3, {4: 0.6}, {2: 0.6, 1: 0.886}),
    ([5, 3], 0.5, 0.8, 0.4, {5: 0.6}, {3: 0.6}),
]
M1, M2 = [4, 2], [4, 3, 1]
SCORES = [
    (0.880, 0.647),
    (0.683, 0.739),
    (0.550, 0.800),
    (0.480, 0.540),
    (0.400, 0.338),
    (0.442, 0.608),
    (0.387, 0.453),
    (0.360, 0.420),
    (0.502, 0.375),
    (0.579, 0.507),
    (0.200, 0.388),
]


def units(meters: float) -> int:
    return round(meters / METERS_PER_UNIT)


def example(rows: Any = range(11), places: Any = None) -> Ranked:
    """The subscriptions of the example, due north and south of the messages by default."""
    chosen = [EXAMPLE[row] for row in rows]
    if places is None:
        places = [(0, (-1) ** row * units((1 - EXAMPLE[row][3]) * D)) for row in rows]
    return Ranked.of(
        [tokens for tokens, *_ in chosen],
        places,
        kind="proximity",
        p=[delta for _, delta, *_ in chosen],
        q=[tau for _, _, tau, *_ in chosen],
        max_distance_m=D,
        weight=WEIGHT,
        scoring=PLANAR,
    )


def example_messages() -> Messages:
    return Messages.of([M1, M2], [[0, 0], [0, 0]])


def least_similarity(bits: Any) -> float:
    """Return the similarity at a reach, as the paper has it instead of reaches."""
    return max(0.0, 1.0 - float(as_float(bits)) / D)


def test_signature_sets_of_the_example() -> None:
    rows, plan = ranked_columns(example()), make_plan(3)
    for row, (_, _, _, _, first, second) in enumerate(EXAMPLE):
        count = plan_postings(CODES, rows, row, 1, plan)
        expected = [(token, 0, lsb) for token, lsb in first.items()]
        expected += [(token, 1, lsb) for token, lsb in second.items()]
        order = lambda posting: (posting[1], -posting[0] if posting[0] != DUMMY else 0)  # noqa: E731
        found = [
            (
                int(plan.token[i]),
                int(plan.info[i]) & SET_BITS,
                least_similarity(float_bits(plan.reach[i])),
            )
            for i in range(count)
        ]
        for got, wanted in zip(sorted(found, key=order), sorted(expected, key=order), strict=True):
            assert got[:2] == wanted[:2]
            assert got[2] == pytest.approx(wanted[2], abs=1e-3)


def test_weights_and_scores_of_the_example() -> None:
    rows = ranked_columns(example())
    weights = [0.6, 0.9, 0.8, 1.0, 0.8, 0.6, 0.6, 1.0, 1.1, 0.7, 0.8]
    assert rows.text_weight.tolist() == pytest.approx(weights)
    scan, messages = RankedScan.build(example(), NoOptions()), example_messages()
    for row, scores in enumerate(SCORES):
        for message, score in enumerate(scores):
            assert scan.parts(messages, message, row).score == pytest.approx(score, abs=1e-3)


@pytest.mark.parametrize("filters", ALL)
@pytest.mark.parametrize("leaf", [1, 4, 11])
def test_answers_of_the_example(filters: str, leaf: int) -> None:
    index = Stamp.build(example(), StampOptions(filters, leaf))
    found = index.match(example_messages())
    assert found.pairs() == {(0, 0), (1, 2), (1, 5)}
    assert found.score is not None
    assert sorted(found.score.tolist()) == pytest.approx([0.608, 0.8, 0.88], abs=1e-3)


def test_marks_of_the_example() -> None:
    """Outside R6, s7 is at most .9 similar: t5 is marked, t4 is not. Likewise s5 in R1 and R4."""

    def marked(row: int, token: int, outside: float) -> bool:
        border = units((1 - outside) * D)
        box = np.array([-border, -3 * border, 2 * border, 3 * border], np.int32)
        lsb = EXAMPLE[row][4][token]
        reach = float_bits(np.float32((1 - lsb) * D * 1.0000002))
        return bool(is_marked(CODES, FILTERS["sp+rp+hi"], box, reach, (0, 0)))

    assert [marked(7, token, 0.9) for token in (5, 4)] == [True, False]
    assert [marked(5, token, 0.65) for token in (3, 2)] == [True, False]
    assert [marked(5, token, 0.75) for token in (3, 2)] == [True, True]
    assert marked(8, 5, 0.0), "LSB 0 reaches everywhere"


def entries_of(index: Stamp, token: int) -> dict[frozenset[int], float]:
    """Return the LSB of every leaf region that has a token, by the rows in its list."""
    arrays = index._arrays
    slot = arrays.slot[find_token(arrays.slot, token)]
    found = {}
    for at in range(slot[SLOT_START], slot[SLOT_START] + slot[SLOT_COUNT]):
        if arrays.entry[at, REGION] >= 0:
            region = arrays.entry[at, REGION]
            rows = arrays.record[arrays.leaf == region, ROW]
            found[frozenset(rows.tolist())] = least_similarity(arrays.entry[at, REACH])
    return found


def test_regions_of_the_example() -> None:
    """R6 = s7..s9 in the west, with s7 .9 similar to its border; R5 = s0..s3 in the east."""
    west, ten_km = -20 * UNITS, units(10_000)
    places = [(10 * UNITS + i, i * 1000) for i in range(4)]
    places += [(west, 0), (west - ten_km, -3 * ten_km), (west + 2 * ten_km, 3 * ten_km)]
    index = Stamp.build(example([0, 1, 2, 3, 7, 8, 9], places), StampOptions("sp+rp+hi", leaf=4))
    r5, r6 = frozenset({0, 1, 2, 3}), frozenset({4, 5, 6})
    t4, t5 = entries_of(index, 4), entries_of(index, 5)
    assert t4[r5] == pytest.approx(0.333, abs=1e-3)
    assert t4[r6] == pytest.approx(0.6, abs=1e-3)
    assert t5[r6] == 0.0


def test_costs_of_the_example() -> None:
    """In R5, m1 uses SIG1 (V 5, F 4) and m2 verifies (V 3, F 4.67)."""
    far, near = units(0.4 * D), units(0.3 * D)
    places = [(0, far), (0, -near), (far, 0), (-far, 0)]
    index = Stamp.build(example(range(4), places), StampOptions("cost"))
    told = index.explain(example_messages())
    assert told.verify_cost.tolist() == [5.0, 3.0]
    assert told.filter_cost.tolist() == pytest.approx([4.0, 4 + 4 / 6])
    assert told.sets.tolist() == [1, 0]
    assert told.matches.tolist() == [1, 1]
    # m1 reads t4 (s0, s1, s2), then t4 (s3) and t2 (s0, s1) of SIG1; only s0 is left to verify.
    assert told.accessed.tolist() == [6, 4]
    assert told.candidates.tolist() == [1, 3]
    assert "2 messages: 2 matches, 4 candidates, 10 postings read" in str(told)
    assert str(index.explain(Messages.of([], []))) == "no messages"


# --- what filters remove -------------------------------------------------------------------------


@cache
def tweets(distance: str = "geodesic") -> tuple[Ranked, Messages]:
    workload = Workload("tweets", seed=5)
    count = 4000 if JIT else 1500
    ranked = workload.ranked(
        count, max_distance_m=(20_000.0, 500_000.0), scoring=Scoring(distance=distance)
    )
    return ranked, workload.messages(60 if JIT else 6, tokens=(12, 41))


@pytest.mark.parametrize("distance", ["geodesic", "planar"])
@pytest.mark.parametrize("leaf", [30, 300])
def test_each_filter_only_removes(distance: str, leaf: int) -> None:
    ranked, messages = tweets(distance)
    told, answers = {}, {}
    for filters in ALL:
        index = Stamp.build(ranked, StampOptions(filters, leaf))
        told[filters] = index.explain(messages)
        answers[filters] = index.match(messages).pairs()
    assert len({frozenset(pairs) for pairs in answers.values()}) == 1
    sp, hi, rp = told["sp"], told["sp+hi"], told["sp+rp+hi"]
    assert (sp.candidates == hi.candidates).all()
    assert (hi.candidates == rp.candidates).all()
    assert (sp.accessed >= hi.accessed).all()
    assert (hi.accessed >= rp.accessed).all()
    assert sp.accessed.sum() > 2 * hi.accessed.sum()
    cost, all_sets = told["cost"], told["sp+rp+st+hi"]
    assert (rp.candidates >= cost.candidates).all()
    assert (cost.candidates >= all_sets.candidates).all()
    assert (all_sets.candidates >= all_sets.matches).all()
    assert all_sets.candidates.sum() < rp.candidates.sum()
    for explanation in told.values():
        assert (explanation.matches == sp.matches).all()


def test_examined_and_visited_are_bounded() -> None:
    ranked, messages = tweets()
    limits = {"sp+rp+hi": 1.5, "cost": 1.5, "sp+rp+st+hi": 1.1}
    for filters, most in limits.items():
        index = Stamp.build(ranked, StampOptions(filters, 100))
        found = index.match(messages)
        assert len(found) <= found.examined <= most * len(found) + 40
        assert found.visited <= len(messages) * int(index._arrays.state[REGIONS])
        if not JIT:
            continue
        told = index.explain(messages)
        assert int(told.candidates.sum()) == found.examined
        assert int(told.visited.sum()) == found.visited


def test_far_messages_open_no_region() -> None:
    """Where a match needs nearness, a message elsewhere opens nothing."""
    places = [[i * UNITS // 10, 0] for i in range(40)]
    ranked = Ranked.of([[1]] * 40, places, kind="proximity", p=0.5, q=0.9, max_distance_m=10_000.0)
    index = Stamp.build(ranked, StampOptions("sp+rp+hi", 4))
    near, far = Messages.of([[1]], [[0, 0]]), Messages.of([[1]], [[100 * UNITS, 0]])
    assert index.match(near).pairs() == {(0, 0)}
    assert index.match(far).visited == 0


# --- distances -----------------------------------------------------------------------------------


def test_distance_between_boxes_is_a_bound() -> None:
    """No two places of two boxes are closer than the distance between the boxes."""
    rng = np.random.default_rng(SEED)
    geodesic = ScoringCodes(0, 0, 1)
    for _ in range(40 if JIT else 10):
        lon = np.sort(rng.integers(-180, 180, 4)) * UNITS
        lat = np.sort(rng.integers(-90, 91, (2, 2)), axis=1) * UNITS
        one = np.array([lon[0], lat[0, 0], lon[1], lat[0, 1]], np.int32)
        other = np.array([lon[2], lat[1, 0], lon[3], lat[1, 1]], np.int32)
        apart = box_gap_m(one, other)
        for _ in range(20):
            x, y = (rng.integers(box[:2], box[2:] + 1) for box in (one, other))
            assert apart <= _distance_m(x, y) * (1 + 1e-12) + 1e-6
            inside = border_distance_m(geodesic, float(x[0]), float(x[1]), one)
            assert inside <= _distance_m(x, y) * (1 + 1e-12) + 1e-6


def _distance_m(one: Any, other: Any) -> float:
    scan = RankedScan.build(
        Ranked.of([[]], [one], kind="proximity", p=0.0, q=0.0, max_distance_m=42_949_672.95),
        NoOptions(),
    )
    return float(1 - scan.parts(Messages.of([[]], [other]), 0, 0).space) * 42_949_672.95


# --- options and errors --------------------------------------------------------------------------


def test_options_are_checked() -> None:
    with pytest.raises(UnknownName, match="filters 'st'"):
        StampOptions("st")
    with pytest.raises(InvalidInput, match="leaf: must be a whole number from 1 to"):
        StampOptions(leaf=0)
    ranked = Ranked.of([[1]], [[0, 0, 1, 1]], kind="overlap", p=0.5, q=0.5)
    with pytest.raises(InvalidInput, match="stamp takes proximity subscriptions"):
        Stamp.build(ranked, StampOptions())


def test_other_weights_are_refused() -> None:
    case = draw_ranked("near")
    index = Stamp.build(case.ranked, StampOptions())
    with pytest.raises(InvalidInput, match="weights and the scoring"):
        index.insert(replace(case.ranked, unknown_weight=2.0))
    with pytest.raises(InvalidInput, match="must be proximity"):
        index.insert(draw_ranked("near", "overlap").ranked)


# --- changes -------------------------------------------------------------------------------------


def test_structure_of_a_changed_index_is_sound() -> None:
    case = draw_ranked("crowd", seed=3)
    rows = np.arange(len(case.ranked))
    for filters in ("cost", "sp+rp+hi", "sp"):
        index = Stamp.build(case.ranked.take(rows[:10]), StampOptions(filters, 3))
        index.insert(case.ranked.take(rows[10:300]))
        index.delete(rows[50:200])
        index.check_structure()
        assert index.alive.sum() == 150
        copy = Stamp.from_arrays(index.ranked, index.options, index.arrays())
        copy.check_structure()
        got, expected = copy.match(case.messages), index.match(case.messages)
        assert_same_scores("copy", case.messages, got, expected)
        copy.insert(case.ranked.take(rows[300:310]))
        copy.check_structure()
        assert index.nbytes < copy.nbytes


def test_inserts_split_leaves_and_deletes_pack_them() -> None:
    case = draw_ranked("crowd", seed=1)
    rows = np.arange(len(case.ranked))
    index = Stamp.build(case.ranked.take(rows[:100]), StampOptions(leaf=10))
    before = int(index._arrays.state[REGIONS])
    index.insert(case.ranked.take(rows[100:200]))
    assert int(index._arrays.state[REGIONS]) > before
    leaf = index._arrays.leaf[: len(index.ranked)]
    assert np.bincount(leaf).max() <= 10
    index.delete(np.flatnonzero(np.isin(index._arrays.record[:200, ROW], rows[:100])))
    leaf = index._arrays.leaf[:200]
    kept = np.bincount(leaf[leaf >= 0], minlength=before)
    assert kept.sum() < 200, "no leaf was packed without its deleted members"
    index.check_structure()


def test_many_changes_build_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamp_index, "_MIN_CHANGES", 20)
    case = draw_ranked("crowd", seed=2)
    rows = np.arange(len(case.ranked))
    scan = indexes.create("scan").build(case.ranked)
    index = Stamp.build(case.ranked.take(rows[:30]), StampOptions("cost", 4))
    for first in range(30, 130, 10):
        index.insert(case.ranked.take(rows[first : first + 10]))
    index.delete(rows[:125])
    index.insert(case.ranked.take(rows[130:140]))
    index.check_structure()
    assert len(index._arrays.record) < 140, "records of deleted rows are gone"
    expected = {(m, row) for m, row in scan.match(case.messages).pairs() if 125 <= row < 140}
    assert index.match(case.messages).pairs() == expected


def test_unknown_rows_are_refused() -> None:
    index = Stamp.build(draw_ranked("near").ranked, StampOptions())
    index.delete(np.array([3]))
    for rows in ([3], [-1], [10_000], [4, 4]):
        with pytest.raises(UnknownId):
            index.delete(np.array(rows))


class Changes(RuleBasedStateMachine):
    """Inserts, deletes, copies and packing, against a scan of what should be there."""

    @initialize(
        filters=st.sampled_from(ALL),
        leaf=st.sampled_from([1, 2, 3, 8, 500]),
        scoring=st.sampled_from(SCORINGS),
        case=st.sampled_from(["crowd", "lattice", "conditions", "long_messages", "no_keywords"]),
        first=st.integers(0, 60),
        seed=st.integers(0, 1000),
    )
    def begin(
        self, filters: str, leaf: int, scoring: Scoring, case: str, first: int, seed: int
    ) -> None:
        drawn = draw_ranked(case, "proximity", scoring, seed)
        self.ranked = drawn.ranked
        self.messages = drawn.messages.take(np.arange(min(12, len(drawn.messages))))
        self.all = indexes.create("scan").build(self.ranked).match(self.messages)
        self.count = min(first, len(self.ranked))
        self.alive = set(range(self.count))
        rows = np.arange(self.count)
        self.index: Any = Stamp.build(self.ranked.take(rows), StampOptions(filters, leaf))

    @precondition(lambda self: self.count < len(self.ranked))
    @rule(count=st.integers(1, 40))
    def insert(self, count: int) -> None:
        last = min(self.count + count, len(self.ranked))
        self.index.insert(self.ranked.take(np.arange(self.count, last)))
        self.alive |= set(range(self.count, last))
        self.count = last

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        rows = data.draw(st.sets(st.sampled_from(sorted(self.alive)), max_size=30))
        self.index.delete(np.array(sorted(rows), np.int64))
        self.alive -= rows

    @precondition(lambda self: self.alive)
    @rule()
    def delete_half(self) -> None:
        rows = sorted(self.alive)[::2]
        self.index.delete(np.array(rows))
        self.alive -= set(rows)

    @rule()
    def copy(self) -> None:
        arrays = {name: array.copy() for name, array in self.index.arrays().items()}
        self.index = Stamp.from_arrays(self.index.ranked, self.index.options, arrays)

    @invariant()
    def agrees(self) -> None:
        self.index.check_structure()
        position = np.flatnonzero(np.isin(self.all.subscription, sorted(self.alive)))
        expected = self.all.keep(np.searchsorted(position, self.all.start), position)
        got = self.index.match(self.messages)
        if self.count:
            assert_same_scores("changes", self.messages, got, expected)
        else:
            assert len(got) == 0


def test_changes() -> None:
    run_state_machine_as_test(
        Changes,
        settings=settings(
            max_examples=examples(EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


# --- arrays from disk ----------------------------------------------------------------------------


@pytest.mark.parametrize("filters", ["sp", "sp+rp+hi", "cost"])
def test_crafted_arrays_are_refused_or_harmless(filters: str) -> None:
    rng = np.random.default_rng(SEED)
    case = draw_ranked("long_messages", seed=SEED)
    index = Stamp.build(case.ranked, StampOptions(filters, 5))
    index.delete(np.arange(10))
    arrays = dict(index.arrays())
    refused = 0
    for _ in range(400 if JIT else 40):
        name = sorted(arrays)[int(rng.integers(len(arrays)))]
        changed = arrays | {name: crafted(arrays[name], rng)}
        try:
            loaded = Stamp.from_arrays(case.ranked, index.options, changed)
            loaded.check_structure()
        except StorageError:
            refused += 1
            continue
        loaded.match(case.messages)
        loaded.insert(case.ranked.take(np.arange(40)))
        loaded.delete(np.flatnonzero(loaded.alive)[20:60])
        loaded.match(case.messages)
    assert refused


def test_entries_of_a_token_are_nested() -> None:
    """Common tokens have entries for inner regions, which say how many entries are below."""
    ranked, _ = tweets()
    index = Stamp.build(ranked, StampOptions("sp+rp+hi", 5))
    arrays = index._arrays
    inner = np.flatnonzero(arrays.entry[:, REGION] < 0)
    assert len(inner)
    assert (arrays.list[inner, NEXT] >= 3).all(), "an inner entry has two leaves below it"
    assert (arrays.region[~arrays.entry[inner, REGION], FIRST_CHILD] >= 0).all()
    assert (arrays.posting[:, POSTING_RECORD] < len(ranked)).all()
    assert KINDS[1] == index.ranked.kind
