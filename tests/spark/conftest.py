"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nearcast.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session("local[2]", spark__sql__shuffle__partitions="3", spark__driver__memory="1g")
    yield made
    made.stop()
