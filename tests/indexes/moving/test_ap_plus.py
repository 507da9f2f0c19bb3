"""The ap+-trees: where clauses and messages must be, and the traps of the paper's description.

`check_tree` reads the arrays of an index as plain numbers and shares nothing with the kernels.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast.columns import Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.errors import InvalidInput, UnknownName
from nearcast.indexes import moving
from nearcast.indexes.ap_tree.ranks import slot_ranks, slot_tokens
from nearcast.indexes.moving.ap_plus import PRINTED, ApPlusOptions, ApPlusTree
from nearcast.indexes.moving.ap_plus.places import NEXT, NO_CELL, NODE, NTH
from nearcast.indexes.moving.entries import PLACE
from nearcast.indexes.moving.living import OWN, is_alive, is_range, tokens_of
from nearcast.indexes.moving.registry import MovingBuilder
from nearcast.testing.cases import draw
from nearcast.testing.moving_checks import Lockstep, random_events

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.moving.contract import MovingIndex

LEAF, KEYWORDS, SPACE = 0, 1, 2
NO_LIMIT = 1 << 16
TINY: dict[str, Any] = {"fanout": 4, "leaf": 2, "kl": 0.0, "share": 0.0}

Slot = tuple[int, int]
"""A slot as kernels name it: the base of its node (0 for the root's), and which child it is."""


class Plain:
    """The tree of an index as plain Python."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.arena: list[int] = index._tree.arena.tolist()
        self.bounds = index._tree.state[8:12].tolist()
        slot = index._ranks.slot
        used = slot != 0
        pairs = zip(slot_tokens(slot[used]).tolist(), slot_ranks(slot[used]).tolist(), strict=True)
        self.rank = dict(pairs)

    def link(self, slot: Slot) -> int:
        base, child = slot
        return base + self.arena[base + 7] + child if base else 0

    def below(self, slot: Slot) -> int:
        """Return the base of the node below a slot, 0 for none."""
        return 8 * self.arena[self.link(slot)]

    def kind(self, slot: Slot) -> int | None:
        base = self.below(slot)
        return self.arena[base] if base else None

    def parts(self, base: int) -> int:
        return self.arena[base + 1]

    def list_number(self, slot: Slot) -> int:
        base, _ = slot
        return self.arena[self.link(slot) + 3 * (self.parts(base) + 1) if base else 3]

    def cut(self, base: int, rank: int) -> int:
        high = self.arena[base + 16 : base + 16 + self.parts(base)]
        return sum(h < rank for h in high[:-1])

    def splits(self, base: int) -> tuple[list[int], list[int]]:
        columns = self.arena[base + 2]
        splits = self.arena[base + 16 : base + self.arena[base + 7]]
        return splits[: columns - 1], splits[columns - 1 :]

    def cells(self, base: int, box: list[int]) -> list[int]:
        x, y = self.splits(base)
        across = range(sum(s <= box[0] for s in x), sum(s <= box[2] for s in x) + 1)
        up = range(sum(s <= box[1] for s in y), sum(s <= box[3] for s in y) + 1)
        return [row * self.arena[base + 2] + column for row in up for column in across]

    def slots(self) -> list[Slot]:
        """Return all slots, the root's first."""
        found: list[Slot] = [(0, 0)]
        for slot in found:
            base = self.below(slot)
            if base and self.arena[base] != LEAF:
                found.extend((base, child) for child in range(self.parts(base) + 1))
        return found

    def kinds(self) -> Counter[int]:
        return Counter(kind for slot in self.slots() if (kind := self.kind(slot)) is not None)

    def entries(self, slot: Slot) -> dict[int, list[int]]:
        """Return the clauses of the leaf below a slot, and their boxes."""
        base = self.below(slot)
        if not base or self.arena[base] != LEAF:
            return {}
        size, capacity = self.arena[base + 1 : base + 3]
        clause = [self.arena[base + 8 + 5 * capacity + 2 * i + 1] for i in range(size)]
        assert len({*clause}) == size
        side = base + 8 + capacity
        return {
            c: [self.arena[side + capacity * j + i] for j in range(4)] for i, c in enumerate(clause)
        }

    def clause_slots(self, slot: Slot, ranks: list[int], box: list[int]) -> list[Slot]:
        """Return where a clause must be, at and below a slot."""
        base, kind = self.below(slot), self.kind(slot)
        if kind is None or kind == LEAF:
            return [slot]
        parts, offset = self.parts(base), self.arena[base + 3]
        if kind == KEYWORDS:
            chosen = [self.cut(base, ranks[offset]) if len(ranks) > offset else parts]
        else:
            region = self.arena[base + 8 : base + 12]
            covers = box[0] <= region[0] and box[1] <= region[1]
            covers = covers and box[2] >= region[2] and box[3] >= region[3]
            chosen = [parts] if covers else self.cells(base, box)
        return [end for child in chosen for end in self.clause_slots((base, child), ranks, box)]

    def message_children(
        self, slot: Slot, ranks: list[int], first: int, place: list[int]
    ) -> list[tuple[Slot, int]]:
        """Return where a message goes from a slot with an inner node, and what ranks are left."""
        base = self.below(slot)
        parts = self.parts(base)
        children = {parts: first}
        if self.arena[base] == KEYWORDS:
            for i in range(len(ranks) - 1, first - 1, -1):
                children[self.cut(base, ranks[i])] = i + 1
        else:
            children[self.cells(base, place * 2)[0]] = first
        return [((base, child), left) for child, left in children.items()]


def check_tree(index: Any) -> None:
    """Assert that all clauses and messages are where they must be, and nowhere else."""
    tree = Plain(index)
    slots = tree.slots()
    check_clauses(index, tree, slots)
    if index.lists_in_tree:
        check_messages(index, tree, slots)


def check_clauses(index: Any, tree: Plain, slots: list[Slot]) -> None:
    record, pool = index.entries.arrays
    expected: dict[Slot, dict[int, list[int]]] = defaultdict(dict)
    place_of: dict[int, set[Slot]] = {}
    for entry in np.flatnonzero(index._present.view).tolist():
        first = record[entry, 5]
        tokens = pool[first + 1 : first + 1 + pool[first]].tolist()
        ranks = sorted(tree.rank[token] for token in tokens)
        box = record[entry, :4].tolist()
        ends = tree.clause_slots((0, 0), ranks, box)
        place_of[entry] = {*ends}
        for end in ends:
            expected[end][entry] = box
    assert index._tree.state[2] == len(place_of) == index.entries.count
    clauses_below: dict[Slot, set[int]] = {}
    for slot in reversed(slots):
        found = tree.entries(slot)
        assert found == expected.get(slot, {})
        clauses_below[slot] = {*found}
        base = tree.below(slot)
        if tree.kind(slot) in (KEYWORDS, SPACE):
            children = range(tree.parts(base) + 1)
            clauses_below[slot] = set().union(*(clauses_below[base, child] for child in children))
            assert tree.arena[base + 4] == len(clauses_below[slot])
            counts = [len(clauses_below[base, child]) for child in children]
            at = base + tree.arena[base + 7] + len(counts)
            assert tree.arena[at : at + len(counts)] == counts
    if index.options.node_lists:
        check_places(index, place_of)


def check_places(index: Any, place_of: dict[int, set[Slot]]) -> None:
    """Assert that every clause has the list of its leaves."""
    cell = index._places.cell.tolist()
    for entry, expected in place_of.items():
        at, found = int(index.entries.arrays.record[entry, PLACE]), []
        while at != NO_CELL:
            found.append((8 * cell[at][NODE], cell[at][NTH]))
            at = cell[at][NEXT]
        assert len(found) == len(expected)
        assert {*found} == expected


def postings(index: Any, number: int) -> list[tuple[int, int, int]]:
    """Return the x, y and stamps of the living messages of a list."""
    head, pool, _, _ = index._lists.arrays
    start, size, capacity = head[number, 0], head[number, 1] >> 8, 1 << (head[number, 1] & 255)
    columns = [pool[start + i * capacity : start + i * capacity + size].tolist() for i in range(3)]
    alive = index.living.arrays.alive
    return [(x, y, s) for x, y, s in zip(*columns, strict=True) if is_alive(alive, s)]


def check_messages(index: Any, tree: Plain, slots: list[Slot]) -> None:
    where: dict[int, list[Slot]] = defaultdict(list)
    living = index.living.arrays
    for slot in slots:
        number = tree.list_number(slot)
        for x, y, stamp in postings(index, number) if number else []:
            assert (x, y) == tuple(living.record[stamp, :2].tolist())
            where[stamp].append(slot)
    for stamp in range(index.living.used):
        if not is_alive(living.alive, stamp) or is_range(living.record, stamp):
            assert stamp not in where
            continue
        stored = where[stamp]
        assert len({*stored}) == len(stored) == living.record[stamp, OWN]
        assert len(stored) <= index.options.copies
        ranks = sorted(tree.rank[token] for token in tokens_of(living, stamp).tolist())
        place, used = living.record[stamp, :2].tolist(), []
        waiting: list[tuple[Slot, int]] = [((0, 0), 0)]
        for slot, first in waiting:
            if slot in stored:
                used.append(slot)
            else:
                assert tree.kind(slot) in (KEYWORDS, SPACE), "a way ends without the message"
                waiting.extend(tree.message_children(slot, ranks, first, place))
        assert sorted(used) == sorted(stored)


class FewStamps(ApPlusTree):
    """The same with few stamps, so that lists are swept often."""

    def __init__(self, options: ApPlusOptions) -> None:
        super().__init__(options, min_stamps=16)


def steps_of(clauses: Clauses, name: str = "ap+-tree", **options: Any) -> Lockstep:
    return Lockstep(moving.create(name, **TINY | options), clauses)


def kinds(index: MovingIndex) -> Counter[int]:
    return Plain(index).kinds()


def grid_points(side: int, step: int = 10) -> NDArray[np.int32]:
    x, y = np.meshgrid(np.arange(side) * step, np.arange(side) * step)
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.int32)


def around(points: NDArray[Any], reach: int = 4) -> NDArray[np.int32]:
    return np.concatenate([points - reach, points + reach], axis=1).astype(np.int32)


OPTIONS: list[dict[str, Any]] = [
    {"copies": 1},
    {"copies": 3, "node_lists": True},
    {"copies": NO_LIMIT},
    {"copies": NO_LIMIT, "order": "frequent", "node_lists": True},
    {"copies": 5, "tokens": 40.0, "fanout": 9, "leaf": 3},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("case", ["lattice", "crowd", "zero_area"])
def test_everything_is_where_it_must_be(options: dict[str, Any], case: str) -> None:
    drawn = draw(case, 3)
    builder = MovingBuilder(FewStamps, ApPlusOptions(**TINY | options))
    steps = Lockstep(builder, drawn.clauses.take(np.arange(70)))
    check_tree(steps.index)
    for seed in range(5):
        random_events(steps, case, seed, 6)
        check_tree(steps.index)


@pytest.mark.parametrize("name", ["ap+k-tree", "ap+s-tree"])
def test_clauses_are_where_they_must_be_without_lists(name: str) -> None:
    steps = steps_of(draw("lattice", 1).clauses, name)
    random_events(steps, "lattice", 1, 15)
    check_tree(steps.index)


def space_tree(**options: Any) -> Lockstep:
    """Return a tree that begins with a space node: all clauses have one token."""
    points = grid_points(8)
    steps = steps_of(Clauses.of([[1]] * len(points), around(points)), tokens=40.0, **options)
    assert Plain(steps.index).kind((0, 0)) == SPACE
    return steps


def test_message_is_found_by_a_leaf_that_is_made_later() -> None:
    steps = space_tree(copies=NO_LIMIT)
    corner = [n for n in range(64) if n % 8 >= 4 and n // 8 >= 4]
    steps.delete(corner)
    tree = Plain(steps.index)
    assert any(tree.kind(slot) is None for slot in tree.slots()), "a cell is empty"
    steps.publish(Messages.of([[1], [1, 2]], [[70, 70], [66, 66]]))
    steps.move([0], np.array([[60, 60, 75, 75]], np.int32))
    check_tree(steps.index)
    assert steps._sum == {(0, 0): 1, (0, 1): 1}


def test_message_is_found_after_a_cut_was_widened() -> None:
    tokens = [[10 * t] for t in range(1, 21) for _ in range(4)]
    steps = steps_of(Clauses.of(tokens, [[0, 0, 9, 9]] * 80), copies=NO_LIMIT)
    assert kinds(steps.index)[KEYWORDS] > 0
    steps.publish(Messages.of([[5, 15, 35], [999], [20, 55]], [[5, 5]] * 3))
    begun = sum(steps._sum.values())
    new = [[5], [15], [35], [999], [55], [20, 55], [5, 15, 35]]
    steps.insert(Clauses.of(new, [[3, 3, 6, 6]] * len(new)))
    assert sum(steps._sum.values()) - begun == 7
    check_tree(steps.index)


def test_messages_move_with_a_node_that_is_rebuilt() -> None:
    steps = space_tree(copies=NO_LIMIT, kl=0.001)
    steps.publish(Messages.of([[1]] * 64, grid_points(8)))
    before = Plain(steps.index)
    crowd = np.array([[1, 1, 3 + i % 3, 3 + i % 3] for i in range(60)], np.int32)
    steps.move(list(range(60)), crowd)
    after = Plain(steps.index)
    assert after.below((0, 0)) != before.below((0, 0)) or after.bounds != before.bounds
    check_tree(steps.index)
    steps.move(list(range(60)), around(grid_points(8)[:60]))
    check_tree(steps.index)


def test_a_node_that_has_grown_is_rebuilt() -> None:
    steps = steps_of(Clauses.of([[1]] * 3, around(grid_points(3)[:3])), tokens=40.0, kl=math.inf)
    steps.publish(Messages.of([[1]] * 64, grid_points(8)))
    for first in range(3, 63, 10):
        steps.insert(Clauses.of([[1]] * 10, around(grid_points(8)[first : first + 10])))
    assert Plain(steps.index).bounds[2] > 30
    check_tree(steps.index)


def test_messages_stay_when_a_node_becomes_a_leaf() -> None:
    steps = space_tree(copies=NO_LIMIT)
    steps.publish(Messages.of([[1]] * 64, grid_points(8)))
    steps.delete(list(range(1, 64)))
    assert kinds(steps.index) == {LEAF: 1}
    check_tree(steps.index)
    steps.move([0], np.array([[0, 0, 99, 99]], np.int32))
    assert sum(steps._sum.values()) == 64


@pytest.mark.parametrize("copies", [1, 2, 3, 8, 64])
def test_copies_have_a_limit(copies: int) -> None:
    rng = np.random.default_rng(copies)
    points = rng.integers(0, 100, (200, 2))
    tokens = [rng.integers(0, 40, 3).tolist() for _ in range(200)]
    steps = steps_of(Clauses.of(tokens, around(points, 9)), copies=copies)
    messages = Messages.of([list(range(40))] * 20, rng.integers(0, 100, (20, 2)))
    steps.publish(messages)
    check_tree(steps.index)
    assert isinstance(steps.index, ApPlusTree)
    record = steps.index.living.arrays.record
    assert record[:20, OWN].max() <= copies
    assert (record[:20, OWN].max() > 8) == (copies > 8)
    assert steps.index.copies == record[:20, OWN].sum()
    steps.move(list(range(200)), around(rng.integers(0, 100, (200, 2)), 9))
    check_tree(steps.index)


@pytest.mark.parametrize("copies", [2, NO_LIMIT])
def test_node_lists_survive_compaction(copies: int) -> None:
    drawn = draw("crowd", 5)
    chosen = drawn.clauses.take(np.arange(400))
    steps = steps_of(chosen, node_lists=True, copies=copies)
    random_events(steps, "crowd", 5, 8)
    index = steps.index
    assert isinstance(index, ApPlusTree)
    before = int(index._tree.state[0])
    index._compact()
    assert index._tree.state[0] < before
    check_tree(index)
    random_events(steps, "crowd", 6, 8)
    check_tree(index)


@pytest.mark.parametrize("node_lists", [False, True])
def test_moves_out_of_the_extent_and_back(node_lists: bool) -> None:
    steps = space_tree(copies=NO_LIMIT, node_lists=node_lists, kl=math.inf)
    far = np.array([[-900, 25], [900, 25], [25, -900], [25, 900], [900, 900], [-900, -900]])
    steps.publish(Messages.of([[1]] * 6, far))
    steps.publish(Messages.of([[1]] * 64, grid_points(8)))
    rng = np.random.default_rng(2)
    for i in range(6):
        steps.move([i, 30 + i], around(np.array([far[i], far[-i]]), 5))
        steps.move([12 + i], np.array([[-999, -999, 999, 999]], np.int32))
        check_tree(steps.index)
    steps.move([12], np.array([[-999, -999, 998, 999]], np.int32))
    steps.move(list(range(64)), around(rng.integers(-50, 100, (64, 2)), 8))
    check_tree(steps.index)


def test_a_box_that_moves_within_its_cells_reads_only_those_it_moves_in() -> None:
    steps = space_tree(copies=NO_LIMIT)
    steps.publish(Messages.of([[1]] * 64, grid_points(8)))
    steps.move([0], np.array([[-4, -4, 50, 50]], np.int32))
    before = steps.index.examined
    steps.move([0], np.array([[-4, -4, 51, 50]], np.int32))
    assert 0 < steps.index.examined - before < 64 // 2


def test_words_that_never_return_are_forgotten() -> None:
    clauses = Clauses.of([[1], [2]], [[0, 0, 9, 9]] * 2)
    sizes = []
    index = moving.create("ap+-tree").build(clauses)
    for i in range(60):
        words = [
            [1, *range(1000 + 500 * (60 * i + j), 1500 + 500 * (60 * i + j))] for j in range(4)
        ]
        numbers, changes = index.publish(Messages.of(words, [[5, 5]] * 4))
        assert len(changes) == 4
        index.expire(numbers)
        sizes.append(index.nbytes)
    assert max(sizes) < 3 * max(sizes[:20])


@pytest.mark.skipif(not JIT, reason="takes long as plain Python")
@pytest.mark.parametrize("name", ["ap+-tree", "ap+k-tree", "ap+s-tree"])
def test_memory_is_flat_over_many_lifetimes(name: str) -> None:
    rng = np.random.default_rng(4)
    clauses = Clauses.of(
        rng.integers(0, 50, (300, 2)).tolist(), around(rng.integers(0, 99, (300, 2)))
    )
    index = moving.create(name, leaf=4, fanout=50).build(clauses)
    index.publish(Messages.of([[7]], [[50, 50]]))
    sizes, alive = [], []
    for i in range(200):
        words = (rng.integers(0, 50, (50, 4)) + (10_000 * i) * (rng.random((50, 4)) < 0.2)).tolist()
        numbers, _ = index.publish(Messages.of(words, rng.integers(0, 99, (50, 2))))
        alive.append(numbers)
        if len(alive) > 2:
            index.expire(alive.pop(0))
        rows = rng.permutation(300)[:60]
        index.move(rows, around(rng.integers(0, 99, (60, 2))))
        sizes.append(index.nbytes)
    assert max(sizes[100:]) < 1.5 * max(sizes[50:100])


def test_fast_movers_are_not_split_by_space() -> None:
    rng = np.random.default_rng(1)
    tokens = [[int(t)] for t in rng.integers(0, 12, 600)]
    place = rng.integers(0, 10_000, (600, 2))
    shares = []
    for moving_costs in (False, True):
        options = {"leaf": 8, "fanout": 64, "tokens": 8.0, "kl": 0.001}
        options |= {"moving_costs": moving_costs}
        index = moving.create("ap+-tree", **options).build(Clauses.of(tokens, around(place, 60)))
        assert isinstance(index, ApPlusTree)
        before = kinds(index)[SPACE]
        index.publish(Messages.of([[1]], [[1, 1]]))
        velocity = rng.integers(-3000, 3000, (600, 2))
        for i in range(6):
            index.move(np.arange(600), around(place + (i % 2) * velocity, 60))
        index._build_tree()
        check_tree(index)
        shares.append((before, kinds(index)[SPACE]))
    assert shares[0][0] == shares[1][0] > 0
    assert shares[0][1] > shares[1][1] == 0


@pytest.mark.parametrize("name", ["ap+k-tree", "ap+s-tree"])
def test_the_grid_follows_the_subscriptions(name: str) -> None:
    """An index that begins empty has cells over the world, until it knows where its clauses are."""
    rng = np.random.default_rng(2)
    place = rng.integers(0, 10_000, (160, 2))
    clauses = Clauses.of([[1]] * 160, around(place, 300))
    messages = Messages.of([[1]] * 200, rng.integers(0, 10_000, (200, 2)))
    counts = []
    for begins_empty in (False, True):
        steps = Lockstep(moving.create(name), Clauses.empty() if begins_empty else clauses)
        steps.publish(messages.take(np.arange(100)))
        for first in range(0, 160 if begins_empty else 0, 40):
            steps.insert(clauses.take(np.arange(first, first + 40)))
        steps.publish(messages.take(np.arange(100, 200)))
        assert steps.index.copies == 400
        before = steps.index.examined
        steps.move([*range(160)], around(place + 50, 300))
        counts.append(steps.index.examined - before)
    assert counts[1] < 1.5 * counts[0] < 160 * 200 / 10


def test_printed_options() -> None:
    options = ApPlusOptions(**PRINTED)
    assert (options.fanout, options.leaf, options.kl) == (200, 40, 0.001)
    assert options.node_lists
    assert options.order == "frequent"


@pytest.mark.parametrize(
    "wrong", [{"fanout": 1}, {"leaf": 0}, {"copies": 0}, {"kl": -1}, {"node_lists": 1}]
)
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        moving.create("ap+-tree", **wrong)


def test_unknown_order() -> None:
    with pytest.raises(UnknownName, match="order"):
        moving.create("ap+-tree", order="random")
