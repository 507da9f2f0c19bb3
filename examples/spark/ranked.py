"""Match messages with boolean and ranked subscriptions in one index; ranked ones have a score.

Run it: python examples/spark/ranked.py
"""

import tempfile
from pathlib import Path

from nearcast.spark import build, changes, match, session

spark = session("local[2]")
index = Path(tempfile.mkdtemp()) / "index"
fields = (
    "id string, keywords array<string>, lon double, lat double, radius_m double, "
    "delta double, tau double, max_distance_m double"
)
built = build(
    spark.createDataFrame(
        [
            ("ann", ["coffee"], 11.57, 48.14, 2_000.0, None, None, None),
            # Half of the score is for words, half for being near; 0.6 is enough.
            ("ben", ["coffee", "cake"], 11.58, 48.13, None, 0.5, 0.6, 10_000.0),
            ("eve", ["coffee", "tea"], 11.50, 48.10, None, 0.5, 0.6, 10_000.0),
        ],
        fields,
    ),
    index,
    similarity="containment",
)
print(f"version {built.version.number}: {built.version.source['ranked']} ranked subscriptions")

messages = spark.createDataFrame(
    [(1, "Coffee and cake", 11.575, 48.137)], "id int, text string, lon double, lat double"
)


def show() -> None:
    """Print the matches, the best first."""
    for row in match(messages, index).orderBy("score", ascending=False).collect():
        score = "no score" if row.score is None else f"{row.score:.2f}"
        print(f"message {row.message_id} matches {row.subscription_id}: {score}")


show()
# A move of a subscription that is ranked by distance needs a point. Weights stay as they are.
moved = [("move", "eve", 11.575, 48.137)]
done = changes(spark.createDataFrame(moved, "op string, id string, lon double, lat double"), index)
print(f"version {done.version.number}: eve comes nearer")
show()
