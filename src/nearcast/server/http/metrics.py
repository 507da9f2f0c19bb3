"""The metrics of the server, for Prometheus.

Every event is recorded once for each channel that it is for: a subscriber, and each sink of one.
Somebody who reads a channel is a webhook sink, a connected stream (a poll as well), or a cursor
that the server keeps (``PUT /v1/cursors/{name}``). For each reader, from where it began,

    recorded in its channel = delivered + pending + lost

- delivered: handed to its connection, or accepted by its receiver. What was given up after all
  attempts (a dead letter), and what lies before a cursor that its owner has moved, counts here too.
- pending: after its position, and can still be had. For a stream this includes what its cap, digest
  or quiet hours hold back.
- lost: trimmed before the reader came to it. A stream hears of it by a gap.

``nearcast_events_pending`` is the sum over all readers of a kind that there are at the moment.
``nearcast_events_recorded_total`` counts every event once since the server was started, whether
somebody reads its channel or not. So it is the sum of the other three only if every channel has one
reader, who read everything that there was before. An event that two streams of a subscriber have
received is delivered twice; one for a subscriber who is not connected and keeps no cursor is
recorded, and nothing else. Dead letters are no deliveries in ``nearcast_events_delivered_total``.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LATENCY_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
_EXAMINED = (0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000)


class Metrics:
    """All metrics, in a registry of their own.

    Attributes
    ----------
    published, rejected, matched
        Messages on disk, messages that were refused, and matches that were found.
    recorded, delivered, lost
        Events of subscribers: found, sent and dropped because a cursor was too old; ``delivered``
        and ``lost`` have the label ``channel``: sse, ndjson, websocket, poll or webhook.
    gaps
        How often a cursor was too old or unknown, so that events may be missing.
    pending
        Events that wait for a reader, with the label ``reader``: webhook, cursor or stream.
    retries
        Webhook sinks whose next event waits for another attempt.
    webhook_attempts
        Attempts to call sinks, with the label ``outcome``.
    commit_s, match_s, write_s
        From the arrival of a publication to the disk, from there to its matches, and from its
        arrival to the first byte that is written to a subscriber.
    examined
        Subscriptions that the index examined for a message.
    segments, subscriptions, streams
        Of the index; alive; and connected, with the label ``kind``.
    requests, request_s
        Requests by method, route and status, and how long they took.
    connections_refused
        Connections that were closed because of what they cost, with the label ``status``.
    log_bytes, last_seq, matched_seq
        The size of the log, the last number in it, and the last one that was matched.
    clock_lead_s
        By how much the last record is ahead of the clock of the machine.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.published.inc(3)
    >>> b"nearcast_messages_published_total 3.0" in metrics.render()
    True
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry

        def counter(name: str, about: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"nearcast_{name}", about, labels, registry=registry)

        def gauge(name: str, about: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"nearcast_{name}", about, labels, registry=registry)

        def latency(name: str, about: str, labels: tuple[str, ...] = ()) -> Histogram:
            return Histogram(
                f"nearcast_{name}_seconds", about, labels, buckets=_LATENCY_S, registry=registry
            )

        self.published = counter("messages_published", "Messages that are on disk.")
        self.rejected = counter("messages_rejected", "Messages that were refused.")
        self.matched = counter("matches", "Matches of messages and subscriptions.")
        self.recorded = counter("events_recorded", "Events that subscribers are to receive.")
        self.delivered = counter("events_delivered", "Events that were sent.", ("channel",))
        self.lost = counter("events_lost", "Events that a cursor was too old for.", ("channel",))
        self.gaps = counter("event_gaps", "Cursors that were too old or unknown.", ("channel",))
        self.pending = gauge("events_pending", "Events that wait for a reader.", ("reader",))
        self.retries = gauge("webhook_retries", "Events that wait for another attempt.")
        self.webhook_attempts = counter("webhook_attempts", "Calls of sinks.", ("outcome",))
        self.commit_s = latency("publish_to_commit", "From arrival to the disk.")
        self.match_s = latency("commit_to_matched", "From the disk to the matches.")
        self.write_s = latency("publish_to_written", "From arrival to a subscriber's connection.")
        self.examined = Histogram(
            "nearcast_examined_subscriptions",
            "Subscriptions that were examined for a message.",
            buckets=_EXAMINED,
            registry=registry,
        )
        self.segments = gauge("segments", "Segments of the index.")
        self.subscriptions = gauge("subscriptions", "Subscriptions that are alive.")
        self.streams = gauge("streams", "Connected streams.", ("kind",))
        self.requests = counter("http_requests", "Requests.", ("method", "route", "status"))
        self.request_s = latency(
            "http_request", "From a request to the end of its answer.", ("route",)
        )
        self.connections_refused = counter(
            "connections_refused", "Connections that were closed with a problem.", ("status",)
        )
        self.log_bytes = gauge("log_bytes", "The size of the log.")
        self.last_seq = gauge("log_last_seq", "The last number in the log.")
        self.matched_seq = gauge("matched_seq", "The last number that was matched.")
        self.clock_lead_s = gauge(
            "log_clock_lead_seconds", "How far the last record is ahead of the machine's clock."
        )

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
