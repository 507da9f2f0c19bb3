"""Settings with which small Spark jobs take less time; they change no answer."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark

from nearcast.spark.session import java_program

__all__ = ["QUICK", "configure"]

QUICK = {
    # A few rows need few tasks, and no plan that is made again after every stage.
    "spark__sql__shuffle__partitions": "2",
    "spark__sql__adaptive__enabled": "false",
}

# A process that lives for a minute is done sooner without the second compiler of Java, and a query
# over a few rows without code that is generated and compiled for it.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.executor.extraJavaOptions": _JAVA,
}
_FOLDER = Path(__file__).parents[2] / "out" / "tests" / "spark"


def configure() -> None:
    """Let every Spark that this process or its children start have these settings.

    Java loads Spark's classes from an archive, which takes half of the time of a start. The first
    call in a checkout makes it.
    """
    program = java_program()
    if program is None:
        return
    java = subprocess.run([program, "-version"], capture_output=True, check=False).stderr
    made_of = hashlib.sha256(java + f"{pyspark.__version__} {sys.prefix}".encode())
    archive = _FOLDER / f"{made_of.hexdigest()[:16]}.jsa"
    if not archive.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        part = archive.with_suffix(f".{os.getpid()}")
        _start_with(f"-XX:ArchiveClassesAtExit={part}")
        job = Path(__file__).with_name("archived_job.py")
        subprocess.run([sys.executable, str(job)], capture_output=True, check=True)
        if part.exists():
            part.replace(archive)
    # -Xlog: an archive that does not fit is not used, without a word among those of the program.
    _start_with(f"-Xlog:disable -XX:SharedArchiveFile={archive}")


def _start_with(options: str) -> None:
    settings = _SETTINGS | {"spark.driver.extraJavaOptions": f"{_JAVA} {options}"}
    words = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*words, "pyspark-shell"])
    os.environ["SPARK_LAUNCHER_OPTS"] = _JAVA  # a Java that finds out how to start Java
