"""An index, folders where messages and moves arrive, and a stream of updates from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from moving_events import LIVING_FIELDS, SUBSCRIPTIONS, Batch, Update, table_of, update_of
from pyarrow import parquet
from stream_pipeline import PATIENCE_S, put_file

from nearcast.spark.frames import plain_errors
from nearcast.spark.sources import open_stream
from nearcast.spark.updates import stream_updates, update_rates

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TIME = pa.timestamp("us", "UTC")
CHANGES = {"op": pa.string(), "time": TIME, **SUBSCRIPTIONS}


@dataclass(frozen=True)
class UpdatesPipeline:
    """A folder with an index, files of messages and of moves, and a stream from them."""

    spark: SparkSession
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def put(self, name: str, batch: Batch) -> None:
        """Put a file of messages and one of changes into their folders."""
        put_batch(self.folder, name, batch)

    def frames(self, files_per_batch: int | None = 1) -> tuple[DataFrame, DataFrame]:
        return (
            open_stream(self.spark, str(self.folder / "messages"), files_per_batch=files_per_batch),
            open_stream(
                self.spark,
                str(self.folder / "moves"),
                files_per_batch=files_per_batch,
                rows="moves",
            ),
        )

    def run(self, *, files_per_batch: int | None = 1, **how: Any) -> StreamingQuery:
        """Apply what is there."""
        given: dict[str, Any] = {
            "to": self.out,
            "checkpoint": self.folder / "checkpoint",
            "rejects": self.folder / "rejects",
            **how,
        }
        frames = self.frames(files_per_batch)
        query = stream_updates(*frames, self.folder / "index", available_now=True, **given)
        with plain_errors():
            assert query.awaitTermination(PATIENCE_S)
        return query


def put_batch(folder: Path, name: str, batch: Batch) -> None:
    """Write a file of messages and one of changes, each as a whole."""
    put_file(folder / "messages", name, table_of(batch.messages, LIVING_FIELDS))
    put_file(folder / "moves", name, table_of(batch.changes, CHANGES))


def told(query: StreamingQuery) -> list[dict[str, float]]:
    found = (update_rates(progress) for progress in query.recentProgress)
    return [rate for rate in found if rate is not None]


def updates_in(out: Path) -> Counter[Update]:
    """Return all updates in the files of a folder, whatever Spark's log says of them."""
    tables = [parquet.read_table(path) for path in out.glob("*.parquet")]
    return updates_of(row for table in tables for row in table.to_pylist())


def updates_of(rows: Iterable[Any]) -> Counter[Update]:
    return Counter(update_of(row) for row in rows)
