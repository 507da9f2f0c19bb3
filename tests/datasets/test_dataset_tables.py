"""Tables of a workload have the same content as its columns."""

from __future__ import annotations

import numpy as np
import pytest

from nearcast import indexes
from nearcast.columns import CENTIMETERS, SHARE_UNITS, UNITS, Ranked
from nearcast.datasets import DATASETS, Workload
from nearcast.datasets.tables import message_table, subscription_table
from nearcast.intake import read_messages, read_subscriptions
from nearcast.text import Vocabulary


@pytest.mark.parametrize("dataset", sorted(DATASETS))
@pytest.mark.parametrize("range_share", [0.0, 0.001])
def test_tables_give_the_same_matches_as_columns(dataset: str, range_share: float) -> None:
    workload = Workload(dataset, seed=3, keywords=(1, 2), box_share=(0.01, 0.2))
    clauses, messages = workload.subscriptions(400), workload.messages(30, range_share=range_share)
    vocabulary = Vocabulary()
    table = subscription_table(workload, clauses)
    subscribed, subscription_rejects = read_subscriptions(table, vocabulary)
    table = message_table(workload, messages, boxes=range_share > 0)
    batch, message_rejects = read_messages(table, now_us=0)
    assert len(subscription_rejects) == len(message_rejects) == 0
    assert (subscribed.clauses.box == clauses.box).all()
    assert (batch.box == messages.box).all()
    scan = indexes.create("scan")
    expected = scan.build(clauses).match(messages).pairs()
    assert scan.build(subscribed.clauses).match(batch.number(vocabulary)).pairs() == expected
    assert expected


def test_ranked_tables_have_the_values_of_the_columns() -> None:
    workload = Workload("tweets", seed=3)
    distances = (1_000.0, 1_000_000.0)
    near = workload.ranked(200, max_distance_m=distances)
    table = subscription_table(workload, near)
    rankings = near.rankings
    assert (
        table["delta"].to_numpy() * SHARE_UNITS
    ).round().tolist() == rankings.text_share.tolist()
    assert (table["tau"].to_numpy() * SHARE_UNITS).round().tolist() == rankings.threshold.tolist()
    meters = table["max_distance_m"].to_numpy()
    assert (meters * CENTIMETERS).round().tolist() == rankings.max_distance_cm.tolist()
    assert ((table["lon"].to_numpy() * UNITS).round() == near.clauses.box[:, 0]).all()
    cover = workload.ranked(200, "overlap")
    table = subscription_table(workload, cover)
    shares = ((1 - table["alpha"].to_numpy()) * SHARE_UNITS).round()
    assert shares.tolist() == cover.rankings.text_share.tolist()
    assert ((table["north"].to_numpy() * UNITS).round() == cover.clauses.box[:, 3]).all()


def test_a_mixed_table_has_the_rows_of_all_kinds() -> None:
    workload = Workload("places", seed=3)
    mixed = workload.mixed(100, proximity={"text_share": (0.25, 0.25)}, first=7)
    table = subscription_table(workload, mixed, first=7)
    assert [table[name].null_count for name in ("west", "delta", "alpha")] == [34, 66, 67]
    assert set(table["delta"].drop_null().to_pylist()) == {0.25}
    near, cover = workload.ranked(100, first=7), workload.ranked(100, "overlap", first=7)
    kind = mixed.rankings.kind
    assert kind[:3].tolist() == [1, 2, 0]
    assert (mixed.clauses.box[kind == 1] == near.clauses.box[kind == 1]).all()
    assert (mixed.clauses.box[kind != 1] == cover.clauses.box[kind != 1]).all()
    assert (mixed.rankings.threshold[kind == 0] == 0).all()
    chosen = mixed.of_kind("overlap")
    assert isinstance(chosen, Ranked)
    assert (chosen.rankings.text_share == cover.rankings.text_share[kind == 2]).all()
    none = subscription_table(workload, workload.ranked(0), kinds=("boolean", "overlap"))
    assert none.column_names == [
        "id",
        "keywords",
        "west",
        "south",
        "east",
        "north",
        "alpha",
        "theta",
    ]


def test_ids_and_times_count_from_first() -> None:
    workload = Workload("tweets", seed=3)
    table = message_table(workload, workload.messages(2, first=5), first=5)
    assert table["id"].to_pylist() == ["m5", "m6"]
    assert np.diff(table["time"].cast("int64").to_numpy()).tolist() == [1000]
    assert table.column_names == ["id", "text", "lon", "lat", "time"]
    boxes = message_table(workload, workload.messages(0, range_share=0.1), boxes=True)
    assert boxes.column_names == ["id", "text", "west", "south", "east", "north", "time"]
