"""Insert, delete and move subscriptions while an index is in use; invalid changes are reported.

Run it: python examples/spark/changes.py
"""

import tempfile
from pathlib import Path

from nearcast.spark import build, changes, match, session

BOX_COLUMNS = "west double, south double, east double, north double"

spark = session("local[2]")
index = Path(tempfile.mkdtemp()) / "index"
alps, coast = (5.0, 45.0, 16.0, 48.0), (-10.0, 36.0, -6.0, 44.0)
build(
    spark.createDataFrame(
        [("ann", ["snow"], *alps), ("ben", ["snow"], *alps)],
        f"id string, keywords array<string>, {BOX_COLUMNS}",
    ),
    index,
)
messages = spark.createDataFrame(
    [("m1", "Snow in the mountains", 9.8, 46.8), ("m2", "No snow at the beach", -8.7, 40.6)],
    "id string, text string, lon double, lat double",
)

done = changes(
    spark.createDataFrame(
        [
            ("delete", "ann", None, None, None, None, None),
            ("move", "ben", None, *coast),
            ("insert", "eve", ["beach"], *coast),
            ("delete", "nobody", None, None, None, None, None),
        ],
        f"op string, id string, keywords array<string>, {BOX_COLUMNS}",
    ),
    index,
)
print(f"version {done.version.number}: {done.taken}, {done.rejected} rejected")
for row in done.rejects.collect():
    print(f"rejected: {row.field} {row.reason}: {row.record}")
for row in match(messages, index).collect():
    print(f"{row.message_id} matches {row.subscription_id}")
print("before, with version 1:", match(messages, index, version=1).count(), "matches")
