"""The broker through the eyes of Spark: make topics, write them, read them, run streams."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Record = tuple[str | None, str | None]
"""Key and value."""

Value = str | bytes | None
"""What may be written as a value: bytes need not be text."""

PARTITIONS = 2
READY_S = 30.0
RUN_S = 120


class Kafka:
    """A broker at this address, and a session that has the connector."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        self.spark = spark
        self.address = address
        self.options = {"kafka.bootstrap.servers": address}

    def uri(self, topic: str) -> str:
        """Return the address by which Nearcast knows a topic."""
        return f"kafka://{self.address}/{topic}"

    def create(self, *topics: str) -> None:
        """Make topics of `PARTITIONS` partitions, and return when each can be written to.

        A producer that meets a topic in the making has several batches on the way; if the first is
        refused and the second is not, the broker takes the first for a straggler ever after.
        """
        jvm: Any = self.spark._jvm  # what Spark's connector brings along can make topics as well
        admin_package = jvm.org.apache.kafka.clients.admin
        settings = jvm.java.util.Properties()
        settings.put("bootstrap.servers", self.address)
        made, starts = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
        for topic in topics:
            made.add(admin_package.NewTopic(topic, PARTITIONS, 1))
            for number in range(PARTITIONS):
                partition = jvm.org.apache.kafka.common.TopicPartition(topic, number)
                starts.put(partition, admin_package.OffsetSpec.earliest())
        admin = admin_package.Admin.create(settings)
        try:
            admin.createTopics(made).all().get()
            _await_leaders(admin, starts)
        finally:
            admin.close()

    def produce(self, topic: str, records: Iterable[tuple[str | None, Value]]) -> None:
        """Append records to the topic."""
        rows = [(key, v.encode() if isinstance(v, str) else v) for key, v in records]
        frame = self.spark.createDataFrame(rows, "key string, value binary")
        frame.write.format("kafka").options(**self.options, topic=topic).save()

    def table(self, topic: str) -> DataFrame:
        """Return all that is in the topic now."""
        return self.spark.read.format("kafka").options(**self.options, subscribe=topic).load()

    def consume(self, topic: str) -> list[Record]:
        """Return the records that are in the topic now, in no order."""
        columns = [F.col(name).cast("string") for name in ("key", "value")]
        return [(row.key, row.value) for row in self.table(topic).select(*columns).collect()]

    def stream(self, topic: str, most: int = 1000) -> DataFrame:
        """Return the topic as a stream from its first record, at most so many in a batch."""
        options = {**self.options, "subscribe": topic, "startingOffsets": "earliest"}
        reader = self.spark.readStream.format("kafka").options(**options)
        return reader.option("maxOffsetsPerTrigger", most).load()

    def run(self, frame: DataFrame, topic: str, checkpoint: Path) -> StreamingQuery:
        """Write what the stream has now to the topic, and return when that is done."""
        writer = frame.writeStream.format("kafka").options(**self.options, topic=topic)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(RUN_S), f"the stream did not end within {RUN_S} s"
        return query


def _await_leaders(admin: Any, starts: Any) -> None:
    """Ask the leader of every partition for its first offset until all of them know it."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            admin.listOffsets(starts).all().get()
            return
        except Exception as error:  # py4j has one class for all of Java's
            if "UnknownTopicOrPartition" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
