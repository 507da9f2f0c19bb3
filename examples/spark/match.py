"""Match messages with an index: every matching pair once, and the cost of finding them.

Run it: python examples/spark/match.py
"""

import tempfile
from pathlib import Path

from pyspark.sql import Observation

from nearcast.spark import build, match, session

spark = session("local[2]")
index = Path(tempfile.mkdtemp()) / "index"
subscriptions = spark.createDataFrame(
    [
        ("ann", ["ipad", "discount"], 11.5, 48.1, 11.7, 48.2),
        ("ben", ["coffee"], 5.0, 47.0, 15.0, 55.0),
        ("eve", ["discount"], -180.0, -90.0, 180.0, 90.0),
    ],
    "id string, keywords array<string>, west double, south double, east double, north double",
)
messages = spark.createDataFrame(
    [
        (1, "Discount on every iPad, today only", 11.57, 48.14),
        (2, "Coffee, and a discount on cake", 13.4, 52.5),
        (3, "Coffee again", 2.35, 48.86),
    ],
    "id int, text string, lon double, lat double",
)

build(subscriptions, index)
observed = Observation()
for row in messages.transform(match, index, observation=observed).orderBy("message_id").collect():
    print(f"message {row.message_id} matches {row.subscription_id}")
print("observed:", observed.get)
