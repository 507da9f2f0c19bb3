"""What users say: subscriptions and messages, regions and expressions, matches and updates.

All of these are immutable and checked when they are made: whatever exists can be registered or
published. A region is one of `Rect`, `Circle`, `Polygon` and `Point`; `region` makes one from
GeoJSON, WKT, WKB or four numbers. An expression becomes clauses (`parse`), each a `Conjunction`.
The tokenizer is not known here: what needs one takes it as an argument, any function from a text to
its tokens.
"""

from nearcast.model.checks import Id, Time, Tokenize, time_from_us, time_us
from nearcast.model.expressions import MAX_CLAUSES, Conjunction, parse, to_text
from nearcast.model.matches import Match, Update
from nearcast.model.messages import Message
from nearcast.model.regions import Circle, Point, Polygon, Rect, Region, region
from nearcast.model.subscriptions import Subscription

__all__ = [
    "MAX_CLAUSES",
    "Circle",
    "Conjunction",
    "Id",
    "Match",
    "Message",
    "Point",
    "Polygon",
    "Rect",
    "Region",
    "Subscription",
    "Time",
    "Tokenize",
    "Update",
    "parse",
    "region",
    "time_from_us",
    "time_us",
    "to_text",
]
