"""Draw subscriptions for an experiment from messages; a seed always gives the same rows.

Draws a thousand subscriptions from three hundred messages twice, with different partitions, and
shows that the results are the same.

Run it: python examples/spark/subscriptions.py
"""

import tempfile
from pathlib import Path

from pyarrow import parquet

from nearcast.datasets import Workload
from nearcast.datasets.tables import message_table
from nearcast.spark.session import session
from nearcast.spark.subscriptions import subscriptions

spark = session("local[2]")
path = str(Path(tempfile.mkdtemp()) / "messages.parquet")
places = Workload("places", seed=7)
parquet.write_table(message_table(places, places.messages(300)), path)

messages = spark.read.parquet(path)
one = subscriptions(messages.repartition(2), 1_000, seed=42)
other = subscriptions(messages.repartition(5), 1_000, seed=42)
print(f"{one.count():,} subscriptions, {one.exceptAll(other).count()} differ between partitionings")
for row in one.orderBy("id").limit(3).collect():
    print(f"{row.id}: {' '.join(row.keywords)}, {row.east - row.west:.1f} degrees wide")
