"""Routers of random trees: a match always has a shard in common, and is reported once."""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast import indexes
from nearcast.columns import WORLD, Clauses, Matches, Messages, Scoring
from nearcast.compiled.jit import JIT
from nearcast.errors import InvalidInput, StorageError
from nearcast.segments import routing_clauses
from nearcast.spark.shards.router import UNKNOWN_RANKS, Router, Routes
from nearcast.spark.shards.shard_dedup import owned_matches, pack_shards
from nearcast.spark.shards.tree import EVERYWHERE, KEYWORDS, LEAF, SPACE
from nearcast.storage import read_arrays, write_arrays
from nearcast.testing import CASES, draw, strategies
from nearcast.testing.cases import LATITUDES, LONGITUDES
from nearcast.testing.ranked_cases import RANKED_CASES, SCORINGS, draw_ranked
from nearcast.text import Vocabulary

EXAMPLES = 60 if JIT else 15


@dataclass(frozen=True)
class Routing:
    """A router, a vocabulary, and clauses and messages with its token ids."""

    router: Router
    rank: np.ndarray[Any, np.dtype[np.int32]]
    clauses: Clauses
    messages: Messages

    def routes(self) -> tuple[list[set[int]], list[set[int]]]:
        of_rows = self.router.route_subscriptions(self.clauses, self.rank)
        of_messages = self.router.route_messages(self.messages, self.rank)
        return as_sets(of_rows), as_sets(of_messages)


def as_sets(routes: Routes) -> list[set[int]]:
    """Check that shards ascend and are distinct, and return them row by row."""
    found = []
    for begin, end in zip(routes.start[:-1], routes.start[1:], strict=True):
        shards = routes.shard[begin:end].tolist()
        assert shards == sorted(set(shards))
        found.append(set(shards))
    return found


def random_router(rng: np.random.Generator, words: list[str], shards: int, nodes: int) -> Router:
    """Draw a tree with splits at lattice lines and ranks, some beside them."""
    known = [w for w in words if rng.random() < 0.7]
    vocabulary = Vocabulary(rng.permutation(known).tolist() if known else [])
    ranks = np.concatenate([np.arange(0, UNKNOWN_RANKS, 100), UNKNOWN_RANKS + np.arange(12)])
    kind, first, offset, columns, rows, dummy = ([] for _ in range(6))  # type: ignore[var-annotated]
    splits: list[list[int]] = []
    regions: list[tuple[int, int, int, int]] = []
    queue: deque[tuple[tuple[int, int, int, int], int]] = deque([(WORLD, 0)])
    count = 1

    def cuts(lines: Any, low: int, high: int) -> list[int]:
        moved = np.unique(rng.choice(lines, rng.integers(0, 4)) + rng.integers(-1, 2))
        return [int(v) for v in moved if low < v <= high]

    while queue:
        region, least = queue.popleft()
        regions.append(region)
        chosen = rng.integers(0 if queue else 1, 3) if count < nodes else LEAF
        kind.append(chosen)
        dummy.append(int(chosen == KEYWORDS or (chosen == SPACE and rng.random() < 0.7)))
        if chosen == LEAF:
            for column, value in ((offset, 0), (columns, 0), (rows, 0)):
                column.append(value)
            first.append(EVERYWHERE if rng.random() < 0.2 else int(rng.integers(0, shards)))
            splits.append([])
            continue
        first.append(count)
        if chosen == KEYWORDS:
            across, up = cuts(ranks, 0, 2 * UNKNOWN_RANKS), []
            offset.append(least + int(rng.integers(0, 2)))
            children = [(region, offset[-1] + 1)] * (len(across) + 1)
        else:
            across = cuts(LONGITUDES, region[0], region[2])
            up = cuts(LATITUDES, region[1], region[3])
            offset.append(0)
            x, y = [region[0], *across, region[2] + 1], [region[1], *up, region[3] + 1]
            children = [
                ((x[i], y[j], x[i + 1] - 1, y[j + 1] - 1), least)
                for j in range(len(y) - 1)
                for i in range(len(x) - 1)
            ]
        children += [(region, least)] * dummy[-1]
        columns.append(len(across) + 1)
        rows.append(len(up) + 1)
        splits.append(across + up)
        queue.extend(children)
        count += len(children)
    return Router(
        np.array(kind),
        np.array(first),
        np.array(offset),
        np.array(columns),
        np.array(rows),
        np.array(dummy),
        np.cumsum([0, *map(len, splits)]),
        np.array([v for s in splits for v in s], np.int32),
        np.array(regions),
        shards,
        vocabulary,
    )


def routing(clauses: Clauses, messages: Messages, seed: int, shards: int, nodes: int) -> Routing:
    rng = np.random.default_rng(seed)
    ids, inverse = np.unique(np.concatenate([clauses.token, messages.token]), return_inverse=True)
    words = [f"w{i}" for i in ids]
    numbered = rng.permutation(len(ids))
    local = Vocabulary([words[i] for i in np.argsort(numbered)])
    token = numbered[inverse].astype(np.int32)
    own, theirs = np.split(token, [len(clauses.token)])
    router = random_router(rng, words, shards, nodes)
    return Routing(
        router,
        router.ranks(local),
        replace(clauses, token=own),
        replace(messages, token=theirs),
    )


def walk(routing: Routing, tokens: Any, box: Any, message: bool) -> set[int]:
    """Walk the tree by its definition, without the kernels."""
    router = routing.router
    west, south, east, north = box.tolist()

    def down(node: int, ranks: list[int]) -> set[int]:
        if router.kind[node] == LEAF:
            return {int(router.first[node])}
        split = router.split[router.split_start[node] : router.split_start[node + 1]]
        columns, rows = int(router.columns[node]), int(router.rows[node])
        last = router.first[node] + columns * rows
        reached: set[int] = set()
        if router.kind[node] == KEYWORDS:
            at = int(router.offset[node])
            if not message:
                if at >= len(ranks):
                    return down(last, ranks)
                return down(router.first[node] + int((split <= ranks[at]).sum()), ranks)
            for cut in range(columns):
                hits = [i for i, r in enumerate(ranks) if int((split <= r).sum()) == cut]
                if hits:
                    reached |= down(router.first[node] + cut, ranks[hits[0] + 1 :])
            return reached | down(last, ranks)
        region = router.region[node].tolist()
        covers = west <= region[0] and south <= region[1] and east >= region[2]
        if covers and north >= region[3] and not message and router.dummy[node]:
            return down(last, ranks)
        x = [region[0], *split[: columns - 1].tolist(), region[2] + 1]
        y = [region[1], *split[columns - 1 :].tolist(), region[3] + 1]
        for i in range(columns):
            for j in range(rows):
                if west < x[i + 1] and east >= x[i] and south < y[j + 1] and north >= y[j]:
                    reached |= down(router.first[node] + j * columns + i, ranks)
        return reached | (down(last, ranks) if message and router.dummy[node] else set())

    return down(0, sorted({int(routing.rank[t]) for t in tokens}))


def check_walk(routing: Routing) -> None:
    """Compare the kernel with the definition."""
    everything = set(range(routing.router.shards))
    of_rows, of_messages = routing.routes()
    clauses, messages = routing.clauses, routing.messages
    wanted: list[set[int]] = [set() for _ in range(clauses.subscriptions)]
    for c in range(len(clauses)):
        tokens = clauses.token[clauses.token_start[c] : clauses.token_start[c + 1]]
        wanted[clauses.row[c]] |= walk(routing, tokens, clauses.box[c], False)
    assert of_rows == [everything if EVERYWHERE in w else w for w in wanted]
    pieces, message_of = messages.cut()
    visited: list[set[int]] = [set() for _ in range(len(messages))]
    for p in range(len(pieces)):
        tokens = pieces.token[pieces.token_start[p] : pieces.token_start[p + 1]]
        visited[message_of[p]] |= walk(routing, tokens, pieces.box[p], True)
    for got, leaves in zip(of_messages, visited, strict=True):
        assert got == leaves - {EVERYWHERE} or (leaves == {EVERYWHERE} and len(got) == 1)


def check_pairs(routing: Routing) -> None:
    """Match every shard by the scan, keep what it owns: the scan over everything, once each."""
    wanted = indexes.create("scan").build(routing.clauses).match(routing.messages).pairs()
    of_rows, of_messages = routing.routes()
    assert all(of_messages), "a message visits at least one shard"
    for message, row in wanted:
        assert of_messages[message] & of_rows[row]
    shards = routing.router.shards
    row_bits = pack_shards(
        *routing.router.route_subscriptions(routing.clauses, routing.rank), shards
    )
    message_bits = pack_shards(
        *routing.router.route_messages(routing.messages, routing.rank), shards
    )
    found: list[tuple[int, int]] = []
    for shard in range(shards):
        rows = np.array([r for r, s in enumerate(of_rows) if shard in s], np.int64)
        visitors = np.array([m for m, s in enumerate(of_messages) if shard in s], np.int64)
        if not len(rows) or not len(visitors):
            continue
        index = indexes.create("scan").build(routing.clauses.take(rows))
        matches = index.match(routing.messages.take(visitors))
        kept = owned_matches(matches, row_bits[rows], message_bits[visitors], shard)
        found += [(int(visitors[m]), int(rows[r])) for m, r in kept.pairs()]
    assert len(found) == len(set(found))
    assert set(found) == wanted


@given(
    strategies.clauses(),
    strategies.messages(),
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 5, 70, 130]),
    st.integers(1, 60),
)
@settings(max_examples=examples(EXAMPLES), deadline=None)
def test_a_match_has_a_shard_in_common_and_is_reported_once(
    clauses: Clauses, messages: Messages, seed: int, shards: int, nodes: int
) -> None:
    check_pairs(routing(clauses, messages, seed, shards, nodes))


@given(strategies.clauses(), strategies.messages(), st.integers(0, 2**32), st.integers(1, 60))
@settings(max_examples=examples(EXAMPLES), deadline=None)
def test_the_kernels_walk_as_the_tree_says(
    clauses: Clauses, messages: Messages, seed: int, nodes: int
) -> None:
    check_walk(routing(clauses, messages, seed, 9, nodes))


@settings(max_examples=examples(40 if JIT else 8))
@given(
    name=st.sampled_from(sorted(RANKED_CASES)),
    kind=st.sampled_from(["proximity", "overlap"]),
    scoring=st.sampled_from(SCORINGS),
    seed=st.integers(0, 10**6),
    shards=st.sampled_from([2, 5, 70]),
)
def test_a_ranked_match_has_a_shard_in_common(
    name: str, kind: str, scoring: Scoring, seed: int, shards: int
) -> None:
    case = draw_ranked(name, kind, scoring, seed)
    clauses = routing_clauses(case.ranked, Vocabulary())
    of_rows, of_messages = routing(clauses, case.messages, seed, shards, 30).routes()
    for message, row in indexes.create("scan").build(case.ranked).match(case.messages).pairs():
        assert of_messages[message] & of_rows[row]


@pytest.mark.parametrize("name", CASES)
def test_every_case_of_the_checks(name: str) -> None:
    case = draw(name, seed=3)
    rows = np.arange(min(case.clauses.subscriptions, 150))
    check_pairs(routing(case.clauses.take(rows), case.messages, 5, 6, 80))


def test_unknown_tokens_share_ranks_below_the_known() -> None:
    known = Vocabulary(["latte", "mocha"])
    router = replace(Router.single(), vocabulary=known)
    local = Vocabulary(["mocha", *(f"word{i}" for i in range(5_000))])
    rank = router.ranks(local)
    assert rank[0] == UNKNOWN_RANKS + 1
    assert rank[1:].min() >= 0
    assert rank[1:].max() < UNKNOWN_RANKS
    assert len(np.unique(rank[1:])) > 950
    other = Vocabulary(["word7", "latte"])
    assert router.ranks(other).tolist() == [rank[local.id_of("word7")], UNKNOWN_RANKS]


def test_ranks_of_a_growing_vocabulary() -> None:
    router = replace(Router.single(), vocabulary=Vocabulary(["b", "c"]))
    local = Vocabulary(["a", "b"])
    first = router.ranks(local)
    assert router.ranks(local, first) is first
    local.add(["c", "d"])
    assert router.ranks(local, first).tolist() == router.ranks(local).tolist()
    assert router.ranks(Vocabulary()).tolist() == []


def test_nothing_to_route() -> None:
    router = Router.single()
    rank = router.ranks(Vocabulary())
    nothing = Messages.of([], np.empty((0, 2)))
    assert router.route_messages(nothing, rank).start.tolist() == [0]
    assert router.route_subscriptions(Clauses.empty(), rank).shard.tolist() == []


def test_routes_beyond_the_first_room() -> None:
    everywhere = replace(Router.single(), first=np.array([EVERYWHERE]), shards=300)
    clauses = Clauses.of([[]] * 40, [WORLD] * 40)
    routes = everywhere.route_subscriptions(clauses, everywhere.ranks(Vocabulary()))
    assert as_sets(routes) == [set(range(300))] * 40
    messages = Messages.of([[]] * 40, [[i, i] for i in range(0, 40_000, 1_000)])
    visited = as_sets(everywhere.route_messages(messages, everywhere.ranks(Vocabulary())))
    assert all(len(shards) == 1 for shards in visited)
    assert len(set.union(*visited)) > 10


def test_missing_ranks_are_named() -> None:
    router = Router.single()
    with pytest.raises(InvalidInput, match=r"every token, up to 3; .*got '1 ranks'"):
        router.route_messages(Messages.of([[3]], [[0, 0]]), router.ranks(Vocabulary(["a"])))


def test_stored_and_pickled(tmp_path: Any) -> None:
    case = draw("alternatives")
    made = routing(case.clauses, case.messages, 1, 70, 60)
    write_arrays(tmp_path / "router", "router", made.router.arrays(), {})
    stored = Router.from_arrays(read_arrays(tmp_path / "router", "router")[0])
    for again in (stored, pickle.loads(pickle.dumps(made.router))):
        assert again.shards == 70
        assert replace(made, router=again).routes() == made.routes()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("kind", lambda a: a + 3),
        ("kind", lambda a: a[:-1]),
        ("first", lambda a: a + 1),
        ("first", lambda a: a - 2),
        ("columns", lambda a: a + 1),
        ("rows", lambda a: a * 0),
        ("dummy", lambda a: a * 0),
        ("offset", lambda a: a - 9),
        ("split", lambda a: a * 0),
        ("split", lambda a: a[:-1]),
        ("split_start", lambda a: a[::-1]),
        ("region", lambda a: a[:-1]),
        ("shards", lambda a: a * 0 + 1),
    ],
)
def test_damaged_arrays_are_refused(name: str, change: Any) -> None:
    made = routing(draw("lattice").clauses, draw("lattice").messages, 1, 70, 60)
    arrays = made.router.arrays()
    assert len(made.router) > 20
    with pytest.raises(StorageError, match=r"router: node \d+ of \d+ is damaged"):
        Router.from_arrays({**arrays, name: change(arrays[name])})


def test_a_missing_array_is_named() -> None:
    arrays = Router.single().arrays()
    del arrays["split"]
    with pytest.raises(StorageError, match="'split' is missing"):
        Router.from_arrays(arrays)


def test_shards_as_bits() -> None:
    bits = pack_shards(np.array([0, 0, 3]), np.array([0, 63, 64]), 65)
    assert bits.tolist() == [[0, 0], [(1 << 63) | 1, 1]]
    with pytest.raises(InvalidInput, match="from 0 to 64"):
        pack_shards(np.array([0, 1]), np.array([65]), 65)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 64, 65, 200]))
@settings(max_examples=examples(EXAMPLES), deadline=None)
def test_the_lowest_shared_shard_owns(seed: int, shards: int) -> None:
    rng = np.random.default_rng(seed)
    sides = [
        [np.flatnonzero(rng.random(shards) < rng.random()) for _ in range(12)] for _ in range(2)
    ]
    rows, messages = (
        pack_shards(np.cumsum([0, *map(len, s)]), np.concatenate(s), shards) for s in sides
    )
    shard = int(rng.integers(0, shards))
    pairs = [
        (m, r)
        for m in range(12)
        for r in range(12)
        if shard in sides[0][r] and shard in sides[1][m]
    ]
    start = np.searchsorted([m for m, _ in pairs], np.arange(13))
    found = Matches(start, np.array([r for _, r in pairs], np.int32), 0)
    wanted = {
        (m, r)
        for m, r in pairs
        if min(set(sides[0][r].tolist()) & set(sides[1][m].tolist())) == shard
    }
    assert owned_matches(found, rows, messages, shard).pairs() == wanted
