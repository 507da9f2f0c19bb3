"""Count document frequencies of tokens, overall and by the cells of a grid.

Counts two thousand messages in one pass, writes the statistics to a folder, and prints words that
are frequent in one place but not elsewhere.

Run it: python examples/spark/statistics.py
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
token, count_here = found.frequency_in(int(paris))
# Share of the occurrences in this cell; + 2 so that rare words are not chosen by chance.
most_local = np.argsort(-(count_here / (frequency[token] + 2)), kind="stable")[:5]
print("around Paris:", ", ".join(found.vocabulary.token(int(t)) for t in token[most_local]))
