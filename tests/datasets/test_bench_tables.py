"""Tables of a workload say the same as its columns."""

from __future__ import annotations

import numpy as np
import pytest

from nearcast import indexes
from nearcast.datasets import DATASETS, Workload
from nearcast.datasets.tables import message_table, subscription_table
from nearcast.intake import read_messages, read_subscriptions
from nearcast.text import Vocabulary


@pytest.mark.parametrize("dataset", sorted(DATASETS))
@pytest.mark.parametrize("range_share", [0.0, 0.001])
def test_tables_match_as_columns_do(dataset: str, range_share: float) -> None:
    workload = Workload(dataset, seed=3, keywords=(1, 2), box_share=(0.01, 0.2))
    clauses, messages = workload.subscriptions(400), workload.messages(30, range_share=range_share)
    vocabulary = Vocabulary()
    subscribed, none = read_subscriptions(subscription_table(workload, clauses), vocabulary)
    table = message_table(workload, messages, boxes=range_share > 0)
    batch, nothing = read_messages(table, now_us=0)
    assert len(none) == len(nothing) == 0
    assert (subscribed.clauses.box == clauses.box).all()
    assert (batch.box == messages.box).all()
    scan = indexes.create("scan")
    expected = scan.build(clauses).match(messages).pairs()
    assert scan.build(subscribed.clauses).match(batch.number(vocabulary)).pairs() == expected
    assert expected


def test_ids_and_times_go_on_from_the_first_row() -> None:
    workload = Workload("tweets", seed=3)
    table = message_table(workload, workload.messages(2, first=5), first=5)
    assert table["id"].to_pylist() == ["m5", "m6"]
    assert np.diff(table["time"].cast("int64").to_numpy()).tolist() == [1000]
    assert table.column_names == ["id", "text", "lon", "lat", "time"]
    boxes = message_table(workload, workload.messages(0, range_share=0.1), boxes=True)
    assert boxes.column_names == ["id", "text", "west", "south", "east", "north", "time"]
