"""A stream in a process of its own, so that it can be killed: ``python stream_job.py FOLDER``.

FOLDER has the files of ``messages`` and the artifact ``index``; the matches go to ``out``. A
micro-batch takes one file. The process ends when all files have been matched.
"""

from __future__ import annotations

import sys
from pathlib import Path

from quick_spark import QUICK

from nearcast.spark.session import session
from nearcast.spark.sources import open_stream
from nearcast.spark.stream import stream


def main(folder: Path) -> None:
    spark = session("local[1]", **QUICK, spark__driver__memory="512m")
    messages = open_stream(spark, str(folder / "messages"), files_per_batch=1)
    query = stream(
        messages,
        folder / "index",
        to=folder / "out",
        checkpoint=folder / "checkpoint",
        available_now=True,
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
