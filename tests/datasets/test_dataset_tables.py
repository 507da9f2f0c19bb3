"""Tables of a workload have the same content as its columns."""

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


def test_ids_and_times_count_from_first() -> None:
    workload = Workload("tweets", seed=3)
    table = message_table(workload, workload.messages(2, first=5), first=5)
    assert table["id"].to_pylist() == ["m5", "m6"]
    assert np.diff(table["time"].cast("int64").to_numpy()).tolist() == [1000]
    assert table.column_names == ["id", "text", "lon", "lat", "time"]
    boxes = message_table(workload, workload.messages(0, range_share=0.1), boxes=True)
    assert boxes.column_names == ["id", "text", "west", "south", "east", "north", "time"]
