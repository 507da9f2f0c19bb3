"""Turn raw records into clean messages: other names, numbers as text, invalid rows, duplicates.

Run it: python examples/spark/prepare.py
"""

import json
import tempfile
from pathlib import Path

from nearcast.spark.prepare import prepare
from nearcast.spark.session import session

RAW = [
    {"key": "t1", "body": "Flood\nwarning  for the old town", "place": {"x": "13.74", "y": 51.05}},
    {"key": "t2", "body": "Coffee and cake", "place": {"x": "11.57", "y": 48.14}, "at": 1700000000},
    {"key": "t2", "body": "Coffee and cake", "place": {"x": "11.57", "y": 48.14}, "at": 1700000000},
    {"key": "t3", "body": "Where am I?", "place": {"x": "181", "y": 0}},
    {"key": "t4", "place": {"x": "0", "y": 0}},
]

spark = session("local[2]")
folder = Path(tempfile.mkdtemp())
(folder / "raw.json").write_text("\n".join(json.dumps(record) for record in RAW))

names = {"id": "key", "text": "body", "lon": "place.x", "lat": "place.y", "time": "at"}
prepared = prepare(spark.read.json(str(folder / "raw.json")), "messages", names)
prepared.rows.write.parquet(str(folder / "messages"))
print("counts:", prepared.check())
for row in spark.read.parquet(str(folder / "messages")).orderBy("id").collect():
    print("clean:", row["id"], repr(row["text"]), row["lon"], row["lat"], row["time"])
for row in prepared.rejects.orderBy("row").collect():
    print("rejected:", row["field"], row["reason"], row["record"])
