"""statistics."""

from nearcast.indexes.statistics.statistics import Statistics
from nearcast.indexes.statistics.tally import BINS, Counts, Grid, Tally

__all__ = ["BINS", "Counts", "Grid", "Statistics", "Tally"]
