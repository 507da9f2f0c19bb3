"""Subscriptions come back from an engine as they were, whatever their time and region."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nearcast import Engine, Message, Overlap, Polygon, Rect, Subscription
from nearcast.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

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


def test_words_come_back_as_they_were_given(tmp_path: Path) -> None:
    """With a stemmer, tokens are not enough: some stems have another stem."""
    place = Rect(0, 0, 1, 1)
    half = Overlap(0.5, 0.1)
    asked = [
        Subscription("list", place, ["Generalizations", "flooding*"]),
        Subscription("said", place, expression='"Old towns" Flooding NOT (drills OR "x y")'),
        Subscription("both", place, ["Floods"], "NOT Drills", ranking=half, owner="ann"),
        Subscription("scope", place, "Hot teas", scope="a"),
        Subscription("all", place),
    ]
    table = pa.table(
        {
            "id": ["t1", "t2", "bad"],
            "keywords": [["Hot Teas"], None, ["!"]],
            "expression": [None, "Floodings OR tea", None],
            **{name: [0.0] * 3 for name in ("west", "south")},
            **{name: [1.0] * 3 for name in ("east", "north")},
        }
    )
    engine = Engine.open(tmp_path / "j", journal=True, tokenizer="stem:english")
    engine.subscribe(asked[:3])
    engine.subscribe(asked[3:])
    assert len(engine.subscribe_table(table)) == 1
    wanted = {one.id: (one.keywords, one.expression) for one in asked}
    wanted |= {"t1": (("Hot Teas",), None), "t2": (None, "Floodings OR tea")}
    texts = ["generalizations flooding", "old town flooding", "hot tea", "flood", "drill flood"]
    said = [Message(n, (0, 0), text, scope="a") for n, text in enumerate(texts)]

    def pairs(one: Engine) -> set[Any]:
        return {(m.message_id, m.subscription_id) for m in one.publish(said)}

    expected = pairs(engine)
    assert {id for _, id in expected} == wanted.keys()
    engine.close()
    engine = Engine.open(tmp_path / "j", journal=True)
    for again in range(3):
        assert {one.id: (one.keywords, one.expression) for one in engine} == wanted
        for id in wanted:
            assert (engine.get(id).keywords, engine.get(id).expression) == wanted[id]
        assert pairs(engine) == expected
        if again == 0:  # registering what came back means the same
            for id in wanted:
                engine.replace(engine.get(id))
            engine.settle()
        else:
            for id in ("list", "said", "t1"):
                engine.move(id, Rect(5, 5, 6, 6))
                engine.move(id, place)
            engine.checkpoint()
            engine.close()
            engine = Engine.open(tmp_path / "j", journal=True)
    engine.close()
    without = Engine(tokenizer="stem:english", keep_words=False)
    without.subscribe(asked)
    without.save(tmp_path / "without")
    without = Engine.open(tmp_path / "without")
    without.replace(asked[0])
    assert without.get("list").expression == "flooding* AND general"
    assert all(s.subscriptions.typed is None for s in without._store.state.segments)
    with pytest.raises(StorageError, match="keep_words=True, not False"):
        Engine.open(tmp_path / "j", journal=True, keep_words=False)
    plain = Engine()
    plain.subscribe(asked)
    assert all(s.subscriptions.typed is None for s in plain._store.state.segments)
