"""The demo of the server: sample subscriptions all over the world, and a stream of messages.

`samples` has the subscriptions, the messages and the routes of those that move; `stream` lets them
happen in a server. The example ``examples/live_server.py`` uses the same samples over HTTP.
"""

from nearcast.server.demo.samples import Mover, sample_messages, sample_movers, sample_subscriptions
from nearcast.server.demo.stream import play

__all__ = ["Mover", "play", "sample_messages", "sample_movers", "sample_subscriptions"]
