"""The map: its counts, and drawing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast import Circle, Engine, Message, Rect, Subscription
from nearcast.columns import UNITS
from nearcast.plots import draw_map
from nearcast.plots.match_map import CELLS_PER_DEG, MapData

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

degrees = st.tuples(
    st.integers(-180 * 8, 180 * 8),
    st.integers(-90 * 8, 90 * 8),
    st.integers(0, 80),
    st.integers(0, 80),
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(degrees, max_size=6))
def test_each_cell_counts_the_boxes_that_touch_it(places: list[tuple[int, ...]]) -> None:
    boxes = [
        (w / 8, s / 8, min(w / 8 + dw / 8, 180.0), min(s / 8 + dh / 8, 90.0))
        for w, s, dw, dh in places
    ]
    data = MapData()
    data.add_boxes(np.array(boxes).reshape(-1, 4).__mul__(UNITS).astype(np.int32))
    expected = np.zeros((180 * CELLS_PER_DEG, 360 * CELLS_PER_DEG))
    for west, south, east, north in boxes:
        x0, x1 = (min(int((x + 180) * CELLS_PER_DEG), 1439) for x in (west, east))
        y0, y1 = (min(int((y + 90) * CELLS_PER_DEG), 719) for y in (south, north))
        expected[y0 : y1 + 1, x0 : x1 + 1] += 1
    assert (data.density() == expected).all()


def test_many_messages_are_sampled_evenly() -> None:
    data = MapData()
    for first in range(0, 90_000, 9_000):
        lon = np.arange(first, first + 9_000)
        data.add_messages(np.stack([lon, lon, lon, lon], axis=1).astype(np.int32), lon % 2)
    kept = np.round(data.points()[:, 0] * UNITS)
    assert 10_000 < len(kept) <= 20_000
    assert len(set(np.diff(kept[-5_000:]))) == 1


@pytest.mark.parametrize("width", [0.0, 0.4, 300.0])
def test_maps_of_any_extent_can_be_drawn(width: float, tmp_path: Path) -> None:
    lon = np.linspace(-width / 2, width / 2, 50) * UNITS
    box = np.stack([lon, lon / 4, lon, lon / 4], axis=1).astype(np.int32)
    data = MapData()
    data.add_boxes(box)
    data.add_messages(box, np.arange(50))
    data.draw(tmp_path / "map.png", "title")
    data = MapData()
    data.draw(tmp_path / "empty.png", "nothing")
    for name in ("map.png", "empty.png"):
        header = (tmp_path / name).read_bytes()[:24]
        assert int.from_bytes(header[16:20], "big") == 1600
        assert int.from_bytes(header[20:24], "big") == 900


PLACES = [(11.5, 48.1), (11.2, 48.9), (2.3, 48.8)]
TEXTS = ["Hot tea", "Cake", "Iced tea"]
COLUMNS = {"id": [1, 2, 3], "text": TEXTS, "lon": [11.5, 11.2, 2.3], "lat": [48.1, 48.9, 48.8]}
SUBSCRIPTIONS = {
    "id": ["ann", "ben"],
    "keywords": [["tea"], ["tea"]],
    "lon": [11.5, 2.3],
    "lat": [48.1, 48.8],
    "radius_m": [9000.0, 9000.0],
}
CAPTION = "2 boxes of subscriptions, 3 messages, 3 matches; 67% of the messages match a"


def tea_lovers() -> Engine:
    """Return an engine in which the three messages have 2, 0 and 1 matches."""
    engine = Engine()
    engine.subscribe(Subscription("ann", Rect(11, 48, 12, 49), "tea"))
    engine.subscribe(Subscription("ben", Circle(2.3, 48.8, radius_m=2_000_000), "tea", owner="b"))
    return engine


def shown(figure: Any) -> list[tuple[float, float, int]]:
    """Return longitude, latitude and number of matches of the dots of a map."""
    *_, unmatched, matched = figure.axes[0].collections
    gray = [(lon, lat, 0) for lon, lat in unmatched.get_offsets().tolist()]
    numbers = matched.get_array().tolist()
    return gray + [(*place, n) for place, n in zip(matched.get_offsets(), numbers, strict=True)]


def test_a_map_is_drawn_of_objects(tmp_path: Path) -> None:
    engine = tea_lovers()
    messages = [Message(i, PLACES[i], TEXTS[i]) for i in range(3)]
    for owners in (False, True):
        matches = engine.publish(messages, owners=owners)
        figure = draw_map(messages, matches, engine, title="Tea", path=tmp_path / "new" / "map.png")
        assert shown(figure) == [(11.2, 48.9, 0), (2.3, 48.8, 1), (11.5, 48.1, 2)]
    title, caption = (text.get_text() for text in figure.texts)
    assert title == "Tea"
    assert caption.startswith(CAPTION)
    assert (tmp_path / "new" / "map.png").read_bytes() == figure._repr_png_()


@pytest.mark.parametrize("frame", [pa.table, pd.DataFrame, pl.DataFrame])
def test_a_map_is_drawn_of_tables_and_frames(frame: Any) -> None:
    messages = frame(COLUMNS)
    matches = frame({"message_id": [1, 1, 3], "subscription_id": ["ann", "ben", "ben"]})
    figure = draw_map(messages, matches, frame(SUBSCRIPTIONS))
    assert shown(figure) == [(11.2, 48.9, 0), (2.3, 48.8, 1), (11.5, 48.1, 2)]
    assert figure.texts[1].get_text().startswith(CAPTION)


def test_a_map_leaves_out_rejected_rows_and_needs_no_subscriptions() -> None:
    messages = pa.table({**COLUMNS, "lat": [48.1, 95.0, 48.8]})
    published = tea_lovers().publish_table(messages)
    figure = draw_map(messages, published.matches)
    assert len(published.rejects) == 1
    assert figure.texts[1].get_text().startswith("0 boxes of subscriptions, 2 messages, 3 matches")
