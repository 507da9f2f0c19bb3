"""Merge changes into an index, and drop the versions that nobody reads.

Run it: python examples/spark/compact.py
"""

import tempfile
from pathlib import Path

from nearcast.datasets import Workload
from nearcast.datasets.tables import subscription_table
from nearcast.spark import build, changes, compact, session

tweets = Workload("tweets", seed=7)
spark = session("local[2]")
index = Path(tempfile.mkdtemp()) / "index"
rows = spark.createDataFrame(subscription_table(tweets, tweets.subscriptions(1_000)))
build(rows, index)
changes(rows.limit(10).selectExpr("'delete' AS op", "id"), index)
print("versions:", sorted(path.name for path in (index / "versions").iterdir()))

done = compact(spark, index)
print(f"version {done.version.number} has {done.version.rows} subscriptions in one segment")
print(f"dropped versions: {done.dropped}; removed folders: {done.removed}")
print("versions:", sorted(path.name for path in (index / "versions").iterdir()))
