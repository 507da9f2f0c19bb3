"""Changes and what was there before: what is new, what is gone, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from generated import SUBSCRIPTION_FIELDS

from nearcast.columns import NEVER, Ids
from nearcast.errors import UnsupportedFile
from nearcast.intake import read_subscriptions
from nearcast.segments.parts import Part
from nearcast.spark.workers.resolving import Found, Resolved, number_ids, resolve
from nearcast.text import Vocabulary

BOX = {"west": 0.0, "south": 0.0, "east": 1.0, "north": 1.0}
THERE = {"west": 5.0, "south": 5.0, "east": 6.0, "north": 6.0}
FARTHER = {"west": 7.0, "south": 8.0, "east": 9.0, "north": 9.0}
TEXT = pa.string()
TEA = {"keywords": ["tea"], **BOX}


def changes_table(rows: list[dict[str, Any]], kind: pa.DataType = TEXT) -> pa.Table:
    fields = {"op": pa.string(), "id": kind, "time": pa.timestamp("us", "UTC")}
    return pa.Table.from_pylist(rows, pa.schema([*fields.items(), *SUBSCRIPTION_FIELDS.items()]))


def found_in(registered: list[dict[str, Any]], table: pa.Table) -> Found:
    """Return what a shard with these subscriptions finds, as the job does it."""
    vocabulary = Vocabulary(["unused", "words"])
    kind = table.schema.field("id").type
    schema = pa.schema([("id", kind), *SUBSCRIPTION_FIELDS.items()])
    known, rejects = read_subscriptions(pa.Table.from_pylist(registered, schema), vocabulary)
    assert not len(rejects)
    number = number_ids(table).table.find(known.ids)
    rows = np.flatnonzero(number >= 0)
    return Found(Part(known.take(rows), vocabulary), number[rows])


def resolved(rows: list[dict[str, Any]], *shards: list[dict[str, Any]]) -> Resolved:
    kind = pa.int64() if any(isinstance(row.get("id"), int) for row in rows) else pa.string()
    table = changes_table(rows, kind)
    return resolve(table, [found_in(shard, table) for shard in shards])


def said(outcome: Resolved) -> dict[Any, tuple[set[tuple[str, ...]], list[list[float]]]]:
    """Return what every new subscription asks for: its words (all that must occur) and boxes."""
    subscriptions, vocabulary = outcome.part
    tokens = vocabulary.tokens().to_pylist()
    clauses = subscriptions.clauses
    answer: dict[Any, tuple[set[tuple[str, ...]], list[list[float]]]] = {}
    ids = subscriptions.ids.tolist()
    for clause, row in enumerate(clauses.row.tolist()):
        low, high = clauses.token_start[clause : clause + 2]
        words, boxes = answer.setdefault(ids[row], (set(), []))
        words.add(tuple(sorted(tokens[token] for token in clauses.token[low:high])))
        boxes.append((clauses.box[clause] / 1e7).tolist())
    return answer


def refused(outcome: Resolved) -> dict[int, tuple[str, str]]:
    rejects = outcome.rejects
    assert rejects.row.tolist() == sorted(rejects.row.tolist())
    return {
        row: (field, reason)
        for row, field, reason in zip(
            rejects.row.tolist(), rejects.field, rejects.reason, strict=True
        )
    }


def test_inserts_deletes_and_moves() -> None:
    outcome = resolved(
        [
            {"op": "insert", "id": "new", **TEA},
            {"op": "delete", "id": "old"},
            {"op": "move", "id": "other", **THERE},
        ],
        [{"id": "old", **TEA}, {"id": "kept", **TEA}],
        [{"id": "other", "expression": "milk OR cake", **BOX}],
    )
    assert said(outcome) == {
        "new": ({("tea",)}, [[0, 0, 1, 1]]),
        "other": ({("milk",), ("cake",)}, [[5, 5, 6, 6]] * 2),
    }
    assert sorted(outcome.dead.tolist()) == ["old", "other"]
    assert outcome.taken == {"insert": 1, "delete": 1, "move": 1}
    assert refused(outcome) == {}


def test_what_lies_in_several_shards_is_changed_once() -> None:
    shard = [{"id": 7, **TEA, "owner": "ann"}, {"id": 8, **TEA}]
    rows = [{"op": "move", "id": 7, **THERE}, {"op": "delete", "id": 8}]
    outcome = resolved(rows, shard, shard[::-1], [])
    assert said(outcome) == {7: ({("tea",)}, [[5, 5, 6, 6]])}
    assert sorted(outcome.dead.tolist()) == [7, 8]
    assert outcome.part.subscriptions.owner is not None
    assert outcome.part.subscriptions.owner.to_pylist() == ["ann"]


def test_expiry_and_owner_survive_a_move_of_old_and_new() -> None:
    until = 1_700_000_000_000_000
    kept = {"owner": "ann", "expires_at": until}
    outcome = resolved(
        [
            {"op": "insert", "id": "new", **TEA, **kept},
            {"op": "move", "id": "new", **THERE, "owner": "eve", "expires_at": 5},
            {"op": "move", "id": "old", **THERE, "keywords": ["cake"]},
            {"op": "insert", "id": "plain", **TEA},
        ],
        [{"id": "old", **TEA, **kept}],
    )
    subscriptions = outcome.part.subscriptions
    assert subscriptions.owner is not None
    found = dict(
        zip(
            subscriptions.ids.tolist(),
            zip(subscriptions.expires_us.tolist(), subscriptions.owner.to_pylist(), strict=True),
            strict=True,
        )
    )
    assert found == {"new": (until, "ann"), "old": (until, "ann"), "plain": (NEVER, None)}
    assert said(outcome)["old"] == ({("tea",)}, [[5, 5, 6, 6]]), "a move moves, no more"


def test_changes_of_one_id_are_taken_one_after_the_other() -> None:
    outcome = resolved(
        [
            {"op": "insert", "id": "a", **TEA},
            {"op": "delete", "id": "a"},
            {"op": "delete", "id": "b"},
            {"op": "insert", "id": "b", "keywords": ["milk"], **BOX},
            {"op": "move", "id": "b", **THERE},
            {"op": "move", "id": "c", **THERE},
            {"op": "delete", "id": "c"},
            {"op": "move", "id": "d", **THERE},
            {"op": "move", "id": "d", **FARTHER},
            {"op": "move", "id": "d", "geometry": "POINT (1 1)"},
        ],
        [{"id": one, **TEA} for one in "bcd"],
    )
    assert said(outcome) == {
        "b": ({("milk",)}, [[5, 5, 6, 6]]),
        "d": ({("tea",)}, [[7, 8, 9, 9]]),
    }
    assert sorted(outcome.dead.tolist()) == ["b", "c", "d"]
    assert outcome.taken == {"insert": 2, "delete": 3, "move": 4}


def test_times_come_before_the_order_of_rows() -> None:
    outcome = resolved(
        [
            {"op": "insert", "id": "a", "keywords": ["last"], **BOX},
            {"op": "delete", "id": "a", "time": 20},
            {"op": "insert", "id": "a", "time": 10, "keywords": ["first"], **BOX},
            {"op": "move", "id": "b", "time": 30, **THERE},
            {"op": "move", "id": "b", "time": 20, "lon": 0.0, "lat": 0.0, "radius_m": 1.0},
            {"op": "insert", "id": "c", "time": 5, **TEA},
            {"op": "delete", "id": "c", "time": 5},
        ],
        [{"id": "b", **TEA}],
    )
    assert refused(outcome) == {}
    assert said(outcome) == {
        "a": ({("last",)}, [[0, 0, 1, 1]]),
        "b": ({("tea",)}, [[5, 5, 6, 6]]),
    }


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"op": "insert", "id": "old", **TEA}, "id", "is registered already; delete it first"),
    ({"op": "delete", "id": "ghost"}, "id", "is not registered"),
    ({"op": "move", "id": "ghost", **THERE}, "id", "is not registered"),
    ({"op": "update", "id": "old", **TEA}, "op", "must be one of insert, delete, move"),
    ({"op": None, "id": "old", **TEA}, "op", "must be one of insert, delete, move"),
    ({"op": "insert", **TEA}, "id", "is missing"),
    ({"op": "delete", "id": ""}, "id", "must not be empty"),
    ({"op": "insert", "id": "x", **TEA, "west": 200.0}, "west", "180"),
    ({"op": "insert", "id": "x", "keywords": ["tea"]}, "place", "give west"),
    ({"op": "insert", "id": "x", "expression": "tea AND", **BOX}, "expression", "AND needs"),
    ({"op": "insert", "id": "x", "keywords": [" "], **BOX}, "keywords", "word"),
    ({"op": "move", "id": "old"}, "place", "give west"),
    ({"op": "move", "id": "old", "west": 1.0}, "south", "is missing"),
    ({"op": "move", "id": "old", "lon": 0.0, "lat": 91.0, "radius_m": 1.0}, "lat", "90"),
    ({"op": "move", "id": "old", "geometry": "POLYGON"}, "geometry", ""),
]


@pytest.mark.parametrize(("row", "field", "reason"), REFUSED)
def test_a_change_that_cannot_be_taken_is_refused(
    row: dict[str, Any], field: str, reason: str
) -> None:
    others: list[dict[str, Any]] = [
        {"op": "insert", "id": "a", **TEA},
        {"op": "delete", "id": "gone"},
    ]
    outcome = resolved([others[0], row, others[1]], [{"id": "old", **TEA}, {"id": "gone", **TEA}])
    [(number, (at, why))] = refused(outcome).items()
    assert (number, at) == (1, field)
    assert reason in why
    assert json.loads(outcome.rejects.record[0]) == {k: v for k, v in row.items() if v is not None}
    assert set(said(outcome)) == {"a"}
    assert outcome.dead.tolist() == ["gone"]
    assert outcome.taken == {"insert": 1, "delete": 1, "move": 0}


def test_every_row_is_taken_or_refused() -> None:
    rows = [row for row, *_ in REFUSED]
    outcome = resolved(rows, [{"id": "old", **TEA}])
    assert len(outcome.rejects) == len(rows)
    assert sum(outcome.taken.values()) == len(outcome.part.subscriptions) == len(outcome.dead) == 0


def test_a_refused_change_has_no_consequences_and_the_next_one_of_its_id_is_taken() -> None:
    outcome = resolved(
        [
            {"op": "insert", "id": "a", **TEA, "west": 200.0},
            {"op": "move", "id": "a", **THERE},
            {"op": "insert", "id": "a", "keywords": ["second"], **BOX},
            {"op": "insert", "id": "a", "keywords": ["third"], **BOX},
        ],
        [],
    )
    assert sorted(refused(outcome)) == [0, 1, 3]
    assert said(outcome) == {"a": ({("second",)}, [[0, 0, 1, 1]])}


def test_rows_without_any_id_are_refused_like_others() -> None:
    outcome = resolved([{"op": "delete"}, {"op": "insert", **TEA}], [])
    assert refused(outcome) == {0: ("id", "is missing"), 1: ("id", "is missing")}


def test_no_time_that_can_be_read_is_a_fault() -> None:
    table = pa.table({"op": ["delete"] * 2, "id": ["a"] * 2, "time": ["noon", "2024-05-01"]})
    outcome = resolve(table, [found_in([{"id": "a", **TEA}], table)])
    assert [field for field, _ in refused(outcome).values()] == ["time"]
    assert outcome.dead.tolist() == ["a"]


def test_operations_in_capitals_are_understood() -> None:
    assert resolved([{"op": " DELETE ", "id": "a"}], [{"id": "a", **TEA}]).taken["delete"] == 1


def test_deletes_need_no_places_but_everything_else_does() -> None:
    table = pa.table({"op": ["delete"], "id": [7]})
    assert resolve(table, [found_in([{"id": 7, **TEA}], table)]).dead.tolist() == [7]
    for operation in ("insert", "move"):
        table = pa.table({"op": ["delete", operation], "id": ["a", "b"]})
        with pytest.raises(UnsupportedFile, match="west, south, east, north"):
            resolve(table, [])


def test_integers_and_texts_are_different_ids() -> None:
    numbered = number_ids(changes_table([{"op": "delete", "id": "7"}]))
    assert numbered.table.find(Ids.of([7, "7"])).tolist() == [-1, 0]


def test_ids_that_come_again_have_one_number_and_faulty_ones_none() -> None:
    rows = [{"id": one} for one in ("b", None, "a", "b", "", "a")]
    assert number_ids(changes_table(rows)).number.tolist() == [0, -1, 1, 0, -1, 1]
