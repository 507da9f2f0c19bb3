"""A broker and a Spark session that can talk to it; skipped where they cannot be had."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyspark
import pytest

from nearcast.spark.session import session

from .broker import running
from .client import Kafka
from .jars import BROKER, KAFKA, Unavailable, connectors, fetch, fetch_first

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

_USED = pytest.StashKey[str]()

# As in tests/spark/quick_spark.py: small jobs take less time, and their answers are the same.
QUICK = {
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
    "spark__sql__shuffle__partitions": "2",
    "spark__sql__adaptive__enabled": "false",
}


@pytest.fixture(scope="session")
def asked() -> None:
    if not os.environ.get("NEARCAST_KAFKA"):
        pytest.skip("fetches a Kafka broker and needs a process of its own: make tests-kafka")


@pytest.fixture(scope="session")
def broker(asked: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[str]]:
    """Start a broker; its address is known when it has started, beside the Spark session."""
    try:
        jars = fetch(BROKER)
    except Unavailable as reason:
        pytest.skip(f"NOTHING WAS TESTED WITH KAFKA: no broker could be had ({reason})")
    folder = tmp_path_factory.mktemp("broker")
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        yield pool.submit(stack.enter_context, running(folder, jars))


@pytest.fixture(scope="session")
def spark(asked: None, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    if pyspark.SparkContext._gateway is not None:
        pytest.fail("Java runs in this process already, without Kafka's jars: make tests-kafka")
    try:
        used, jars = fetch_first(connectors(pyspark.__version__))
    except Unavailable as reason:
        pytest.skip(f"NOTHING WAS TESTED WITH KAFKA: no connector could be had ({reason})")
    request.config.stash[_USED] = used.name
    made = session(
        "local[2]",
        spark__jars=",".join(map(str, jars)),
        spark__driver__memory="1g",
        **QUICK,
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def kafka(broker: Future[str], spark: SparkSession) -> Kafka:
    return Kafka(spark, broker.result())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    used = terminalreporter.config.stash.get(_USED, None)
    if used:
        terminalreporter.write_line(f"Kafka {KAFKA} with PySpark {pyspark.__version__} and {used}")
