"""Spark's Python daemon with our packages imported, so that the workers it forks start at once.

A worker ends when a task fails, and many tests make tasks fail.
"""

import pyspark.daemon

import nearcast.spark.workers.changing
import nearcast.spark.workers.cleaning
import nearcast.spark.workers.drawing
import nearcast.spark.workers.matching
import nearcast.spark.workers.updating  # noqa: F401

if __name__ == "__main__":
    pyspark.daemon.manager()
