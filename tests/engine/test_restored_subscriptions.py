"""Subscriptions come back from an engine as they were, whatever their time and region."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nearcast import Engine, Polygon, Rect, Subscription

WIDE = [(100.1234567, -40), (260, -41.7654321), (255, 43)]


@pytest.mark.parametrize(
    "expires_at",
    [
        datetime.max,
        datetime.max.replace(tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_990),
        253_402_300_799,
        253_402_300_799.5,
    ],
)
def test_the_last_times_come_back(expires_at: Any) -> None:
    engine = Engine()
    subscription = Subscription("a", Rect(0, 0, 1, 1), ["tea"], expires_at=expires_at)
    engine.subscribe(subscription)
    restored = engine.get("a")
    assert restored.expires_us == subscription.expires_us
    assert [each.expires_us for each in engine] == [subscription.expires_us]


@pytest.mark.parametrize(
    "polygon",
    [
        Polygon([[(170, 0), (190, 0.1234567), (180, 10)]]),
        Polygon([WIDE, [(210, 0), (220, -9), (215, -1)]]),
        Polygon([[[(170, 0), (190, 0), (180, 10)]], [[(0, 0), (1, 0), (0, 1)]]]),
        Polygon([[(-180, 0), (180, 0.5), (0, 10)]]),
    ],
)
def test_polygons_come_back_exactly(polygon: Polygon) -> None:
    engine = Engine()
    engine.subscribe(Subscription("a", polygon, ["tea"]))
    assert engine.get("a").region == polygon
    assert [each.region for each in engine] == [polygon]
