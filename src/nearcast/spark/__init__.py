"""The data pipeline on Spark: from raw records to delivered matches, on a laptop or a cluster.

Everything that touches a whole data set is a job over frames:

- `prepare` (or `clean`, for ``frame.transform``): raw records to messages or subscriptions.
- `statistics`: how often tokens occur, over all and place by place.
- `subscriptions`: subscriptions drawn from messages.
- `build`: subscriptions to an index in a folder, whole or in shards.
- `match`: messages to matches, in batches and in streams.
- `stream`: a running query from messages to matches, through crashes.
- `changes` and `compact`: an index that goes on changing.

What runs inside Spark's workers (`workers/`), the index on disk (`artifact/`) and the planning of
shards (`shards/`) need neither Spark nor Java.
"""

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("nearcast.spark needs PySpark: pip install 'nearcast[spark]'") from error

from nearcast.spark.build import Built, build
from nearcast.spark.changes import Changed, changes
from nearcast.spark.compact import Compacted, compact
from nearcast.spark.kafka import connector
from nearcast.spark.match import match
from nearcast.spark.prepare import Prepared, clean, prepare
from nearcast.spark.records import read_records
from nearcast.spark.session import session
from nearcast.spark.sources import open_stream
from nearcast.spark.statistics import statistics
from nearcast.spark.stream import rates, stream, stream_rejects
from nearcast.spark.subscriptions import subscriptions

__all__ = [
    "Built",
    "Changed",
    "Compacted",
    "Prepared",
    "build",
    "changes",
    "clean",
    "compact",
    "connector",
    "match",
    "open_stream",
    "prepare",
    "rates",
    "read_records",
    "session",
    "statistics",
    "stream",
    "stream_rejects",
    "subscriptions",
]
