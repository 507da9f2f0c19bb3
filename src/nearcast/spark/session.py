"""The Spark session of the pipeline, and its requirements."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.errors import NearcastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

__all__ = ["java_program", "java_version", "session"]

MIN_JAVA = 17
INSTALL_JAVA = (
    f"Spark needs Java {MIN_JAVA} or newer; install it (on Debian: apt-get install "
    "openjdk-17-jre-headless; on macOS: brew install openjdk@17) or set JAVA_HOME"
)

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.shuffle.partitions": "8",
}
_LOCAL = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}


def session(
    master: str | None = None, *, packages: Sequence[str] = (), **settings: str
) -> SparkSession:
    """Return the Spark session of this process; create one if there is none.

    Parameters
    ----------
    master
        Where to run: ``local[2]``, ``spark://...``. By default the setting of ``spark-submit`` or
        of the configuration, or ``local[*]``.
    packages
        Maven coordinates of packages that Spark fetches, such as `nearcast.spark.kafka.connector`.
    settings
        Further settings; write dots as double underscores: ``spark__driver__memory="4g"``.

    Raises
    ------
    NearcastError
        When PySpark or a Java that can run it is missing.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        _require_packages(running, packages)
        return running
    _require_java()
    chosen = {"spark.master": master} if master else {}
    if (master or "local").startswith("local"):
        chosen |= _LOCAL
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    given = {name.replace("__", "."): value for name, value in settings.items()}
    if packages:
        given["spark.jars.packages"] = ",".join(packages)
    # Workers run this interpreter, unless the cluster is configured otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("nearcast")
    for name, value in (_SETTINGS | chosen | given).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _require_packages(running: SparkSession, packages: Sequence[str]) -> None:
    """Raise an error if a running session was started without these packages."""
    there = running.conf.get("spark.jars.packages", "") or ""
    missing = [package for package in packages if package not in there.split(",")]
    if missing:
        raise NearcastError(
            f"the running session has no {', '.join(missing)}; pass packages to the first session "
            "of a process"
        )


def java_program() -> str | None:
    """Return the path of the Java that Spark uses, None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def java_version() -> int | None:
    """Return the major version of the Java that Spark uses, None if there is none."""
    program = java_program()
    if program is None:
        return None
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def _require_java() -> None:
    version = java_version()
    if version is None or version < MIN_JAVA:
        found = "found none" if version is None else f"found {version}"
        raise NearcastError(f"{INSTALL_JAVA} ({found})")
