"""An index, a folder where files arrive, a stream over them, and its expected matches."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from nearcast import indexes
from nearcast.intake import read_messages, read_subscriptions
from nearcast.spark.build import build
from nearcast.spark.frames import plain_errors
from nearcast.spark.sources import open_stream
from nearcast.spark.stream import stream
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Pairs = Counter[tuple[Any, Any]]

WORDS = ["tea", "milk", "snow", "ice", "rain", "sun"]
PATIENCE_S = 300


def subscriptions(seed: int, count: int = 40, prefix: str | None = "s") -> pa.Table:
    """Draw subscriptions; without a prefix their ids are integers."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        west, south = draw.randrange(-180, 120, 20), draw.randrange(-90, 50, 20)
        rows.append(
            {
                "id": number if prefix is None else f"{prefix}{number}",
                "keywords": draw.sample(WORDS, draw.randint(1, 2)),
                "west": float(west),
                "south": float(south),
                "east": float(west + draw.choice([20, 60])),
                "north": float(south + draw.choice([20, 40])),
            }
        )
    return pa.Table.from_pylist(rows)


def messages(name: str, count: int = 25) -> pa.Table:
    """Draw the messages of a file; its name begins their ids."""
    draw = random.Random(name)
    return pa.Table.from_pylist(
        [
            {
                "id": f"{name}-{number}",
                "text": " ".join(draw.sample(WORDS, 4)),
                "lon": float(draw.randrange(-180, 181, 20)),
                "lat": float(draw.randrange(-90, 91, 20)),
            }
            for number in range(count)
        ]
    )


def scanned(wanted: pa.Table, *told: pa.Table) -> Pairs:
    """Return the matches as the scan finds them."""
    vocabulary = Vocabulary()
    rows, rejects = read_subscriptions(wanted, vocabulary)
    assert not len(rejects)
    batch, _ = read_messages(pa.concat_tables(told), now_us=0)
    found = indexes.create("scan").build(rows.clauses).match(batch.number(vocabulary))
    messages, subscriptions = batch.ids.tolist(), rows.ids.tolist()
    return Counter((messages[m], subscriptions[s]) for m, s in found.pairs())


def written(out: Path) -> Pairs:
    """Return all matches in the files of a folder, whatever Spark's log says of them."""
    tables = [parquet.read_table(path) for path in out.glob("*.parquet")]
    return pairs_of(row for table in tables for row in table.to_pylist())


def pairs_of(rows: Iterator[Any]) -> Pairs:
    return Counter((row["message_id"], row["subscription_id"]) for row in rows)


@dataclass(frozen=True)
class StreamPipeline:
    """A folder with an index, files of messages, and a stream from them."""

    spark: SparkSession
    folder: Path

    @property
    def index(self) -> Path:
        return self.folder / "index"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def build(self, table: pa.Table, **how: Any) -> None:
        build(self.spark.createDataFrame(table), self.index, **how)

    def put(self, *names: str) -> list[pa.Table]:
        """Put files of messages into the folder, each as a whole."""
        tables = [messages(name) for name in names]
        for name, table in zip(names, tables, strict=True):
            put_file(self.folder / "messages", name, table)
        return tables

    def messages(self) -> DataFrame:
        return open_stream(self.spark, str(self.folder / "messages"), files_per_batch=1)

    def start(self, **how: Any) -> StreamingQuery:
        given = {"to": self.out, "checkpoint": self.folder / "checkpoint", **how}
        return stream(self.messages(), self.index, **given)

    def run(self, **how: Any) -> StreamingQuery:
        """Match what is there."""
        query = self.start(available_now=True, **how)
        with plain_errors():
            assert query.awaitTermination(PATIENCE_S)
        return query


def put_file(folder: Path, name: str, table: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    fresh = folder.parent / name
    parquet.write_table(table, fresh)
    fresh.rename(folder / f"{name}.parquet")
