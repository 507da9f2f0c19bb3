"""Statistics: against counting in plain Python, in any number of pieces, stored and read back."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast.columns import UNITS, WORLD, Clauses, Messages
from nearcast.errors import InvalidInput, StorageError
from nearcast.indexes.statistics import BINS, Grid, Statistics, Tally
from nearcast.storage import read_arrays, write_arrays
from nearcast.testing import CASES, draw
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

Counted = tuple[int, dict[str, int], dict[tuple[int, str], int], dict[int, int], list[Counter[int]]]


def cells_of(grid: Grid, west: int, south: int, east: int, north: int) -> list[int]:
    """Return the cells of a box by looking for every border, without arithmetic on the box."""
    lon, lat = (grid.box[0], grid.box[2]), (grid.box[1], grid.box[3])
    columns = [c for c in range(grid.across) if _meets(c, grid.across, west, east, *lon)]
    rows = [r for r in range(grid.up) if _meets(r, grid.up, south, north, *lat)]
    return [r * grid.across + c for r in rows for c in columns]


def _meets(number: int, of: int, low: int, high: int, first: int, last: int) -> bool:
    # Compared as whole numbers: the cell reaches from number/of to (number+1)/of of the extent,
    # the end excluded unless it is that of the grid.
    extent = max(last - first, 1)
    low, high = (low - first) * of, (high - first) * of
    begin, end = number * extent, (number + 1) * extent
    return high >= begin and (low < end or (number == of - 1 and low == end))


def pieces_of(columns: Clauses | Messages, row: int) -> list[tuple[set[int], list[int]]]:
    """Return tokens and box of every piece of a document, cut at the antimeridian."""
    if isinstance(columns, Messages):
        tokens = set(
            columns.token[columns.token_start[row] : columns.token_start[row + 1]].tolist()
        )
        west, south, east, north = columns.box[row].tolist()
        if west <= east:
            return [(tokens, [west, south, east, north])]
        return [(tokens, [west, south, WORLD[2], north]), (tokens, [WORLD[0], south, east, north])]
    return [
        (
            set(columns.token[columns.token_start[c] : columns.token_start[c + 1]].tolist()),
            columns.box[c].tolist(),
        )
        for c in np.flatnonzero(columns.row == row)
    ]


def expected(columns: Clauses | Messages, grid: Grid, words: list[str]) -> Counted:
    """Count document by document with sets."""
    total = len(columns) if isinstance(columns, Messages) else columns.subscriptions
    tokens, pairs, cells = Counter[str](), Counter[tuple[int, str]](), Counter[int]()
    extents = [Counter[int](), Counter[int]()]
    for row in range(total):
        pieces = pieces_of(columns, row)
        placed = [(cells_of(grid, *box), {words[t] for t in own}) for own, box in pieces]
        tokens.update(set().union(*(own for _, own in placed)))
        pairs.update({(c, word) for inside, own in placed for c in inside for word in own})
        cells.update({c for inside, _ in placed for c in inside})
        boxes = {tuple(box) for _, box in pieces}
        if isinstance(columns, Messages):
            boxes = {tuple(columns.box[row].tolist())}
        for west, south, east, north in boxes:
            extents[0][(east - west + (360 * UNITS if east < west else 0)).bit_length()] += 1
            extents[1][(north - south).bit_length()] += 1
    return total, dict(tokens), dict(pairs), dict(cells), extents


def as_dicts(statistics: Statistics) -> Counted:
    words = statistics.vocabulary.tokens().to_pylist()
    cell = np.repeat(np.arange(statistics.grid.cells), np.diff(statistics.cell_start)).tolist()
    named = [words[t] for t in statistics.cell_token.tolist()]
    frequency = statistics.cell_frequency.tolist()
    pairs = {(c, t): n for c, t, n in zip(cell, named, frequency, strict=True)}
    return (
        statistics.documents,
        dict(zip(words, statistics.vocabulary.frequency.tolist(), strict=True)),
        pairs,
        {c: n for c, n in enumerate(statistics.density.tolist()) if n},
        [Counter({b: n for b, n in enumerate(bins.tolist()) if n}) for bins in _bins(statistics)],
    )


def _bins(statistics: Statistics) -> tuple[Any, Any]:
    return statistics.width, statistics.height


def dense(columns: Any) -> tuple[Any, list[str], Vocabulary]:
    """Return columns with token ids from 0 on, and a word for each."""
    used, token = np.unique(columns.token, return_inverse=True)
    words = [f"w{number}" for number in used.tolist()]
    values = {name: getattr(columns, name) for name in columns.__dataclass_fields__}
    changed = type(columns)(**{**values, "token": token.astype(np.int32)})
    return changed, words, Vocabulary(words)


@pytest.mark.parametrize("kind", ["clauses", "messages"])
@pytest.mark.parametrize("name", sorted(set(CASES) - {"crowd", "ranges", "long_messages"}))
def test_every_case_is_counted_as_by_hand(name: str, kind: str) -> None:
    columns, words, vocabulary = dense(getattr(draw(name, seed=3), kind))
    statistics = Statistics.count(columns, vocabulary, across=12, up=6, box=WORLD)
    assert as_dicts(statistics) == expected(columns, Grid(12, 6), words)
    own = Statistics.count(columns, vocabulary, across=12, up=6)
    assert own.grid == Grid.around(columns, 12, 6)
    assert as_dicts(own) == expected(columns, own.grid, words)


def test_the_grid_covers_the_data_and_not_the_world(tmp_path: Path) -> None:
    """The messages of a city lie in many cells; over the world, they would lie in one."""
    draw = np.random.default_rng(0)
    city = draw.integers([133_000_000, 524_000_000], [135_000_000, 526_000_000], (500, 2))
    messages, words = Messages.of([[0]] * 500, city), Vocabulary(["tea"])
    own = Statistics.count(messages, words, across=10, up=10)
    assert own.grid.box == (*city.min(axis=0).tolist(), *city.max(axis=0).tolist())
    assert np.count_nonzero(own.density) > 90
    assert np.count_nonzero(Statistics.count(messages, words, box=WORLD).density) == 1
    own.save(tmp_path / "own")
    assert Statistics.load(tmp_path / "own").grid == own.grid
    arrays, meta = read_arrays(tmp_path / "own", "statistics", mmap=False)
    earlier = {name: meta[name] for name in ("documents", "rejected", "across", "up")}
    write_arrays(tmp_path / "own", "statistics", arrays, earlier)
    assert Statistics.load(tmp_path / "own").grid == Grid(10, 10)
    across = Messages.of([[0], [0]], [[10, 5, 20, 6], [1_799_999_999, 0, -1_799_999_999, 9]])
    assert Grid.around(across).box == (WORLD[0], 0, WORLD[2], 9)
    with pytest.raises(InvalidInput, match="west <= east"):
        Grid(1, 1, (5, 0, 4, 0)).checked()


def test_tokens_are_ordered_by_frequency_and_then_by_bytes() -> None:
    vocabulary = Vocabulary(["b", "é", "a", "unused", "z"])
    messages = Messages.of([[0, 1, 2, 4], [4], [1, 0], []], np.zeros((4, 2)))
    statistics = Statistics.count(messages, vocabulary)
    assert statistics.vocabulary.tokens().to_pylist() == ["b", "z", "é", "a"]
    assert statistics.vocabulary.frequency.tolist() == [2, 2, 2, 1]
    assert statistics.idf().tolist() == pytest.approx([math.log(3)] * 3 + [math.log(5)])
    assert statistics.vocabulary.id_of("unused") == -1


def test_borders_belong_to_the_cell_that_begins_there() -> None:
    grid = Grid(4, 4)
    points = [[-180, -90], [-90, -45], [0, 0], [90, 45], [180, 90], [-0.0000001, 0]]
    units = np.rint(np.array(points) * UNITS)
    assert grid.cell_of(units).tolist() == [0, 5, 10, 15, 15, 9]
    assert grid.ranges(np.array([[-90, -90, 0, 0]]) * UNITS).tolist() == [[1, 0, 2, 2]]


def test_a_full_tally_goes_on_where_it_stopped() -> None:
    columns, _, vocabulary = dense(draw("alternatives", seed=1).messages)
    whole = Statistics.count(columns, vocabulary, across=30, up=20)
    tally = Tally(Grid.around(columns, 30, 20), max_pairs=500)
    sums: Counter[tuple[int, int]] = Counter()
    documents, row, rounds, extents = 0, 0, 0, np.zeros((2, BINS), np.int64)
    while row < len(columns):
        row = tally.add(columns, row)
        counts = tally.counts()
        pairs = zip(counts.cell.tolist(), counts.token.tolist(), strict=True)
        sums.update(dict(zip(pairs, counts.times.tolist(), strict=True)))
        documents += counts.documents
        extents += np.stack([counts.width, counts.height])
        rounds += 1
        tally.clear()
    assert rounds > 3
    cell, token = np.array(list(sums), np.int32).T
    counted = counts._replace(
        documents=documents, cell=cell, token=token, times=np.array(list(sums.values()))
    )._replace(width=extents[0], height=extents[1])
    again = Statistics.of(tally.grid, counted, vocabulary.tokens())
    assert as_dicts(again) == as_dicts(whole)


def test_batches_one_after_the_other_count_as_one() -> None:
    messages, _, vocabulary = dense(draw("antimeridian", seed=2).messages)
    tally = Tally(Grid.around(messages))
    for first in range(0, len(messages), 7):
        tally.add(messages.take(np.arange(first, min(first + 7, len(messages)))))
    parts = Statistics.of(tally.grid, tally.counts(), vocabulary.tokens())
    assert as_dicts(parts) == as_dicts(Statistics.count(messages, vocabulary))


def test_nothing_is_counted_too(tmp_path: Path) -> None:
    for columns in (Messages.of([], np.empty((0, 2))), Clauses.empty()):
        statistics = Statistics.count(columns, Vocabulary(["a"]), across=3, up=2)
        statistics.save(tmp_path / "s")
        loaded = Statistics.load(tmp_path / "s")
        assert (loaded.documents, len(loaded.vocabulary), loaded.density.sum()) == (0, 0, 0)
        assert loaded.frequency_in(5)[0].tolist() == []


def test_stored_statistics_come_back_and_pickle(tmp_path: Path) -> None:
    clauses, _, vocabulary = dense(draw("alternatives", seed=5).clauses)
    statistics = Statistics.count(clauses, vocabulary, across=9, up=4, box=WORLD)
    statistics.save(tmp_path / "s")
    loaded = Statistics.load(tmp_path / "s")
    assert as_dicts(loaded) == as_dicts(statistics)
    assert as_dicts(pickle.loads(pickle.dumps(loaded))) == as_dicts(statistics)
    assert loaded.cell_of([[0, 0]]).tolist() == [2 * 9 + 4]
    assert loaded.nbytes > 0
    with pytest.raises(InvalidInput, match="below 36"):
        loaded.frequency_in(36)


@pytest.mark.parametrize(
    "change",
    [
        {"cell_token": np.array([99_999], np.int32)},
        {"density": np.zeros(3, np.int64)},
        {"cell_start": np.arange(37, dtype=np.int64)},
    ],
    ids=["tokens", "density", "start"],
)
def test_damaged_statistics_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    clauses, _, vocabulary = dense(draw("lattice", seed=5).clauses)
    Statistics.count(clauses, vocabulary, across=9, up=4).save(tmp_path / "s")
    arrays, meta = read_arrays(tmp_path / "s", "statistics", mmap=False)
    write_arrays(tmp_path / "s", "statistics", {**arrays, **change}, meta)
    with pytest.raises(StorageError, match="count the statistics again"):
        Statistics.load(tmp_path / "s")
    write_arrays(tmp_path / "s", "statistics", arrays, {"documents": 3})
    with pytest.raises(StorageError, match="count the statistics again"):
        Statistics.load(tmp_path / "s")


@pytest.mark.parametrize(("across", "up"), [(0, 5), (5, -1), (1 << 20, 1 << 20)])
def test_a_grid_has_cells_but_not_too_many(across: int, up: int) -> None:
    with pytest.raises(InvalidInput, match="must be at"):
        Statistics.count(Clauses.empty(), Vocabulary(), across=across, up=up)
