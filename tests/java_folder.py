"""The current folder of Spark's Java process, to which it resolves relative paths."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["java_folder"]


@contextmanager
def java_folder(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Let Java resolve relative paths to a folder, as a process that was started there does."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    before = jvm.java.lang.System.getProperty("user.dir")

    def enter(name: str) -> None:
        jvm.java.lang.System.setProperty("user.dir", name)
        local.setWorkingDirectory(jvm.org.apache.hadoop.fs.Path(name))

    enter(str(folder))
    try:
        yield
    finally:
        enter(before)
