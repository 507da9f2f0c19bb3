"""The objects that users create and get: subscriptions, messages, regions, matches, updates.

They are immutable, and validated when they are created. A region is a `Rect`, a `Circle`, a
`Polygon` or a `Point`; `region` makes one from GeoJSON, WKT, WKB or four numbers. `Proximity` and
`Overlap` make a subscription a ranked one. `parse` converts an expression to clauses, each a
`Conjunction`. Each object has a JSON form: ``to_dict`` and
``from_dict``. Functions that need a tokenizer take any function from a text to its tokens.
"""

from nearcast.model.checks import Id, Time, Tokenize, time_from_us, time_us
from nearcast.model.explanations import Explanation, WeighedWord
from nearcast.model.expressions import MAX_CLAUSES, Conjunction, parse, to_text
from nearcast.model.matches import Match, OwnedMatch, Update
from nearcast.model.messages import Message
from nearcast.model.rankings import Overlap, Proximity, Ranking
from nearcast.model.regions import Circle, Point, Polygon, Rect, Region, region
from nearcast.model.subscriptions import Subscription
from nearcast.model.syntax import expression_hints

__all__ = [
    "MAX_CLAUSES",
    "Circle",
    "Conjunction",
    "Explanation",
    "Id",
    "Match",
    "Message",
    "Overlap",
    "OwnedMatch",
    "Point",
    "Polygon",
    "Proximity",
    "Ranking",
    "Rect",
    "Region",
    "Subscription",
    "Time",
    "Tokenize",
    "Update",
    "WeighedWord",
    "expression_hints",
    "parse",
    "region",
    "time_from_us",
    "time_us",
    "to_text",
]
