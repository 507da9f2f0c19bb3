"""Subscriptions become an index in a folder: whole, or in shards that the planner cuts.

Run it: python examples/spark/build.py
"""

import tempfile
from pathlib import Path

from nearcast.datasets import Workload
from nearcast.datasets.tables import message_table, subscription_table
from nearcast.spark import build, session

tweets = Workload("tweets", seed=7)
spark = session("local[2]")
rows = spark.createDataFrame(subscription_table(tweets, tweets.subscriptions(3_000)))
messages = spark.createDataFrame(message_table(tweets, tweets.messages(500)))
index = Path(tempfile.mkdtemp()) / "index"

whole = build(rows, index)
print(f"version {whole.version.number}: {whole.version.mode}, {whole.version.rows:,} subscriptions")

cut = build(rows, index, shards=3, messages=messages)
print(f"version {cut.version.number}: {cut.version.mode}")
print(cut.plan)
