"""Segments: pieces of a set of subscriptions that messages are matched against.

A `Segment` is subscriptions with an index, a vocabulary and deaths. `deliver` matches a batch of
messages against several and returns ids. `Part` is subscriptions with a vocabulary but without an
index; `unite` joins parts whose vocabularies differ. A `Scorer` has what the scores of ranked
subscriptions depend on. The engine, ``nearcast match`` and the workers
of Spark share all of this.
"""

from nearcast.segments.delivery import Delivery, deliver
from nearcast.segments.parts import (
    Part,
    known_clauses,
    part_arrays,
    part_from_arrays,
    renumber,
    trimmed,
    unite,
)
from nearcast.segments.routing import routing_clauses
from nearcast.segments.scorer import Scorer, count_tokens
from nearcast.segments.segment import LATEST, Segment
from nearcast.segments.word_clauses import has_derived, word_clauses

__all__ = [
    "LATEST",
    "Delivery",
    "Part",
    "Scorer",
    "Segment",
    "count_tokens",
    "deliver",
    "has_derived",
    "known_clauses",
    "part_arrays",
    "part_from_arrays",
    "renumber",
    "routing_clauses",
    "trimmed",
    "unite",
    "word_clauses",
]
