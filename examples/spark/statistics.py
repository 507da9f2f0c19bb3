"""Which words are frequent, and where: document frequencies over all and by the cells of a grid.

Counts two thousand messages in one pass, writes the statistics as a folder, and asks what people
write about in one place that they do not write about elsewhere.
"""

import tempfile
from pathlib import Path

import numpy as np
from pyarrow import parquet

from nearcast.columns import UNITS
from nearcast.datasets import Workload
from nearcast.datasets.tables import message_table
from nearcast.spark.session import session
from nearcast.spark.statistics import statistics

spark = session("local[2]")
folder = Path(tempfile.mkdtemp())
places = Workload("places", seed=7)
parquet.write_table(message_table(places, places.messages(2_000)), folder / "messages.parquet")

messages = spark.read.parquet(str(folder / "messages.parquet"))
found = statistics(messages, "messages", folder / "statistics", across=36, up=18)
frequency = found.vocabulary.frequency
print(f"{found.documents:,} messages, {len(frequency):,} tokens")
print("most frequent:", ", ".join(found.vocabulary.tokens()[:8].to_pylist()))

[paris] = found.cell_of([[int(2.35 * UNITS), int(48.86 * UNITS)]])
token, here = found.frequency_in(int(paris))
# How much more often than elsewhere; a little is added so that rare words do not win by chance.
special = np.argsort(-(here / (frequency[token] + 2)), kind="stable")[:5]
print("around Paris:", ", ".join(found.vocabulary.token(int(t)) for t in token[special]))
