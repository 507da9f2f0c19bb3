"""The live server: messages in over HTTP, and to every subscriber the events that match.

Everything that happens is a record of one log; see `log`. Matching, delivery and the state of
subscriptions are derived from it.
"""

from nearcast.extras import require

require("server", "nearcast.server")
