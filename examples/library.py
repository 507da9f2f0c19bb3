"""Match tables of messages with tables of subscriptions, without a live service.

Subscriptions come as a Polars frame, messages as a pandas frame with other column names. Two rows
are invalid: they come back as rejects, with the reason. The matches are an Arrow table, which the
script joins with the messages, counts, and writes as Parquet.

Run it: python examples/library.py [OUT]. It writes matches.parquet and rejects.parquet to the
folder OUT, or to a temporary one. It needs pandas and Polars.
"""

import sys
import tempfile
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import parquet

from nearcast import Engine

SUBSCRIPTIONS = pl.DataFrame(
    [
        # A circle, a polygon as WKT, a rectangle in which everything matches, and a latitude of 95.
        {"id": "ann", "expression": "flood OR storm*", "lon": 13.40, "lat": 52.52, "radius_m": 5e3},
        {
            "id": "ben",
            "expression": "storm NOT drill",
            "geometry": "POLYGON((9 53,11 53,10 54,9 53))",
        },
        {"id": "cid", "west": 11.3, "south": 48.0, "east": 11.8, "north": 48.3},
        {"id": "dan", "expression": "flood", "lon": 13.40, "lat": 95.0, "radius_m": 5e3},
    ],
    infer_schema_length=None,
)
POSTS = pd.DataFrame(
    [
        {"post": 101, "body": "Flood warning for the old town", "x": 13.41, "y": 52.51},
        {"post": 102, "body": "Stormy night, stay at home", "x": 13.38, "y": 52.53},
        {"post": 103, "body": "Storm: the ferries stay in port", "x": 9.99, "y": 53.55},
        {"post": 104, "body": "Storm drill at noon", "x": 9.99, "y": 53.55},
        {"post": 105, "body": "Sun, and free ice cream", "x": 11.57, "y": 48.14},
        {"post": 106, "body": None, "x": 11.57, "y": 48.14},
    ]
)


def report(what: str, rejects: pa.Table) -> None:
    """Print the rejected rows of a table."""
    for row in rejects.to_pylist():
        print(f"rejected {what} row {row['row']}: {row['field']} {row['reason']}")


def main(out: Path) -> None:
    """Match the two frames, and write what was found."""
    engine = Engine()
    wrong = engine.subscribe_table(SUBSCRIPTIONS).to_table()
    report("subscription", wrong)

    # columns= says where our columns are: the text of a message is in "body", and so on.
    names = {"id": "post", "text": "body", "lon": "x", "lat": "y"}
    published = engine.publish_table(POSTS, columns=names, threads=2)
    report("message", published.rejects.to_table())
    print(f"{published.messages} messages, {published.matches.num_rows} matches")

    # The matches are a table like any other: join it with the messages.
    posts = pa.Table.from_pandas(POSTS, preserve_index=False).select(["post", "body"])
    readable = published.matches.join(posts, "message_id", "post").sort_by("message_id")
    for row in readable.to_pylist():
        print(f"{row['subscription_id']} gets {row['message_id']}: {row['body']}")
    counted = published.matches.group_by("subscription_id").aggregate([([], "count_all")])
    for row in counted.sort_by("subscription_id").to_pylist():
        print(f"{row['subscription_id']} has {row['count_all']}")

    out.mkdir(parents=True, exist_ok=True)
    parquet.write_table(published.matches, out / "matches.parquet")
    parquet.write_table(
        pa.concat_tables([wrong, published.rejects.to_table()]), out / "rejects.parquet"
    )
    schema = parquet.read_schema(out / "matches.parquet")
    print("matches.parquet has", ", ".join(f"{field.name} ({field.type})" for field in schema))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
