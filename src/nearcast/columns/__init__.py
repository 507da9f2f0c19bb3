"""What users say, as flat arrays: the only form that indexes, engines and Spark tasks see.

A set of subscriptions is `Clauses` (token ids of all clauses end to end, boxes, the subscription
row of each clause, exact `Shapes`) plus what belongs to the subscription as a whole (`Ids`, expiry,
owner, `Rankings`); a batch of messages is `Messages`; an answer is `Matches`. `Ranked` is what an
index of ranked subscriptions is built over. All arrays are read-only, so that a kernel is compiled
for one type only, whether its arrays were just made or memory-mapped.
"""

from nearcast.columns.arrays import (
    EARTH_RADIUS_M,
    NEVER,
    TOLERANCE_M,
    UNITS,
    WORLD,
    at_cache_line,
    chain,
    distinct,
    frozen,
    gather,
    read_only,
    starts,
)
from nearcast.columns.arrow import row_array, string_array
from nearcast.columns.clauses import (
    Clauses,
    Conjunctions,
    Regions,
    Shapes,
    clauses_of_lists,
    place_conjunctions,
)
from nearcast.columns.growing import GrowingArray, GrowingClauses, GrowingRankings
from nearcast.columns.messages import NO_WEIGHTS, Matches, Messages, join_scores
from nearcast.columns.rankings import (
    BOOLEAN,
    CENTIMETERS,
    DISTANCES,
    KINDS,
    OVERLAP,
    PROXIMITY,
    SHARE_UNITS,
    SIMILARITIES,
    Ranked,
    Rankings,
    Scoring,
)
from nearcast.columns.subscriptions import Ids, Subscriptions

__all__ = [
    "BOOLEAN",
    "CENTIMETERS",
    "DISTANCES",
    "EARTH_RADIUS_M",
    "KINDS",
    "NEVER",
    "NO_WEIGHTS",
    "OVERLAP",
    "PROXIMITY",
    "SHARE_UNITS",
    "SIMILARITIES",
    "TOLERANCE_M",
    "UNITS",
    "WORLD",
    "Clauses",
    "Conjunctions",
    "GrowingArray",
    "GrowingClauses",
    "GrowingRankings",
    "Ids",
    "Matches",
    "Messages",
    "Ranked",
    "Rankings",
    "Regions",
    "Scoring",
    "Shapes",
    "Subscriptions",
    "at_cache_line",
    "chain",
    "clauses_of_lists",
    "distinct",
    "frozen",
    "gather",
    "join_scores",
    "place_conjunctions",
    "read_only",
    "row_array",
    "starts",
    "string_array",
]
