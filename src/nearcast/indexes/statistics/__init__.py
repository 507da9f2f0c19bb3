"""Statistics of tokens and places, counted once and then used to build indexes.

`Statistics` is the stored result: document frequencies of tokens over all and by grid cell, the
number of documents of each cell, and the extents of boxes. `Tally` counts documents of one process;
Spark jobs (``nearcast spark statistics``) merge the `Counts` of many. The orders of tokens
(`nearcast.indexes.token_order`), the quadtrees and ``ap-tree`` can read statistics instead of
counting, through their option ``statistics``.
"""

from nearcast.indexes.statistics.statistics import Statistics
from nearcast.indexes.statistics.tally import BINS, Counts, Grid, Tally, bounding_box

__all__ = ["BINS", "Counts", "Grid", "Statistics", "Tally", "bounding_box"]
