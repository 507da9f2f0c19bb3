"""Build an index over subscriptions in a folder: as a whole, or in shards chosen by the planner.

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

sharded = build(rows, index, shards=3, messages=messages)
print(f"version {sharded.version.number}: {sharded.version.mode}")
print(sharded.plan)
