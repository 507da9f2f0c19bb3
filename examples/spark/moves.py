"""Follow messages that live for a while and subscribers who move: what begins and what ends.

Run it: python examples/spark/moves.py
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from nearcast.spark import build, open_stream, session, stream_updates, update_rates

spark = session("local[2]")
folder = Path(tempfile.mkdtemp())
subscriptions = spark.createDataFrame(
    [("ann", "coffee", 13.40, 52.52, 1_000.0), ("bob", "coffee", 11.57, 48.14, 1_000.0)],
    "id string, expression string, lon double, lat double, radius_m double",
)
build(subscriptions, folder / "index")

near_bob = {"lon": 11.571, "lat": 48.141}
offer = {"id": "offer", "text": "Free coffee for an hour", "time": 0, "ttl_s": 3600, **near_bob}
late = {"id": "late", "text": "Coffee to go", "time": 4000, "ttl_s": 600, **near_bob}
there = {"lon": 11.57, "lat": 48.14, "radius_m": 1_000.0}
eve = {"op": "insert", "id": "eve", "expression": "coffee", "time": 1800, **there}
hours: list[dict[str, list[dict[str, Any]]]] = [
    {"messages": [offer], "moves": []},
    {"messages": [], "moves": [{"subscription_id": "ann", "time": 900, **there}, eve]},
    {"messages": [late], "moves": [{"op": "delete", "id": "bob", "time": 4100}]},
]
for name in hours[0]:
    (folder / name).mkdir()
for hour, rows in enumerate(hours):
    for name, some in rows.items():
        lines = "\n".join(json.dumps(row) for row in some)
        (folder / name / f"{hour}.json").write_text(lines)
    query = stream_updates(
        open_stream(spark, str(folder / "messages")),
        open_stream(spark, str(folder / "moves"), rows="moves"),
        folder / "index",
        to=folder / "updates",
        checkpoint=folder / "checkpoint",
        rejects=folder / "rejects",
        available_now=True,
    )
    query.awaitTermination()
    print("progress:", [update_rates(progress) for progress in query.recentProgress])

for row in spark.read.parquet(str(folder / "updates")).orderBy("time", "sign").collect():
    what = "now matches" if row.sign > 0 else "no longer matches"
    print(f"{row.time:%H:%M} {row.message_id} {what} {row.subscription_id}")
