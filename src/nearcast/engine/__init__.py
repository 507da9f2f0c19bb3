"""Engines: live sets of subscriptions, whatever the index.

Subscriptions lie in *segments*, immutable columns with an index over them. A write adds a segment
(or a new buffer, the youngest segment, which has no index) and marks rows of older ones as dead;
one assignment makes it visible, as a whole. Readers take the state that they find and never wait.
A thread merges segments in the background, so that there are few of them.

- `engine` is what users see; `arguments` and `published` are what they pass and get.
- `store` has the writes; `upkeep`, its base, merges and counts weights; `rows`, the base of that,
  knows where rows are; `segment`, `buffer` and `directory` (where an id lies) are its parts;
  `merging` says when to merge.
- `moving/` is what happens over time: living messages, subscriptions that move, updates.
- `restore` gives subscriptions back; `explain` tells why one matches, and `trace` how it is found;
  `snapshot` is the engine on disk and `opening` opens it; `recording` is for those who replay
  events at their own times.
"""

from nearcast.engine.engine import Engine
from nearcast.engine.published import Moved, Published, Stats
from nearcast.engine.trace import NodeTrace, SegmentTrace, Trace

__all__ = ["Engine", "Moved", "NodeTrace", "Published", "SegmentTrace", "Stats", "Trace"]
