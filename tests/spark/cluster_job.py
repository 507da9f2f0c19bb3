"""Prepare, build and match on executors of their own; prints what came out as JSON.

``python cluster_job.py FOLDER``: the folder holds ``subscriptions.parquet`` and
``messages.parquet``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from quick_spark import QUICK

from nearcast.spark.build import build
from nearcast.spark.match import match
from nearcast.spark.prepare import prepare
from nearcast.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLUSTER = "local-cluster[2,1,1024]"


def executors(frame: DataFrame) -> int:
    """Return how many processes a map over a frame ran in, each with its own parent."""
    return len(frame.mapInArrow(parents, "parent bigint").distinct().collect())


def parents(batches: Any) -> Any:
    """Tell which Java process started this worker's daemon."""
    import os

    import pyarrow as pa

    for batch in batches:
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        yield pa.record_batch({"parent": pa.array([int(daemon)] * batch.num_rows, pa.int64())})


def run(folder: Path) -> dict[str, Any]:
    spark = session(
        CLUSTER,
        **QUICK,
        spark__executor__memory="512m",
        spark__driver__memory="512m",
    )
    prepared = prepare(spark.read.parquet(str(folder / "messages.parquet")), "messages")
    prepared.rows.repartition(4).write.parquet(str(folder / "clean"))
    messages = spark.read.parquet(str(folder / "clean")).repartition(4)
    subscriptions = spark.read.parquet(str(folder / "subscriptions.parquet")).repartition(4)
    built = build(subscriptions, folder / "artifact", shards=3, messages=messages)
    told: dict[str, Any] = {
        "executors": executors(messages),
        "prepared": prepared.check(),
        "rejected": built.rejected,
        "duplicates": built.duplicates,
        "shards": len(built.version.shards),
    }
    for mode in ("replicated", "sharded"):
        observed = Observation()
        found = match(messages, folder / "artifact", mode=mode, observation=observed)
        told[mode] = sorted([row.message_id, row.subscription_id] for row in found.collect())
        told[f"{mode} messages"] = observed.get["messages"]
    spark.stop()
    return told


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]))))
