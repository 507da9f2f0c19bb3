"""Kafka as a source and a sink of streams: which connector a session needs."""

from __future__ import annotations

import importlib.metadata

from nearcast.errors import NearcastError

__all__ = ["connector"]

SCALA = "2.13"
"""The Scala that Spark 4 is built with, a part of the names of its modules."""


def connector(version: str | None = None) -> str:
    """Return the Maven coordinate of Spark's Kafka connector, for `nearcast.spark.session.session`.

    Spark fetches packages when its Java process starts, so they are to be named for the first
    session of a Python process; later is too late.

    Parameters
    ----------
    version
        The version of Spark; left out, that of the PySpark that is installed. The connector calls
        Spark's insides: an earlier one may read a topic as a table and yet fail on a stream.

    Raises
    ------
    NearcastError
        When no version is given and PySpark is not installed.

    Examples
    --------
    >>> connector("4.0.0")
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0'

    With a broker at hand, ``session(packages=[connector()])`` gives a session in which
    ``readStream.format("kafka")`` and ``writeStream.format("kafka")`` work.
    """
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{version or _installed()}"


def _installed() -> str:
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise NearcastError(
            "the version of PySpark is unknown, as it is not installed; give a version, such as "
            "connector('4.0.0'), or install it with: pip install 'nearcast[spark]'"
        ) from None
