"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from quick_spark import QUICK, configure

from nearcast.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers get it from their parent
        configure()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    here = str(Path(__file__).parent)
    path = os.environ.get("PYTHONPATH")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([here, path] if path else [here]))
        made = session(
            "local[2]",
            **QUICK,
            spark__driver__memory="1g",
            spark__python__daemon__module="preloaded_daemon",
        )
    yield made
    made.stop()


@pytest.fixture(autouse=True, scope="session")
def no_fsync() -> Iterator[None]:
    """Do not wait for the disk: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
