"""How long a driver holds the versions that its jobs read.

Frames are lazy: a frame that `nearcast.spark.match` returned, or one derived from it, may be
evaluated at any time, and again. Python does not see when the last of them is gone, but Java does:
all plans share the object of their Python function. The driver keeps a weak reference to it, and
releases the version once Java has collected that object.
"""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from nearcast.spark.artifact.leases import Lease, StreamLease

__all__ = ["follow_query", "hold_while_planned", "release_unused", "released_on_error"]

_POLL_S = 1
_LISTENERS_MS = 10_000

_held: list[tuple[Lease, Any]] = []
_changing = threading.Lock()


def hold_while_planned(frame: DataFrame, lease: Lease) -> None:
    """Hold a lease as long as a plan contains the function that this frame maps batches with.

    If that function cannot be found, the lease is held until the process ends.
    """
    release_unused(frame.sparkSession)
    if lease.held:
        with _changing:
            _held.append((lease, _weak_function(frame)))


def release_unused(spark: SparkSession, *, collect: bool = False) -> None:
    """Release the leases of plans that are gone; ``collect`` makes Java look for them first."""
    with _changing:
        leases = list(_held)
        if leases and collect and spark._jvm is not None:
            _collect(spark)
        for entry in leases:
            lease, function = entry
            if not lease.held or _is_collected(function):
                lease.release()
                _held.remove(entry)


@contextmanager
def released_on_error(lease: Lease) -> Iterator[None]:
    """Release a lease if an error is raised."""
    try:
        yield
    except BaseException:
        lease.release()
        raise


def follow_query(query: StreamingQuery, lease: StreamLease) -> None:
    """Hold the versions that a stream may still read, until it ends.

    A micro-batch begins after the one before it. When one has ended, the next ones need only the
    version that was in force when it began, and later ones.
    """

    def follow() -> None:
        with suppress(Exception):  # the query failed, or the session was stopped
            while not query.awaitTermination(_POLL_S):
                progress = query.lastProgress
                if progress is not None:
                    began = datetime.fromisoformat(progress["timestamp"])
                    lease.advance(int(began.timestamp() * 1000))
        lease.release()

    threading.Thread(target=follow, name="nearcast-lease", daemon=True).start()


def _collect(spark: SparkSession) -> None:
    """Let Java find the plans that nobody needs any more.

    Two others may still have them: frames that wait for Python's garbage collector, and Spark's
    listeners, which hear of the end of a job a little later.
    """
    gc.collect()
    with suppress(AttributeError, TypeError, Py4JError):
        spark._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS_MS)
    assert spark._jvm is not None
    spark._jvm.System.gc()


def _weak_function(frame: DataFrame) -> Any:
    """Return Java's weak reference to the function of a frame that ``mapInArrow`` made, or None."""
    try:
        function = frame._jdf.queryExecution().analyzed().expressions().apply(0).func()
        assert frame.sparkSession._jvm is not None
        return frame.sparkSession._jvm.java.lang.ref.WeakReference(function)
    except (AttributeError, Py4JError):
        return None


def _is_collected(function: Any) -> bool:
    try:
        return function is not None and function.get() is None
    except (Py4JError, OSError):  # Java has ended, and its plans with it
        return True
