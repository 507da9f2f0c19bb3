"""A difference in words: the message, the subscription, what each side has, and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from nearcast import indexes
from nearcast.columns import NEVER, Ids, Scoring, Subscriptions
from nearcast.engine.explain import explain_row
from nearcast.errors import StorageError
from nearcast.segments import Scorer, Segment
from nearcast.server.log.records import MESSAGES, message_at
from nearcast.server.matching.postings import (
    ENDED_DELETED,
    ENDED_EXPIRED,
    ENDED_MAX_EVENTS,
    ENDED_SINK_GONE,
    MATCH,
    STARTED,
    UNMATCH,
    UPDATED,
)

if TYPE_CHECKING:
    from nearcast.server.audit.comparing import Disagreement
    from nearcast.server.audit.replay import Posting, Replay, Subscription
    from nearcast.storage.log import LogReader

__all__ = ["Difference", "explain"]

_KINDS = {
    MATCH: "a match",
    UNMATCH: "the end of a match",
    STARTED: "the start of the subscription",
    UPDATED: "a change of the subscription",
    ENDED_DELETED: "the end of the subscription, because it was deleted",
    ENDED_EXPIRED: "the end of the subscription, because it expired",
    ENDED_MAX_EVENTS: "the end of the subscription, because it had its maximum number of events",
    ENDED_SINK_GONE: "the end of the subscription, because its sink is gone",
}
_WHAT = {
    "missing": "The server lacks an event.",
    "unexpected": "The server has an event that it should not have.",
    "kind": "The server has an event of another kind.",
    "score": "The scores differ.",
    "order": "The events, or the matches of an event, are in another order.",
}


class Difference(NamedTuple):
    """The first difference.

    Attributes
    ----------
    seq, event
        The number of the record, and the id of its events.
    what
        ``missing``, ``unexpected``, ``kind``, ``score`` or ``order``.
    channel
        Who gets the event: tenant, subscriber, and the URL of a sink.
    subscription, message
        The id of the subscription, and the number of the message, 0 if there is none.
    server, scan
        What each side has, in words.
    explanation
        More sentences: what differs, and why the scan says so.
    """

    seq: int
    event: str
    what: str
    channel: str
    subscription: str
    message: int
    server: str
    scan: str
    explanation: tuple[str, ...]


def explain(found: Disagreement, replay: Replay, log: LogReader) -> Difference:
    """Return a disagreement in words."""
    posting = found.posting
    subscription = None
    if posting.handle < len(replay.subscriptions):
        subscription = replay.subscriptions[posting.handle]
    sentences = [_WHAT[found.what]]
    if subscription is None:
        sentences.append("There is no subscription with this handle at this moment.")
    else:
        sentences += _about(subscription, posting, replay, log)
    id = "unknown" if subscription is None else subscription.id
    return Difference(
        posting.seq,
        f"{log.epoch_of(posting.seq)}-{posting.seq}",
        found.what,
        _channel(posting.channel, replay),
        f"{id} (handle {posting.handle})",
        posting.message,
        _words(found.server, posting, replay),
        _words(found.scan, posting, replay),
        tuple(sentences),
    )


def _words(side: Posting | None, posting: Posting, replay: Replay) -> str:
    if side is None:
        return "nothing"
    words = _KINDS.get(side.kind, f"something of the unknown kind {side.kind}")
    if not math.isnan(side.score):
        words += f", score {side.score!r}"
    if side.handle != posting.handle or side.message != posting.message:
        words += f" (handle {side.handle}, message {side.message}) at this place"
    return words


def _channel(channel: int, replay: Replay) -> str:
    if not 0 < channel <= len(replay.channels):
        return f"unknown (channel {channel})"
    tenant, subscriber, url = replay.channels[channel - 1]
    sink = "" if url is None else f", sink {url}"
    return f"subscriber {subscriber!r} of tenant {tenant}{sink}"


def _about(
    subscription: Subscription, posting: Posting, replay: Replay, log: LogReader
) -> list[str]:
    """Return why a subscription matches a message or not, and what both are."""
    sentences = []
    if subscription.status != "active":
        sentences.append(f"The subscription is {subscription.status} after this.")
    definition = subscription.definition
    if definition.types is not None:
        sentences.append(f"It wants the types {', '.join(definition.types) or 'none'}.")
    if posting.message:
        blob = _message(posting.message, log)
        if blob is None:
            sentences.append("The log has no such message.")
        else:
            sentences += _reasons(subscription, blob, replay)
            sentences.append(f"The message is {blob.decode()}")
    row = msgspec.json.encode(subscription.row).decode()
    return [*sentences, f"The subscription is {row}"]


def _message(seq: int, log: LogReader) -> bytes | None:
    if not log.first_seq <= seq <= log.last_seq:
        return None
    try:
        record = log.find(seq)
    except StorageError:
        return None
    return message_at(record, seq)[1] if record.kind == MESSAGES else None


def _reasons(subscription: Subscription, blob: bytes, replay: Replay) -> list[str]:
    """Return why the subscription, as it is now, matches a message or does not."""
    scanner = replay.scanner
    [asked] = scanner.read([subscription.row])
    if asked is None:
        return ["The subscription is invalid."]
    wanted = asked.alone()
    columns: Any = Subscriptions(
        ids=Ids.of([subscription.handle]),
        clauses=wanted.clauses,
        expires_us=np.array([NEVER]),
        rankings=wanted.rankings,
    )
    scorer = Scorer(scanner.weights, Scoring())
    index = indexes.create("scan").build(scorer.content(columns, scanner.vocabulary))
    segment = Segment(columns, index, scanner.vocabulary, scorer)
    return [*explain_row(segment, 0, scanner.messages([blob])).reasons]
