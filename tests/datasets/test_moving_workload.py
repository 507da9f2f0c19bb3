"""Moving workloads: rows depend on the seed and their number; tables have what columns have."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast.columns import UNITS, Clauses, Messages
from nearcast.datasets import Workload
from nearcast.datasets.roads import (
    Movers,
    MovingWorkload,
    arrival_table,
    lattice,
    move_table,
    mover_table,
    workload,
)
from nearcast.datasets.tables import START_US
from nearcast.errors import InvalidInput, UnknownName
from nearcast.intake import read_messages, read_subscriptions
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOWN = lattice(12, seed=3, side_km=4.0)
TWEETS = Workload("tweets", seed=7)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_BLOCK", 64)


def moving(movers: int | NDArray[Any] = 300, **options: Any) -> MovingWorkload:
    words = options.pop("words", TWEETS)
    arrivals = options.pop("arrivals", 90)
    places = {name: options.pop(name) for name in ("message_places", "ttl_s") if name in options}
    return MovingWorkload(Movers(TOWN, movers, 7, **options), words, arrivals=arrivals, **places)


def rows(columns: Clauses | Messages) -> list[tuple[Any, ...]]:
    start = columns.token_start.tolist()
    return [
        (columns.token[begin:end].tolist(), *columns.box[i].tolist())
        for i, (begin, end) in enumerate(itertools.pairwise(start))
    ]


def test_a_subscription_depends_on_the_number_of_its_mover_only() -> None:
    expected = rows(moving().subscriptions())
    assert len(expected) == 300
    assert len({tuple(tokens) for tokens, *_ in expected}) > 250
    chunks = [moving().subscriptions(first, first + 70) for first in range(0, 300, 70)]
    assert [row for chunk in chunks for row in rows(chunk)] == expected
    number = np.random.default_rng(1).permutation(300)[:120]
    shuffled = rows(moving(number).subscriptions())
    assert shuffled == [expected[i] for i in number.tolist()]
    assert (moving().subscriptions().box == moving().movers.boxes()).all()


def test_a_message_depends_on_its_number_only() -> None:
    every = rows(moving().messages(0, 300, 0))
    for first, last in ((0, 5), (60, 70), (64, 128), (100, 300), (7, 7)):
        assert rows(moving().messages(first, last, 0)) == every[first:last]
    ticks = moving(arrivals=30)
    arrived = [row for _ in range(10) for row in rows(ticks.tick().messages)]
    assert arrived == every


def test_words_are_those_of_the_data_set() -> None:
    for dataset in ("tweets", "places"):
        words = Workload(dataset, seed=7, keywords=(2, 2))
        clauses = moving(words=words).subscriptions()
        assert rows(clauses)[:64] == [
            (tokens, *box)
            for (tokens, *_), box in zip(
                rows(words.subscriptions(64)), clauses.box[:64].tolist(), strict=True
            )
        ]


def test_messages_on_roads_are_within_noise_of_a_road() -> None:
    box = moving().messages(0, 2_000, 0).box
    assert (box[:, :2] == box[:, 2:]).all()
    scale = np.array([np.cos(np.radians(47.2)), 1.0]) * 111_195 / UNITS
    share = np.tile(np.linspace(0, 1, 60), TOWN.arcs)
    arc = np.repeat(np.arange(TOWN.arcs, dtype=np.int32), 60)
    line = TOWN.places_at(arc, share * TOWN.arc_length_m[arc])
    away = np.array([np.hypot(*((place - line) * scale).T).min() for place in box[:, :2]])
    assert away.max() < 450
    assert 30 < np.median(away) < 110


def test_messages_of_a_data_set_are_mapped_into_the_frame() -> None:
    drawn = moving(message_places="dataset").messages(0, 64, 0)
    original = TWEETS.messages(64)
    west, south, east, north = TOWN.frame
    assert (drawn.token == original.token).all()
    share = (drawn.box[:, 0] - west) / (east - west), (drawn.box[:, 1] - south) / (north - south)
    assert share[0] == pytest.approx(original.box[:, 0] / UNITS / 360 + 0.5, abs=1e-5)
    assert share[1] == pytest.approx(original.box[:, 1] / UNITS / 180 + 0.5, abs=1e-5)


def test_all_events_of_a_tick_have_its_time() -> None:
    work = moving(arrivals=Fraction(10, 3), tick_s=0.5, ttl_s=2.5)
    counts = []
    for number in range(1, 7):
        tick = work.tick()
        assert (tick.number, tick.time_us) == (number, START_US + 500_000 * number)
        assert set(tick.messages.time_us.tolist()) == {tick.time_us}
        assert set(tick.messages.ttl_us.tolist()) == {2_500_000}
        counts.append(len(tick.messages))
    assert counts == [3, 3, 4, 3, 3, 4]
    assert moving(tick_s=7.0).ttl_s == 70.0


def test_tables_have_the_rows_of_the_columns() -> None:
    work = moving(np.arange(500, 800), mobility=0.5)
    clauses = work.subscriptions()
    table = mover_table(work)
    subscribed, rejects = read_subscriptions(table, Vocabulary())
    assert len(rejects) == 0
    assert (subscribed.clauses.box == clauses.box).all()
    assert table["id"].to_pylist() == [f"s{i}" for i in range(500, 800)]
    tick = work.tick()
    moves = move_table(work, tick)
    assert moves["subscription_id"].to_pylist() == [f"s{500 + i}" for i in tick.mover.tolist()]
    sides = [(moves[side].to_numpy() * UNITS).round() for side in moves.column_names[2:]]
    assert (np.stack(sides, axis=1) == tick.box).all()
    assert set(moves["time"].cast("int64").to_pylist()) == {tick.time_us}
    arrivals = arrival_table(work, tick.messages, first=40)
    batch, rejects = read_messages(arrivals, now_us=0)
    assert len(rejects) == 0
    assert (batch.box == tick.messages.box).all()
    assert (batch.time_us == tick.time_us).all()
    assert (batch.ttl_us == 300_000_000).all()
    assert arrivals["id"][0].as_py() == "m40"


def test_invalid_options_are_errors() -> None:
    with pytest.raises(InvalidInput, match="arrivals: must be at least 0"):
        moving(arrivals=-1)
    with pytest.raises(InvalidInput, match="ttl_s: must be a number of seconds"):
        moving(ttl_s=float("inf"))
    with pytest.raises(UnknownName, match="choose from: dataset, roads"):
        moving(message_places="sea")
