"""Living messages and waiting updates on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.engine.moving.updates import Updates
from nearcast.indexes.contract import stored_options
from nearcast.storage import (
    ids_from_arrays,
    ids_to_arrays,
    messages_from_arrays,
    messages_to_arrays,
    nested,
    prefixed,
)
from nearcast.text import Sequences, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.columns import Ids, Messages
    from nearcast.engine.moving.live import Live
    from nearcast.engine.store import Store

    Arrays = Mapping[str, NDArray[Any]]

__all__ = ["StoredLive"]


@dataclass(frozen=True, eq=False)
class StoredLive:
    """What an engine keeps of time: living messages, waiting updates, the present.

    Subscriptions that have moved are saved as a segment. ``since`` says how many of the messages
    came before a subscription that only wants what follows.
    """

    index: str
    options: dict[str, Any]
    report: str
    present_us: int
    ids: Ids
    messages: Messages
    words: Sequences
    start_us: NDArray[np.int64]
    end_us: NDArray[np.int64]
    vocabulary: Arrays
    since: tuple[Ids, NDArray[np.int64]]
    outbox: Updates

    @classmethod
    def of(cls, live: Live, store: Store) -> StoredLive:
        """Return what is to be saved; the caller holds the lock."""
        messages = live.messages
        numbers = messages.numbers
        first = live.since.by_handle
        handle, ids = store.placed(np.array([*first], np.int32))
        since = np.array([first[one] for one in handle.tolist()], np.int64)
        return cls(
            live.builder.index.name,
            stored_options(live.builder.options),
            "all" if live.reports else "moves",
            live.present_us,
            messages.ids(numbers),
            messages.index.messages(numbers),
            messages.words(numbers),
            messages.start_us(numbers),
            messages.end_us(numbers),
            messages.vocabulary.arrays(),
            (ids, np.searchsorted(messages.order(numbers), since)),
            live.outbox.look(),
        )

    def restore(self, live: Live, store: Store) -> None:
        """Give all of it to an engine that has the subscriptions already."""
        messages = live.messages
        messages.vocabulary.add(Vocabulary.from_arrays(self.vocabulary).tokens().to_pylist())
        numbers, _ = messages.index.publish(self.messages)
        messages.note(self.ids, numbers, self.words, self.start_us, self.end_us)
        live.present_us = self.present_us
        ids, since = self.since
        live.since.put(store.known_handles(ids), since)
        live.outbox.add(self.outbox)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save."""
        outbox, words = self.outbox, self.words._asdict()
        if not len(self.words.typed):
            del words["typed"]
        score = np.full(len(outbox.sign), np.nan) if outbox.score is None else outbox.score
        return {
            "start_us": self.start_us,
            "end_us": self.end_us,
            **prefixed("words", words),
            **prefixed("vocabulary", self.vocabulary),
            **prefixed("ids", ids_to_arrays(self.ids)),
            **prefixed("messages", messages_to_arrays(self.messages)),
            **prefixed("since.ids", ids_to_arrays(self.since[0])),
            "since.order": self.since[1],
            **prefixed("outbox.subscription", ids_to_arrays(outbox.subscription)),
            **prefixed("outbox.message", ids_to_arrays(outbox.message)),
            "outbox.time_us": outbox.time_us,
            "outbox.sign": outbox.sign,
            "outbox.score": score,
        }

    def meta(self) -> dict[str, Any]:
        """Return the rest, for JSON."""
        return {
            "index": self.index,
            "options": self.options,
            "report": self.report,
            "present_us": self.present_us,
        }

    @classmethod
    def read(cls, arrays: Arrays, meta: Mapping[str, Any]) -> StoredLive:
        """Return what was saved."""
        score = arrays["outbox.score"]
        outbox = Updates(
            arrays["outbox.time_us"],
            ids_from_arrays(nested("outbox.subscription", arrays)),
            ids_from_arrays(nested("outbox.message", arrays)),
            arrays["outbox.sign"],
            None if np.isnan(score).all() else score,
        )
        messages = messages_from_arrays(nested("messages", arrays))
        words = nested("words", arrays)
        return cls(
            meta["index"],
            dict(meta["options"]),
            meta["report"],
            int(meta["present_us"]),
            ids_from_arrays(nested("ids", arrays)),
            messages,
            # Older folders have no order of words: none of their phrases is found.
            Sequences(**words) if words else Sequences(messages.token_start, messages.token),
            arrays["start_us"],
            arrays["end_us"],
            nested("vocabulary", arrays),
            (ids_from_arrays(nested("since.ids", arrays)), arrays["since.order"]),
            outbox,
        )
