"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from quick_spark import QUICK

from nearcast.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session("local[2]", **QUICK, spark__driver__memory="1g")
    yield made
    made.stop()


@pytest.fixture(autouse=True, scope="session")
def no_fsync() -> Iterator[None]:
    """Do not wait for the disk: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
