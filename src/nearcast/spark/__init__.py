"""The data pipeline on Spark: from raw records to matches, on a laptop or a cluster.

Every step over a whole data set is a job over frames:

- `read_files`: messages, subscriptions or changes of files, by the rules of ``nearcast match``.
- `prepare` (or `clean`, for ``frame.transform``): clean raw messages or subscriptions.
- `statistics`: token frequencies, in all and by grid cell.
- `subscriptions`: subscriptions drawn from messages.
- `build`: build an index over subscriptions in a folder, whole or in shards.
- `match`: match messages, in batches and in streams.
- `stream`: start a streaming query that survives crashes.
- `stream_updates`: the same for messages that live and subscriptions that move.
- `changes` and `compact`: change an index while it is used.

The code of Spark's workers (`workers/`), the index on disk (`artifact/`) and the shards (`shards/`)
need neither Spark nor Java.
"""

from nearcast.extras import require

require("spark", "nearcast.spark")

from nearcast.spark.build import Built, build
from nearcast.spark.changes import Changed, changes
from nearcast.spark.compact import Compacted, compact
from nearcast.spark.files import read_files
from nearcast.spark.kafka import connector
from nearcast.spark.match import match
from nearcast.spark.prepare import Prepared, clean, prepare
from nearcast.spark.session import session
from nearcast.spark.sources import open_stream
from nearcast.spark.statistics import statistics
from nearcast.spark.stream import rates, stream, stream_rejects
from nearcast.spark.subscriptions import subscriptions
from nearcast.spark.updates import stream_updates, update_rates

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
    "read_files",
    "session",
    "statistics",
    "stream",
    "stream_rejects",
    "stream_updates",
    "subscriptions",
    "update_rates",
]
