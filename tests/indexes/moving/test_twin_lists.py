"""What only twin-lists has: directories, rounded places, keys that change, sorted lists."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import pytest

from nearcast.columns import Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.errors import InvalidInput
from nearcast.indexes import moving
from nearcast.indexes.moving.entries import KEY, PLACE
from nearcast.indexes.moving.twin_lists import TwinLists, TwinListsOptions, lanes
from nearcast.indexes.moving.twin_lists.directory import gather_stamps, head_at, tile_of
from nearcast.indexes.moving.twin_lists.frame import Frame
from nearcast.indexes.moving.twin_lists.layout import (
    BUILT,
    DIRECTORY,
    EVERY,
    EVERY_POSTED,
    FREE_TOKEN,
    GRID,
    HEADERS,
    NOTHING,
    REBUILDS,
    REKEYED,
    SIZE,
    SORTED,
    TOKEN,
    TOTAL,
    window_of,
)
from nearcast.indexes.moving.twin_lists.leaves import locate
from nearcast.testing.moving_checks import Lockstep

TINY = {"leaf": 4, "flat": 4, "tile": 2, "regret": 1, "rekey_interval": 2, "min_stamps": 32}


def tiny(**options: int) -> moving.MovingBuilder:
    return moving.create("twin-lists", **{**TINY, **options})


def boxes(rng: Any, count: int, *, span: int = 1000, side: int = 100) -> Any:
    corner = rng.integers(-span, span, (count, 2))
    return np.concatenate([corner, corner + rng.integers(0, side, (count, 2))], 1).astype(np.int32)


def clauses(tokens: list[list[int]], box: Any) -> Clauses:
    return Clauses.of(tokens, np.asarray(box).tolist())


def messages(tokens: list[list[int]], place: Any) -> Messages:
    return Messages.of(tokens, np.asarray(place).tolist())


def words(rng: Any, count: int, *, most: int = 3, vocabulary: int = 12) -> list[list[int]]:
    return [
        np.unique(rng.integers(0, vocabulary, rng.integers(1, most + 1))).tolist()
        for _ in range(count)
    ]


def twin(steps: Lockstep) -> TwinLists:
    assert isinstance(steps.index, TwinLists)
    return steps.index


def check_structure(index: TwinLists) -> None:
    """Every entry is where its record says, within bounds; every posting is in its tile."""
    arrays, entries = index._arrays, index.entries.arrays
    header, bits = arrays.header, int(arrays.option[0])
    assert header[: arrays.state[HEADERS], SIZE].sum() == index.entries.count
    for entry in np.flatnonzero(index.entries.row >= 0).tolist():
        number, place = entries.record[entry, KEY] >> 1, entries.record[entry, PLACE]
        leaf, stride, lane, bound = locate(header, number, place, bits)
        half, word = arrays.clauses.half, arrays.clauses.word
        assert word[leaf + 2 * stride + 2 * lane] & (2**30 - 1) == entry
        rounded = [int(half[2 * leaf + side * stride + lane]) for side in range(4)]
        window = window_of(arrays.state, entries.record[entry])
        assert rounded == [lanes.window_side(window, side) for side in range(4)]
        if bound != NOTHING:
            around = [int(half[bound + 32 * side]) for side in range(4)]
            assert around[0] <= rounded[0]
            assert around[1] <= rounded[1]
            assert around[2] >= rounded[2]
            assert around[3] >= rounded[3]
    check_messages(index)


def check_messages(index: TwinLists) -> None:
    arrays, living = index._arrays, index.living
    posted: dict[int, set[int]] = {}
    for number in range(int(arrays.state[HEADERS])):
        if arrays.header[number, TOKEN] == FREE_TOKEN:
            continue
        stamps = gather_stamps(arrays, number)
        assert len(stamps) == arrays.header[number, TOTAL]
        assert len(set(stamps.tolist())) == len(stamps)
        posted[int(arrays.header[number, TOKEN])] = set(stamps.tolist())
        if arrays.header[number, DIRECTORY] != NOTHING:
            check_tiles(index, number)
    for stamp in index._living_points().tolist():
        for token in living.messages(np.array([stamp]), index.ranges.box).token.tolist():
            assert stamp in posted[token]


def check_tiles(index: TwinLists, number: int) -> None:
    arrays = index._arrays
    directory, grid = int(arrays.header[number, DIRECTORY]), int(arrays.header[number, GRID])
    word, half = arrays.messages.word, arrays.messages.half
    for column in range(grid):
        for row in range(grid):
            at = int(head_at(directory, grid, column, row))
            start, size, kind = word[at], word[at + 1] >> 8, word[at + 1] & 255
            for nth in range(size):
                line, lane, width = (start + nth // 8 * 16, nth % 8, 8) if kind else (start, nth, 4)
                x, y = int(half[2 * line + lane]), int(half[2 * line + width + lane])
                assert tile_of(half, directory, grid, x, y) == at


# --- comparisons ---------------------------------------------------------------------------------


def window(west: int, south: int, east: int, north: int) -> Any:
    return lanes.pack_window(*(np.int64(side) for side in (west, south, east, north)))


@pytest.mark.parametrize("seed", range(3))
def test_comparisons_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    half = rng.integers(-4, 5, 512).astype(np.int16)
    half[rng.random(512) < 0.1] = rng.choice([-32768, -32766, 32766, 32767])
    for _ in range(30):
        position, stride = int(rng.integers(0, 300)), int(rng.choice([4, 8, 16, 32]))
        old, new = (window(*rng.integers(-4, 5, 4)) for _ in range(2))
        old = lanes.EMPTY_WINDOW if rng.random() < 0.2 else old
        for compiled, plain in [
            (lanes.changed_postings, lanes._interpreted_postings(8)),
            (lanes.changed_postings_4, lanes._interpreted_postings(4)),
        ]:
            assert _call(compiled, half, position, old, new) == plain(half, position, old, new)
        for compiled, plain in [
            (lanes.touching_boxes, lanes._interpreted_boxes(32)),
            (lanes.touching_boxes_8, lanes._interpreted_boxes(8)),
        ]:
            assert _call(compiled, half, position, stride, old) == plain(
                half, position, stride, old
            )
        value = int(rng.integers(-5, 5))
        got = _call(lanes.splits_up_to, half, position, np.int64(value))
        assert got == lanes._interpreted_splits(half, position, value)


def _call(function: Any, *arguments: Any) -> int:
    """Call an intrinsic from compiled code."""
    return int(_caller(function, len(arguments))(*arguments))


@functools.cache
def _caller(function: Any, arguments: int) -> Any:
    import numba

    if not JIT:
        return function
    if arguments == 3:
        return numba.njit(lambda a, b, c: function(a, b, c))
    return numba.njit(lambda a, b, c, d: function(a, b, c, d))


def test_nothing_touches_the_empty_window() -> None:
    sides = [lanes.window_side(lanes.EMPTY_WINDOW, side) for side in range(4)]
    assert sides == [32767, 32767, -32768, -32768]
    half = np.repeat(np.array([-32766, 0, 32766], np.int16), 16)
    everywhere = window(-32766, -32766, 32766, 32766)
    for position in range(0, 32, 8):
        alone = lanes._interpreted_postings(8)(half, position, *[lanes.EMPTY_WINDOW] * 2)
        assert alone == 0
        both = lanes._interpreted_postings(8)(half, position, lanes.EMPTY_WINDOW, everywhere)
        assert both == 255


# --- events --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_structure_after_random_events(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = Lockstep(tiny(), clauses(words(rng, 80), boxes(rng, 80)))
    for _ in range(25):
        steps.publish(messages(words(rng, 12, most=5), rng.integers(-1000, 1000, (12, 2))))
        steps.move(steps.rows[::2], boxes(rng, len(steps.rows[::2])))
        steps.expire([n for n in steps.numbers if rng.random() < 0.3])
        steps.insert(clauses(words(rng, 5), boxes(rng, 5)))
        steps.delete([row for row in steps.rows if rng.random() < 0.05])
        check_structure(twin(steps))


def test_directories_that_are_built_within_a_chunk() -> None:
    """One batch makes lists outgrow directories several times; tiles found before are void."""
    rng = np.random.default_rng(1)
    steps = Lockstep(tiny(min_stamps=4096), clauses([[0], [1], [0, 1]] * 10, boxes(rng, 30)))
    for count in (3, 40, 120, 400):
        before = int(twin(steps)._arrays.state[REBUILDS])
        tokens = [[0, 1, 2] if i % 2 else [1] for i in range(count)]
        steps.publish(messages(tokens, rng.integers(-1000, 1000, (count, 2))))
        if count > 3:
            assert twin(steps)._arrays.state[REBUILDS] > before + 1
        check_structure(twin(steps))
        steps.move(steps.rows, boxes(rng, 30, side=600))


def test_insert_and_delete_at_the_edges_of_the_frame() -> None:
    """A clause that comes from nowhere has an empty window, not one that touches the edge."""
    box = [[-1000, -1000, 1000, 1000]] * 4
    steps = Lockstep(tiny(), clauses([[1], [1], [2], [1, 2]], box))
    far = 2_000_000_000
    corners = [[far, far // 2], [-far, -far // 2], [far, -far // 2], [1000, 1000], [0, 0]]
    corners = [
        [min(max(x, -1_800_000_000), 1_800_000_000), max(min(y, 9 * 10**8), -(9 * 10**8))]
        for x, y in corners
    ]
    steps.publish(messages([[1, 2]] * 5, corners))
    world = [-1_800_000_000, -900_000_000, 1_800_000_000, 900_000_000]
    steps.insert(clauses([[1], [2], [1]], [world, [999, 999, 1000, 1000], [0, 0, 0, 0]]))
    steps.delete(steps.rows[-3:])
    steps.move([0, 1], np.array([world, [1000, 1000, 1_800_000_000, 900_000_000]], np.int32))
    steps.delete([0, 1, 2, 3])
    check_structure(twin(steps))


def test_frame_follows_the_places() -> None:
    """Subscriptions and messages go far away: the frame is chosen again, answers stay right."""
    rng = np.random.default_rng(2)
    steps = Lockstep(tiny(), clauses(words(rng, 60), boxes(rng, 60)))
    first = Frame.of(twin(steps)._arrays.state)
    assert max(first.shift_x, first.shift_y) == 0
    for far in (1_000_000, 100_000_000):
        for _ in range(75):
            place = far + rng.integers(-1000, 1000, (20, 2))
            steps.publish(messages(words(rng, 20), place))
            steps.expire(steps.numbers[:-30])
            steps.move(steps.rows, boxes(rng, 60) + np.int32(far))
        now = Frame.of(twin(steps)._arrays.state)
        assert now != first
        assert abs(now.origin_x - far) < far
        check_structure(twin(steps))


def test_a_frame_around_nothing() -> None:
    """Messages that are no points, and no subscription, say nothing about where the world is."""
    steps = Lockstep(tiny(), Clauses.empty())
    rng = np.random.default_rng(9)
    steps.publish(Messages.of(words(rng, 200), boxes(rng, 200).tolist()))
    assert twin(steps)._best_frame() == Frame(0, 0, 16, 16)
    check_structure(twin(steps))


def test_key_that_becomes_popular_is_given_up() -> None:
    rng = np.random.default_rng(3)
    steps = Lockstep(tiny(min_stamps=4096), clauses([[1, 2]] * 20 + [[1, 3]] * 5, boxes(rng, 25)))
    index = twin(steps)
    key = index._arrays.header[index.entries.arrays.record[:20, KEY] >> 1, TOKEN]
    assert (key == 2).all(), "the word of fewer clauses"
    place = rng.integers(-1000, 1000, (60, 2))
    for begin in range(0, 60, 20):
        steps.publish(messages([[2]] * 20, place[begin : begin + 20]))
    for _ in range(3):
        steps.move(steps.rows, boxes(rng, 25))
    key = index._arrays.header[index.entries.arrays.record[:20, KEY] >> 1, TOKEN]
    assert (key == 1).all()
    assert index._arrays.state[REKEYED] >= 20
    steps.publish(messages([[1, 2], [1, 2, 3], [2, 3]], [[0, 0]] * 3))
    check_structure(index)


def test_tokens_that_appear_later_and_large_ones() -> None:
    rng = np.random.default_rng(4)
    steps = Lockstep(tiny(), Clauses.empty())
    steps.publish(messages([[5, 2_000_000_000], []], [[0, 0], [1, 1]]))
    for first in (0, 1000, 2**31 - 500):
        tokens = [[first + i, first + i + 1] for i in range(200)]
        steps.insert(clauses(tokens[::3], boxes(rng, 67, span=10)))
        steps.publish(messages(tokens, rng.integers(-10, 90, (200, 2))))
        steps.expire(steps.numbers[:-50])
    check_structure(twin(steps))


def test_clauses_without_tokens_come_and_go() -> None:
    rng = np.random.default_rng(5)
    steps = Lockstep(tiny(), clauses(words(rng, 10), boxes(rng, 10)))
    steps.publish(messages(words(rng, 20), rng.integers(-1000, 1000, (20, 2))))
    index = twin(steps)
    assert not index._arrays.state[EVERY_POSTED]
    steps.insert(clauses([[], [1], []], boxes(rng, 3, side=1500)))
    assert index._arrays.header[EVERY, TOTAL] == 20
    steps.move(steps.rows, boxes(rng, 13, side=1500))
    steps.publish(messages([[], [1]], rng.integers(-1000, 1000, (2, 2))))
    assert index._arrays.header[EVERY, TOTAL] == 22
    steps.delete(steps.rows[-3:])
    for _ in range(8):
        steps.publish(messages(words(rng, 20), rng.integers(-1000, 1000, (20, 2))))
        steps.expire(steps.numbers[:-20])
    assert not index._arrays.state[EVERY_POSTED]
    assert index._arrays.header[EVERY, TOTAL] == 0
    check_structure(index)


def test_sweeps_shrink_directories() -> None:
    rng = np.random.default_rng(6)
    steps = Lockstep(tiny(min_stamps=64), clauses([[0]] * 20, boxes(rng, 20, side=800)))
    steps.publish(messages([[0]] * 300, rng.integers(-1000, 1000, (300, 2))))
    index = twin(steps)
    number = int(index.entries.arrays.record[0, KEY] >> 1)
    large = int(index._arrays.header[number, GRID])
    assert large > 4
    for _ in range(40):
        steps.expire(steps.numbers[:-10])
        steps.publish(messages([[0]] * 20, rng.integers(-1000, 1000, (20, 2))))
        steps.move(steps.rows[:3], boxes(rng, 3, side=800))
    directory = index._arrays.header[number, DIRECTORY]
    assert directory == NOTHING or index._arrays.header[number, GRID] < large
    assert index._arrays.header[number, BUILT] < 100
    check_structure(index)


@pytest.mark.skipif(not JIT, reason="takes long as plain Python")
def test_regret_keeps_bounds_tight() -> None:
    """Clauses that wander widen the bounds of their leaves; sorting makes up for it."""
    rng = np.random.default_rng(7)
    visited = {}
    for regret in (1, 1 << 20):
        index = TwinLists.build(
            clauses([[0]] * 3000, boxes(rng, 3000, side=20)), TwinListsOptions(regret=regret)
        )
        for _ in range(12):
            index.move(np.arange(3000), boxes(rng, 3000, side=20))
            index.publish(messages([[0]] * 200, rng.integers(-1000, 1000, (200, 2))))
        before = index.visited
        index.publish(messages([[0]] * 200, rng.integers(-1000, 1000, (200, 2))))
        visited[regret] = index.visited - before
        assert (index._arrays.state[SORTED] > 0) == (regret == 1)
    assert visited[1] < visited[1 << 20] / 2


def test_moves_read_few_tiles() -> None:
    rng = np.random.default_rng(8)
    index = TwinLists.build(
        clauses([[0]] * 100, boxes(rng, 100, span=100_000, side=2000)), TwinListsOptions()
    )
    index.publish(messages([[0]] * 20_000, rng.integers(-100_000, 100_000, (20_000, 2))))
    visited, examined = index.visited, index.examined
    box = index.entries.arrays.record[:100, :4].copy()
    begun = index.move(np.arange(100), box + np.int32(10))
    assert index.visited - visited < 100 * 6, "of more than 200 tiles each"
    assert index.examined - examined <= len(begun) + 200


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.skipif(not JIT, reason="takes long as plain Python")
def test_memory_is_flat_over_many_lifetimes() -> None:
    """One message lives for ever, words never return, subscriptions come and go."""
    rng = np.random.default_rng(9)
    index = TwinLists.build(
        clauses(words(rng, 200), boxes(rng, 200)), TwinListsOptions(min_stamps=256)
    )
    endless, _ = index.publish(messages([[0, 1, 2]], [[0, 0]]))
    sizes, alive = [], []
    for step in range(300):
        fresh = [[7, 10_000 + 40 * step + i, 11_000_000 + 40 * step + i] for i in range(40)]
        numbers, _ = index.publish(messages(fresh, rng.integers(-1000, 1000, (40, 2))))
        alive.append(numbers)
        if len(alive) > 3:
            index.expire(alive.pop(0))
        rows, _ = index.insert(clauses([[10_000 + 40 * step, 7]] * 10, boxes(rng, 10)))
        index.move(np.arange(200), boxes(rng, 200))
        index.delete(rows)
        sizes.append(index.nbytes)
    assert max(sizes[150:]) <= 1.05 * max(sizes[:100])
    assert index.live_messages == 1 + 3 * 40
    check_structure(index)
    everywhere = np.array([[-5, -5, 5, 5]], np.int32)
    rows, begun = index.insert(clauses([[0, 2]], everywhere))
    assert endless[0] in begun.message


@pytest.mark.skipif(not JIT, reason="takes long as plain Python")
def test_pool_of_clauses_is_compacted() -> None:
    rng = np.random.default_rng(10)
    index = TwinLists.build(Clauses.empty(), TwinListsOptions())
    sizes = []
    for step in range(6):
        tokens = [[int(t)] for t in rng.integers(step * 1000, step * 1000 + 20, 6000)]
        rows, _ = index.insert(clauses(tokens, boxes(rng, 6000)))
        sizes.append(index.nbytes)
        index.delete(rows)
    assert max(sizes[3:]) <= 1.2 * max(sizes[:3])


# --- the rest ------------------------------------------------------------------------------------


def test_a_copy_goes_on_by_itself() -> None:
    rng = np.random.default_rng(11)
    index = TwinLists.build(clauses(words(rng, 50), boxes(rng, 50)), TwinListsOptions(**TINY))
    index.publish(messages(words(rng, 40), rng.integers(-1000, 1000, (40, 2))))
    copy = pickle.loads(pickle.dumps(index))
    box = boxes(rng, 50)
    more = messages(words(rng, 40), rng.integers(-1000, 1000, (40, 2)))
    for _ in range(2):
        expected = index.publish(more)[1].triples(), index.move(np.arange(50), box).triples()
        got = copy.publish(more)[1].triples(), copy.move(np.arange(50), box).triples()
        assert got == expected
    check_structure(copy)


def test_twin_lists_is_the_default() -> None:
    assert moving.DEFAULT == TwinLists.name
    assert moving.get(moving.DEFAULT) is TwinLists


@pytest.mark.parametrize(
    ("option", "value"),
    [("leaf", 3), ("leaf", 12), ("leaf", 64), ("flat", 0), ("tile", 0), ("regret", -1)],
)
def test_options_are_checked(option: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=option):
        moving.create("twin-lists", **{option: value})
