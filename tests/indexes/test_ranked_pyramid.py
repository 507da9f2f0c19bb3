"""What is special about the ranked-pyramid: its reduction, sole entries, pruning, its arrays."""

from __future__ import annotations

import os
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_crafted_arrays import crafted

from nearcast import indexes
from nearcast.columns import UNITS, WORLD, Messages, Ranked, Scoring
from nearcast.compiled.jit import JIT
from nearcast.compiled.scoring import ScoringCodes, reach_m, text_bound
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.datasets.workloads import Workload
from nearcast.errors import StorageError
from nearcast.indexes.ranked import RankedLinear, ranked_columns
from nearcast.indexes.ranked_pyramid import RankedPyramid, RankedPyramidOptions
from nearcast.indexes.ranked_pyramid.entries import (
    Reduction,
    cap_box,
    is_sole,
    new_row_entries,
    reduce_row,
)
from nearcast.indexes.ranked_pyramid.index import special_rows
from nearcast.indexes.ranked_pyramid.layout import (
    ALONE,
    ALWAYS,
    MAX_TOKENS,
    NO_POSITION,
    RECORD_FIELDS,
    WITH_OTHERS,
    area_code,
    token_hash,
    weight_code,
)
from nearcast.indexes.ranked_pyramid.score import CANDIDATES
from nearcast.indexes.ranked_pyramid.tokens import (
    PROBES,
    Weighing,
    clear_table,
    fill_table,
    find_token,
    new_token_table,
)
from nearcast.model.circles import cap_boxes
from nearcast.testing.ranked_cases import SCORINGS, draw_ranked
from nearcast.testing.ranked_checks import assert_same_scores

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
DISTANCE_M = 1000.0
TRIES = 400 if JIT else 40


class Entry(NamedTuple):
    """An entry, unpacked."""

    token: int | None
    reach: float
    flags: int
    hashes: tuple[int, int]


def reduction_of(ranked: Ranked) -> Reduction:
    """Return what `reduce_row` takes."""
    special, chosen = np.full(len(ranked), -1, np.int32), special_rows(ranked)
    special[chosen] = np.arange(len(chosen))
    codes = ScoringCodes(*ranked.scoring.codes, int(ranked.kind == "proximity"))
    return Reduction(codes, ranked_columns(ranked), special)


def entries_of(ranked: Ranked, row: int = 0) -> list[Entry]:
    """Return the entries of a subscription; the token is a position, None if none is needed."""
    reduction = reduction_of(ranked)
    found = new_row_entries(int(np.diff(reduction.rows.token_start).max()))
    entries = []
    for i in range(reduce_row(reduction, row, found)):
        position, upper = int(found.position[i]), int(found.upper[i])
        assert (upper & 7) == (NO_POSITION if position < 0 else position)
        hashes = ((upper >> 8) & 4095, upper >> 20)
        token = None if position < 0 else position
        entries.append(Entry(token, float(found.reach[i]), (upper >> 4) & 15, hashes))
    return entries


def accepts(entry: Entry, shared: set[int]) -> bool:
    """Whether an entry is accepted if a message shares the tokens at these positions."""
    if entry.flags & ALWAYS:
        return True
    if entry.token is None:
        return not shared
    if not shared or min(shared) != entry.token:
        return False
    return bool(entry.flags & (WITH_OTHERS if len(shared) > 1 else ALONE))


def proximity(tokens: list[list[int]], p: Any, q: Any, weight: Any = (), **more: Any) -> Ranked:
    """Return subscriptions at the middle of the map, with a distance of a kilometer."""
    place = np.zeros((len(tokens), 2), np.int32)
    more = {"max_distance_m": DISTANCE_M, **more}
    return Ranked.of(tokens, place, kind="proximity", p=p, q=q, weight=weight, **more)


def assert_agrees(ranked: Ranked, messages: Messages, **options: Any) -> None:
    """Compare the matches with those of scoring every subscription."""
    got = indexes.create("ranked-pyramid", **options).build(ranked).match(messages)
    assert_same_scores("", messages, got, RankedLinear.build(ranked).match(messages))


# --- the reduction -------------------------------------------------------------------------------

STAMP = [
    # tokens, delta, tau, and the least S with which each first token can match (None: no token)
    ([4, 2], 0.7, 0.8, {4: 1 / 3}),
    ([4, 3, 2], 0.5, 0.8, {4: 0.6}),
    ([4, 3, 1], 0.5, 0.7, {4: 0.4, 3: 0.9}),
    ([5, 4, 1], 0.6, 0.75, {5: 0.375}),
    ([5, 2, 1], 0.5, 0.6, {5: 0.2, 2: 0.825}),
    ([3, 2, 1], 0.5, 0.6, {3: 0.2, 2: 0.7}),
    ([3, 2, 1], 0.2, 0.7, {3: 0.625, 2: 0.75, 1: 0.8 + 1 / 30, None: 0.875}),
    ([5, 4, 1], 0.6, 0.7, {5: 0.25, 4: 1.0}),
    ([5, 4, 2], 0.7, 0.7, {5: 0.0}),
    ([4, 2, 1], 0.5, 0.8, {4: 0.6}),
    ([5, 3], 0.5, 0.8, {5: 0.6}),
]
"""The running example of the stamp paper (ICDE 2015): token t weighs t / 10."""


@pytest.mark.parametrize(("tokens", "delta", "tau", "expected"), STAMP)
def test_entries_of_the_papers_example(
    tokens: list[int], delta: float, tau: float, expected: dict[int | None, float]
) -> None:
    ranked = proximity([tokens], delta, tau, weight=np.arange(6) / 10)
    reach: dict[int | None, float] = {}
    for entry in entries_of(ranked):
        token = None if entry.token is None else tokens[entry.token]
        reach[token] = max(entry.reach, reach.get(token, 0.0))
    assert reach.keys() == expected.keys()
    for token, least in expected.items():
        wanted = np.inf if least == 0.0 else DISTANCE_M * (1.0 - least)
        assert reach[token] == pytest.approx(wanted, abs=1e-2)


@pytest.mark.parametrize("kind", ["proximity", "overlap"])
@pytest.mark.parametrize("scoring", SCORINGS[:5], ids=lambda scoring: scoring.similarity)
def test_exactly_one_entry_accepts(kind: str, scoring: Scoring) -> None:
    """Of every set of shared tokens with which a match is possible, one entry is accepted.

    That entry reaches as far as such a match can be. No set is accepted twice.
    """
    ranked = draw_ranked("crowd", kind, scoring, SEED).ranked
    columns, checked = ranked_columns(ranked), 0
    for row in range(0, len(ranked), 5):
        entries = entries_of(ranked, row)
        p, q = columns.text_share[row] / 1e9, columns.threshold[row] / 1e9
        begin, end = columns.token_start[row : row + 2].tolist()
        weights = columns.token_weight[begin:end]
        for size in range(end - begin + 1):
            for chosen in combinations(range(end - begin), size):
                accepted = [entry for entry in entries if accepts(entry, set(chosen))]
                shared = float(weights[list(chosen)].sum())
                text = text_bound(ranked.scoring.codes[0], shared, columns.text_weight[row])
                distance = columns.max_distance_cm[row] / 100 if kind == "proximity" else 1.0
                reach = reach_m(p, q, distance, text)
                assert len(accepted) <= 1
                if reach >= 0.0:
                    assert accepted[0].reach >= reach
                    checked += 1
    assert checked > 100


def test_needs_hash_the_tokens_one_of_which_must_occur() -> None:
    """Neither token is enough alone, so the second one is needed in the list of the first."""
    ranked = proximity([[1, 2]], p=1.0, q=0.9, weight=[0, 6, 5])
    (entry,) = entries_of(ranked)
    assert entry.token == 0
    assert entry.flags == WITH_OTHERS
    assert entry.hashes == (int(token_hash(2)), int(token_hash(2)))
    index = indexes.create("ranked-pyramid").build(ranked)
    alone = index.match(Messages.of([[1], [2]], [[0, 0], [0, 0]]))
    assert (len(alone), alone.examined) == (0, 0)
    both = index.match(Messages.of([[1, 2]], [[0, 0]]))
    assert (len(both), both.examined) == (1, 1)


def test_split_gives_a_token_alone_a_shorter_reach() -> None:
    weight, distance_m = [0, 6, 4], 1_000_000.0
    ranked = proximity([[1, 2]], p=0.5, q=0.7, weight=weight, max_distance_m=distance_m)
    with_another, alone, _ = entries_of(ranked)
    assert (with_another.flags, alone.flags) == (WITH_OTHERS, ALONE)
    assert with_another.reach == pytest.approx(600_000)
    assert alone.reach == pytest.approx(200_000)
    index = indexes.create("ranked-pyramid").build(ranked)
    half_way = round(400_000 / 0.01112)
    near = index.match(Messages.of([[1], [1, 2]], [[half_way, 0], [half_way, 0]]))
    assert near.pairs() == {(1, 0)}
    assert near.examined == 1


def test_merge_leaves_one_entry_if_tokens_hardly_matter() -> None:
    (merged,) = entries_of(proximity([[1, 2, 3]], p=0.01, q=0.5))
    assert merged.token is None
    assert merged.flags == ALWAYS
    assert merged.reach == pytest.approx(DISTANCE_M * (1 - 0.49 / 0.99), abs=1e-2)
    kept = entries_of(proximity([[1, 2, 3]], p=0.4, q=0.5))
    assert {entry.token for entry in kept} == {0, 1, 2, None}


def test_limits_refuse_messages_that_are_too_long() -> None:
    """All of the subscription's two tokens, but among ten others: jaccard is 1 / 6 at most."""
    ranked = proximity([[1, 2]], p=1.0, q=0.5, scoring=Scoring("overlap"))
    ranked = Ranked(
        clauses=ranked.clauses,
        rankings=ranked.rankings,
        weight=np.ones(20),
        unknown_weight=1.0,
        scoring=Scoring("jaccard"),
    )
    index = indexes.create("ranked-pyramid").build(ranked)
    texts = [[1, 2, 3, 4], [1, 2, *range(3, 13)]]
    got = index.match(ranked.weigh(Messages.of(texts, [[0, 0], [0, 0]])))
    assert got.pairs() == {(0, 0)}
    assert got.examined == 1


def test_regions_refuse_messages_that_are_too_small() -> None:
    """A tenth of the region must be covered: a message of a hundredth of it is not examined."""
    region, tenth, hundredth = (np.array([[0, 0, side, 1000]]) for side in (1000, 100, 10))
    ranked = Ranked.of([[1]], region, kind="overlap", p=0.5, q=0.55)
    index = indexes.create("ranked-pyramid").build(ranked)
    messages = Messages.of([[1, 2]] * 3, np.concatenate([tenth, hundredth, [[5, 5, 5, 5]]]))
    got = index.match(messages)
    assert got.pairs() == {(0, 0), (2, 0)}
    assert got.examined == 2


def test_codes_never_fall() -> None:
    rng = np.random.default_rng(SEED)
    for code, most in ((weight_code, 8), (area_code, 18.8)):
        values = np.sort(10 ** rng.uniform(-3, most, 2000))
        codes = [int(code(value)) for value in values]
        assert codes == sorted(codes)
        assert codes[0] >= 0
        assert codes[-1] <= 4095
        assert len(set(codes)) > 500


def test_rare_tokens_come_first_if_all_weigh_the_same() -> None:
    """Token 1 is in every subscription; a message with it alone has nobody to look at."""
    tokens = [[1, 2 + i] for i in range(50)]
    ranked = proximity(tokens, p=1.0, q=0.9, scoring=Scoring("overlap"))
    index = indexes.create("ranked-pyramid").build(ranked)
    got = index.match(Messages.of([[1], [1, 7]], [[0, 0], [0, 0]]))
    assert got.pairs() == {(1, 5)}
    assert (got.examined, got.visited) == (1, 1)


# --- boxes ---------------------------------------------------------------------------------------


def test_caps_are_those_of_circles() -> None:
    rng = np.random.default_rng(SEED)
    box = np.empty((2, 4), np.int32)
    for _ in range(500):
        lon, lat = rng.integers(WORLD[:2], WORLD[2:]).tolist()
        if rng.random() < 0.3:
            lon, lat = rng.choice([WORLD[0], WORLD[2] - 5]), rng.choice([WORLD[1], WORLD[3] - 7])
        radius_m = float(10 ** rng.uniform(-2, 7.4))
        count = cap_box(False, float(lon), float(lat), radius_m, box)
        expected = cap_boxes(lon, lat, radius_m)
        if expected == [WORLD]:
            assert count == 0
            continue
        assert np.abs(box[:count].astype(np.int64) - expected).max() <= 1


def test_flat_caps_go_round_the_world_at_most_once() -> None:
    box, meters = np.empty((2, 4), np.int32), 111_195.08
    assert cap_box(True, 0.0, 0.0, 10 * meters, box) == 1
    assert np.abs(box[0] - np.array([-10, -10, 10, 10]) * UNITS).max() < 10
    assert cap_box(True, 175.0 * UNITS, 0.0, 10 * meters, box) == 2
    assert box[0, 2] == WORLD[2]
    assert box[1, 0] == WORLD[0]
    assert cap_box(True, 175.0 * UNITS, 0.0, 200 * meters, box) == 0
    assert cap_box(True, 0.0, 90.0 * UNITS, 179 * meters, box) == 1
    assert np.abs(box[0] - np.array([WORLD[0], -89 * UNITS, WORLD[2], WORLD[3]])).max() < 10


# --- sole entries --------------------------------------------------------------------------------


def test_a_sole_entry_has_no_record_and_matches_anywhere() -> None:
    ranked = proximity([[1]], p=0.8, q=0.7)
    reduction, found = reduction_of(ranked), new_row_entries(1)
    assert is_sole(reduction, 0, reduce_row(reduction, 0, found), found)
    index = indexes.create("ranked-pyramid").build(ranked)
    assert (len(index.arrays()["record"]), len(index.arrays()["sole"])) == (0, 4)
    places = [[900_000_000, 0], [0, 0], [0, 89_000]]
    matches = index.match(Messages.of([[1]] * 3, places))
    assert matches.pairs() == {(0, 0), (1, 0), (2, 0)}
    assert matches.score is not None
    assert matches.score.tolist() == [0.8, 1.0, pytest.approx(0.8 + 0.2 * 0.0104, abs=1e-3)]
    assert matches.examined == 3


def test_what_needs_more_than_its_token_is_no_sole_entry() -> None:
    for ranked in (
        proximity([[1]], p=0.6, q=0.7),
        proximity([[1, 2]], p=0.8, q=0.7),
        proximity([[1]], p=0.8, q=0.7, scoring=Scoring("dice")),
    ):
        assert len(indexes.create("ranked-pyramid").build(ranked).arrays()["sole"]) == 0


@pytest.mark.parametrize("max_distance_m", [1000.0, 40_000_000.0])
def test_more_sole_entries_and_candidates_than_fit_at_a_time(max_distance_m: float) -> None:
    rng = np.random.default_rng(SEED)
    count = 3 * CANDIDATES + 7
    place = rng.integers(-90_000, 90_000, (count, 2))
    tokens = [[1] if i % 2 else [1, 2] for i in range(count)]
    ranked = Ranked.of(
        tokens,
        place,
        kind="proximity",
        p=rng.uniform(0.7, 1, count),
        q=0.6,
        weight=[0, 5, 0.1],
        max_distance_m=max_distance_m,
    )
    messages = Messages.of([[1], [2], [1, 2]], [[0, 0], [0, 0], [900_000_000, 0]])
    assert_agrees(ranked, messages)
    assert_agrees(ranked, messages, list_size=3)


# --- subscriptions that do not fit a record ------------------------------------------------------


def test_many_tokens_are_scored_by_their_columns() -> None:
    few, many = list(range(MAX_TOKENS)), list(range(MAX_TOKENS + 5))
    short, long = proximity([few], p=0.9, q=0.3), proximity([few, many], p=0.9, q=0.3)
    small, large = (indexes.create("ranked-pyramid").build(each) for each in (short, long))
    assert small.nbytes == sum(array.nbytes for array in small.arrays().values())
    assert large.nbytes > sum(array.nbytes for array in large.arrays().values())
    texts = [[0], [11], [3, 4, 5, 6], list(range(20)), []]
    assert_agrees(long, Messages.of(texts, np.zeros((5, 2))))


def test_longer_messages_probe_and_give_the_same() -> None:
    rng = np.random.default_rng(SEED)
    weight = rng.uniform(0.1, 3, 400)
    tokens = [rng.choice(400, 5, replace=False).tolist() for _ in range(300)]
    ranked = proximity(tokens, p=0.9, q=0.5, weight=weight)
    texts = [rng.choice(400, size, replace=False).tolist() for size in (30, 64, 65, 300)]
    assert_agrees(ranked, Messages.of(texts, np.zeros((4, 2))))


def test_a_message_may_have_the_token_that_stands_for_none() -> None:
    ranked = proximity([[], [1]], p=0.3, q=0.6)
    messages = Messages.of([[1, int(NO_TOKEN)], [int(NO_TOKEN)]], [[0, 0], [0, 0]])
    assert_agrees(ranked, messages)


def test_the_table_of_tokens_has_no_clashes_for_short_messages() -> None:
    rng = np.random.default_rng(SEED)
    table = new_token_table(1000)
    weighing = Weighing(np.arange(500) / 7, 9.5, 1)
    for size in (0, 1, 12, 41, 64, 65, 1000):
        tokens = np.sort(rng.choice(100_000, size, replace=False)).astype(np.int32)
        fill_table(table, tokens, weighing)
        assert bool(table.setting[PROBES]) == (size > 64)
        for token in tokens.tolist():
            at = int(find_token(table, token))
            assert table.token[at] == token
            assert table.weight[at] == (token / 7 if token < 500 else 9.5)
        clear_table(table, tokens)
        assert (table.token < 0).all()
        assert not table.token_filter[1:].any()


# --- pruning -------------------------------------------------------------------------------------


@pytest.mark.skipif(not JIT, reason="takes long as plain Python")
@pytest.mark.parametrize(
    ("dataset", "kind", "similarity", "tokens", "range_share", "most"),
    [
        ("tweets", "proximity", "containment", (6, 18), 0.0, 1.4),
        ("tweets", "proximity", "containment", (35, 47), 0.0, 1.4),
        ("tweets", "proximity", "overlap", (6, 18), 0.0, 1.4),
        ("tweets", "proximity", "jaccard", (6, 18), 0.0, 2.0),
        ("tweets", "proximity", "dice", (6, 18), 0.0, 3.5),
        ("tweets", "proximity", "cosine", (35, 47), 0.0, 3.5),
        ("tweets", "overlap", "containment", (6, 18), 0.0001, 1.5),
        ("places", "proximity", "containment", (6, 18), 0.0, 1.2),
        ("places", "overlap", "containment", (6, 18), 0.0, 1.2),
    ],
)
def test_it_examines_few_more_than_match(
    dataset: str,
    kind: str,
    similarity: str,
    tokens: tuple[int, int],
    range_share: float,
    most: float,
) -> None:
    workload = Workload(dataset, seed=5)
    ranked = workload.ranked(20_000, kind, scoring=Scoring(similarity))
    messages = workload.messages(100, tokens=tokens, range_share=range_share)
    matches = indexes.create("ranked-pyramid").build(ranked).match(ranked.weigh(messages))
    assert len(matches) <= matches.examined < most * len(matches)


def test_records_of_sole_entries_are_not_kept() -> None:
    ranked = Workload("tweets", seed=5).ranked(2_000)
    arrays = indexes.create("ranked-pyramid").build(ranked).arrays()
    records, soles = len(arrays["record"]) // RECORD_FIELDS, len(arrays["sole"]) // 4
    assert records + soles == len(ranked)
    assert soles > 0.03 * len(ranked)


# --- crafted arrays ------------------------------------------------------------------------------


@pytest.mark.parametrize("list_size", [2, 32])
@pytest.mark.parametrize("kind", ["proximity", "overlap"])
def test_crafted_arrays_are_refused_or_harmless(kind: str, list_size: int) -> None:
    rng = np.random.default_rng(SEED)
    case = draw_ranked("crowd", kind, SCORINGS[0], SEED)
    options = RankedPyramidOptions(list_size)
    index = RankedPyramid.build(case.ranked, options)
    arrays, refused = dict(index.arrays()), 0
    for _ in range(TRIES):
        name = sorted(arrays)[int(rng.integers(len(arrays)))]
        changed = arrays | {name: crafted(arrays[name], rng)}
        try:
            loaded = RankedPyramid.from_arrays(case.ranked, options, changed)
            loaded.check_structure()
        except StorageError:
            refused += 1
            continue
        loaded.match(case.messages)
    assert refused


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("slot", "slot has no free slot"),
        ("record", "record has a row outside"),
        ("pyramid", "pyramid must hold each"),
        ("header", "header has 0 boxes per block"),
        ("part_sizes", "part_sizes do not fit"),
    ],
)
def test_damaged_arrays_are_named(name: str, problem: str) -> None:
    case = draw_ranked("crowd", seed=SEED)
    index = RankedPyramid.build(case.ranked, RankedPyramidOptions())
    index.check_structure()
    value = 1 if name == "slot" else -1 if name == "record" else 0
    changed = dict(index.arrays()) | {name: np.full_like(index.arrays()[name], value)}
    damaged = RankedPyramid.from_arrays(case.ranked, index.options, changed)
    with pytest.raises(StorageError, match=problem):
        damaged.check_structure()
