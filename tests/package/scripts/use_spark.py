"""Build an index and match a small DataFrame with Spark: python use_spark.py FOLDER."""

from __future__ import annotations

import sys

from nearcast.spark import build, match, session

QUICK = {
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
    "spark__sql__shuffle__partitions": "1",
    "spark__sql__adaptive__enabled": "false",
}
"""A job of seconds is done sooner without Java's second compiler and without generated code."""

SUBSCRIPTIONS = [("ann", "coffee", 13.4, 52.5, 2000.0), ("ben", "tea", 0.0, 0.0, 2000.0)]
MESSAGES = [("m1", "Fresh coffee", 13.4, 52.51), ("m2", "Hot tea", 13.4, 52.51)]


def main(folder: str) -> None:
    """Build, match, and write the matches."""
    spark = session("local[1]", **QUICK)
    columns = "lon double, lat double"
    subscribed = f"id string, keywords string, {columns}, radius_m double"
    build(spark.createDataFrame(SUBSCRIPTIONS, subscribed), folder)
    messages = spark.createDataFrame(MESSAGES, f"id string, text string, {columns}")
    found = match(messages, folder).collect()
    sys.stdout.write("\n".join(f"{row.message_id} {row.subscription_id}" for row in found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
