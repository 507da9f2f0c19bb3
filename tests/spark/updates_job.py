"""A stream of updates in a process of its own, so that it can be killed.

``python updates_job.py FOLDER``: FOLDER has the files of ``messages`` and ``moves``, and the
artifact ``index``; the updates go to ``out``. A micro-batch takes one file of each. The process
ends when all files have been taken.
"""

from __future__ import annotations

import sys
from pathlib import Path

from quick_spark import QUICK
from updates_pipeline import UpdatesPipeline

from nearcast.spark.session import session


def main(folder: Path) -> None:
    spark = session("local[1]", **QUICK, spark__driver__memory="512m")
    UpdatesPipeline(spark, folder).run(partitions=2)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
