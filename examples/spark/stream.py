"""Match a stream of files as they arrive; a restarted stream continues where it stopped.

Run it: python examples/spark/stream.py
"""

import json
import tempfile
from pathlib import Path

from nearcast.spark import build, open_stream, rates, session, stream

spark = session("local[2]")
folder = Path(tempfile.mkdtemp())
subscriptions = spark.createDataFrame(
    [("ann", "flood OR storm", 11.57, 48.14, 50_000.0)],
    "id string, expression string, lon double, lat double, radius_m double",
)
build(subscriptions, folder / "index")

arriving = folder / "arriving"
arriving.mkdir()
for hour, text in enumerate(["Storm warning", "Sunny again", "Flood in the old town"]):
    message = {"id": f"m{hour}", "text": text, "lon": 11.6, "lat": 48.1}
    (arriving / f"{hour}.json").write_text(json.dumps(message))
    query = stream(
        open_stream(spark, str(arriving)),
        folder / "index",
        to=str(folder / "matches"),
        checkpoint=str(folder / "checkpoint"),
        available_now=True,
    )
    query.awaitTermination()
    print("progress:", [rates(progress) for progress in query.recentProgress])

for row in spark.read.parquet(str(folder / "matches")).orderBy("message_id").collect():
    print(f"{row.message_id} matches {row.subscription_id}")
