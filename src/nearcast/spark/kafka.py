"""Kafka as a source and a sink of streams: the connector that a session needs."""

from __future__ import annotations

import importlib.metadata

from nearcast.errors import NearcastError

__all__ = ["connector"]

SCALA = "2.13"
"""The Scala version that Spark 4 is built with, part of the names of its modules."""


def connector(version: str | None = None) -> str:
    """Return the Maven coordinate of Spark's Kafka connector, for `nearcast.spark.session.session`.

    Spark fetches packages when its Java process starts, so pass them to the first session of a
    Python process.

    Parameters
    ----------
    version
        The version of Spark, by default that of the installed PySpark. The connector calls Spark's
        internals: one for another version may read a topic as a table and still fail on a stream.

    Raises
    ------
    NearcastError
        When no version is given and PySpark is not installed.

    Examples
    --------
    >>> connector("4.0.0")
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0'

    With a broker, ``session(packages=[connector()])`` gives a session in which
    ``readStream.format("kafka")`` and ``writeStream.format("kafka")`` work.
    """
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{version or _installed()}"


def _installed() -> str:
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise NearcastError(
            "PySpark is not installed, so its version is unknown; give a version, such as "
            "connector('4.0.0'), or install it with: pip install 'nearcast[spark]'"
        ) from None
