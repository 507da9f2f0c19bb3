"""Time that stands still, so that moves and messages of many times are two calls.

Messages and moves that alternate need a call each, because what one gives depends on the other. But
if all messages are published first, then all moves made, and what expires expires at last, every
pair of a subscription and a message goes through the same states; only the times are wrong, and
they can be corrected: what a move changed before the message was published belongs to its
publication, and what it changed after its end belongs to that.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearcast.columns import BOOLEAN

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from nearcast.columns import Ids
    from nearcast.engine.moving.live import Live
    from nearcast.engine.store import Store

__all__ = ["Standstill"]


@dataclass(frozen=True)
class Standstill:
    """Lets the time of an engine stand still.

    Examples
    --------
    >>> from nearcast.engine import Engine
    >>> from nearcast.model import Message, Rect, Subscription
    >>> engine = Engine(clock=lambda: 9.0)
    >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
    >>> with engine.standstill().held():
    ...     _ = engine.publish(Message("m1", (0, 0), "Tea", time=1.0, ttl_s=2.0))
    ...     engine.move("s1", Rect(5, 5, 6, 6), time=4.0)
    [Update(time=4.0, subscription_id='s1', message_id='m1', sign=-1, score=None)]
    """

    store: Store
    live: Live

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing expire meanwhile; moves and messages have their own times."""
        with self.live.lock:
            self.live.stands = True
            try:
                yield
            finally:
                self.live.stands = False

    def allows(self, moved: Ids, published: Ids, until_us: int) -> bool:
        """Whether only times are wrong if time stands until then.

        That is not so if a ranked subscription moves, whose score would be that of another place,
        if a subscription expires, or if the id of a message that is published is in use.
        """
        with self.live.lock:
            if self.live.next_lapse_us <= until_us:
                return False
            kinds = self.store.kinds(self.store.known_handles(moved))
            return bool((kinds == BOOLEAN).all() and (self.live.messages.find(published) < 0).all())

    def lives(self, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return from when until when messages live that have not expired yet."""
        with self.live.lock:
            messages = self.live.messages
            number = messages.find(ids)
            return messages.start_us(number), messages.end_us(number)
