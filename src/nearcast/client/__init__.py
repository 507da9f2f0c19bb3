"""The client of a live server: publish, subscribe, and receive each event once.

`Client` waits for answers; `AsyncClient` is for asyncio. Both have the same methods, made of the
same parts: requests and answers are data (`exchange`, `publishing`, `subscriptions`,
`administration`), streams are a state and a generator that says what to do next (`events`), and
the two clients only send and wait.

What goes wrong is a `NearcastClientError`::

    NearcastError
    └── NearcastClientError
        ├── ProblemError                            the server refused a request
        ├── ConnectionFailed (also ConnectionError)  there was no answer
        ├── InvalidAnswer                           the answer is not one of a Nearcast server
        └── EventsLost                              events are gone, with on_gap="raise"
"""

from nearcast.extras import require

require("client", "nearcast.client")

from nearcast.client.asynchronous import AsyncClient, AsyncEventStream
from nearcast.client.blocking import Client, EventStream
from nearcast.client.errors import (
    ConnectionFailed,
    EventsLost,
    InvalidAnswer,
    NearcastClientError,
    ProblemError,
)
from nearcast.client.events import Event, EventMatch, Gap, Polled
from nearcast.client.publishing import Published, Reach, Rejected
from nearcast.client.subscriptions import Imported, StoredSubscription
from nearcast.client.terms import Terms

__all__ = [
    "AsyncClient",
    "AsyncEventStream",
    "Client",
    "ConnectionFailed",
    "Event",
    "EventMatch",
    "EventStream",
    "EventsLost",
    "Gap",
    "Imported",
    "InvalidAnswer",
    "NearcastClientError",
    "Polled",
    "ProblemError",
    "Published",
    "Reach",
    "Rejected",
    "StoredSubscription",
    "Terms",
]
