"""Engines: live sets of subscriptions, whatever the index.

Subscriptions lie in *segments*, immutable columns with an index over them. A write adds a segment
(or a new buffer, the youngest segment, which has no index) and marks rows of older ones as dead;
one assignment makes it visible, as a whole. Readers take the state that they find and never wait.
A thread merges segments in the background, so that there are few of them.

- `engine` is what users see; `sources`, `admission` and `delivery` are the way in and out.
- `store` holds the segments and the one lock of its writers; `segment`, `linear` (the index of the
  buffer) and `directory` (where an id lies) are its parts; `merging` says when to merge.
- `live_messages` and `moving` are for subscriptions that move; `restore` gives subscriptions back;
  `snapshot` is the engine on disk.
"""

from nearcast.engine.engine import Engine
from nearcast.engine.published import Published, Stats

__all__ = ["Engine", "Published", "Stats"]
