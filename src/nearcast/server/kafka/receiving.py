"""What comes back from Kafka: matches, which become records of the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from nearcast.errors import NearcastError, NoSpace
from nearcast.server.kafka.intake import Value
from nearcast.server.log.committer import Overloaded, Written

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from nearcast.server.kafka.intake import Intake
    from nearcast.server.kafka.topics import Topics
    from nearcast.storage.log import Entry

__all__ = ["Receiver"]

_log = logging.getLogger("nearcast.server")
_MAX_MATCHES = 20_000
_POLL_S = 0.25
_RETRY_S = 1.0
_ANSWER_S = 15.0
_CONSUMER = {
    "group.id": "nearcast",  # librdkafka wants one; the log has the offsets
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
}


class Receiver:
    """Reads the topic of matches. One thread uses it.

    Parameters
    ----------
    topics
        Where to read from.
    intake
        Makes entries.
    submit
        Lets an entry be written, and hears of it by its tag.
    stopping
        Is set when the thread has to end.
    """

    def __init__(
        self,
        topics: Topics,
        intake: Intake,
        submit: Callable[[object, Entry], None],
        stopping: threading.Event,
    ) -> None:
        self._topic, self._intake = topics.matches, intake
        self._submit, self._stopping = submit, stopping
        self._consumer = Consumer(topics.settings(**_CONSUMER))
        self._assign()

    def _assign(self) -> None:
        """Begin where the log ends."""
        found = self._consumer.list_topics(self._topic, timeout=_ANSWER_S)
        offsets = self._intake.offsets
        starts = [
            TopicPartition(self._topic, number, offsets.get(number, OFFSET_BEGINNING))
            for number in found.topics[self._topic].partitions
        ]
        for start in starts:
            oldest, _ = self._consumer.get_watermark_offsets(start, timeout=_ANSWER_S)
            if 0 <= start.offset < oldest:
                _log.error(
                    "%s: partition %d has lost the matches from %d to %d before they were read; "
                    "keep them longer (retention.ms)",
                    self._topic,
                    start.partition,
                    start.offset,
                    oldest - 1,
                )
        self._consumer.assign(starts)

    def work(self) -> None:
        """Read what is there, or wait a moment for something, and write it to the log.

        Raises
        ------
        NearcastError
            If the topic cannot be read, or the log not be written. This receiver has lost its place
            then: another one begins where the log ends.
        """
        values = self._poll()
        if not values:
            return
        entry, pairs, offsets = self._intake.entry(values)
        if len(pairs):
            self._write(entry)
        self._intake.written(pairs, offsets)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _poll(self) -> list[Value]:
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return []
        try:
            rest = self._consumer.consume(_MAX_MATCHES - 1, 0)
        except KafkaException as error:
            raise NearcastError(f"{self._topic}: {error}") from None
        return [_value(message) for message in (first, *rest) if not _failed(message)]

    def _write(self, entry: Entry) -> None:
        """Write an entry, however long that takes."""
        while True:
            tag = Written()
            try:
                self._submit(tag, entry)
            except Overloaded:
                problem: NearcastError | None = None
            else:
                problem = tag.wait().error
                if problem is None:
                    return
            if self._stopping.wait(_RETRY_S):
                raise NearcastError("the server is shutting down")
            if problem is not None and not isinstance(problem, NoSpace):
                raise problem


def _failed(message: Any) -> bool:
    error = message.error()
    if error is not None:
        _log.warning("Kafka: %s", error.str())
    return error is not None


def _value(message: Any) -> Value:
    return Value(message.partition(), message.offset(), message.value())
