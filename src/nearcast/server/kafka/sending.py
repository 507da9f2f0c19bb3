"""What goes to Kafka: the messages of the log, and the changes of subscriptions between them.

Whoever reads a message from its topic finds all changes before it in theirs: the sender waits until
one kind has arrived before it sends the other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from confluent_kafka import Producer

from nearcast.errors import NearcastError
from nearcast.server.kafka.rows import message_rows
from nearcast.server.log.records import MESSAGES
from nearcast.storage.temporary import TemporaryFile, remove_leftovers

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from nearcast.server.kafka.topics import Topics
    from nearcast.server.log import Log
    from nearcast.server.matching.remote import Outgoing, RemoteEngine

__all__ = ["Sender", "Sent"]

_log = logging.getLogger("nearcast.server")
_MAX_SENT = 20_000
_FLUSH_S = 0.2
_PRODUCER = {
    "enable.idempotence": True,  # and with it acks=all, and the order within a partition
    "message.timeout.ms": 0,  # a broker that is away comes back
    "linger.ms": 5,
    "compression.type": "lz4",
}


class Sent(msgspec.Struct, frozen=True):
    """How far messages and changes were sent: a number of the log, and that of a change."""

    message: int = 0
    change: int = 0


class _Due(NamedTuple):
    """Something to send: its topic, key and value."""

    topic: str
    key: str | None
    value: bytes


class Source(NamedTuple):
    """Where messages and changes come from; and the number of the last record that is matched."""

    log: Log
    engine: RemoteEngine
    matched: Callable[[], int]


class Signals(NamedTuple):
    """Events: there is something to send; the thread has to end."""

    awake: threading.Event
    stopping: threading.Event


class Sender:
    """Sends what the matcher has seen. One thread uses it.

    Parameters
    ----------
    topics
        Where to send to.
    path
        The file that says how far it came. If it is lost, all messages are sent again, which
        changes nothing: matches that come twice are dropped.
    source, signals
        What to send, and when.
    """

    def __init__(self, topics: Topics, path: Path, source: Source, signals: Signals) -> None:
        self._topics, self._path = topics, path
        self._log, self._engine, self._matched = source
        self._awake, self._stopping = signals
        self._producer = Producer(topics.settings(**_PRODUCER))
        self._error: str | None = None
        self._in_flight = 0
        remove_leftovers(path)
        sent = _read_sent(path)
        self.sent = Sent(min(sent.message, self._log.last_seq), sent.change)
        self._engine.sent(sent.change)

    def work(self) -> None:
        """Send everything that the matcher has seen, then wait until there is more.

        Raises
        ------
        NearcastError
            If Kafka refuses it. Another sender begins where this one was sure.
        """
        self._awake.clear()
        self.send()
        if self.sent.message >= self._matched():
            self._awake.wait()

    def send(self) -> None:
        """Send everything that the matcher has seen."""
        until = self._matched()  # before the changes: so that none before it is missing
        changes = self._engine.waiting()
        done, message = 0, self.sent.message
        first = max(message + 1, self._log.first_seq)
        if message and first > message + 1:
            problem = "records %d to %d were removed before Kafka had them; keep them longer"
            _log.error(problem, message + 1, first - 1)
        for record in self._log.read(first) if until > message else ():
            if record.seq > until or self._stopping.is_set():
                break
            if record.kind == MESSAGES:
                due = _count_due(changes, done, record.seq - 1)
                if due > done:
                    self._finish(message, changes[:done])
                    self._send_changes(changes[done:due])
                    done = due
                    self._finish(message, changes[:done])
                for value in message_rows(record):
                    self._produce(_Due(self._topics.messages, None, value))
            message = record.seq + record.count - 1
            if self._in_flight >= _MAX_SENT:
                self._finish(message, changes[:done])
        due = _count_due(changes, done, message)
        if due > done:
            self._finish(message, changes[:done])
            self._send_changes(changes[done:due])
        self._finish(message, changes[:due])

    def close(self) -> None:
        """Give up what Kafka has not taken; it is sent at the next start."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _send_changes(self, changes: list[Outgoing]) -> None:
        for change in changes:
            self._produce(_Due(self._topics.changes, str(change.handle), change.value))

    def _produce(self, due: _Due) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.produce(due.topic, due.value, due.key, on_delivery=self._delivered)
            except BufferError:  # as much waits as librdkafka keeps
                self._producer.poll(_FLUSH_S)
            else:
                self._in_flight += 1
                self._producer.poll(0)
                return

    def _delivered(self, error: Any, message: Any) -> None:
        self._in_flight -= 1
        if error is not None:
            self._error = f"{message.topic()}: {error.str()}"

    def _finish(self, message: int, changes: list[Outgoing]) -> None:
        """Wait until Kafka has everything, and note that."""
        while self._in_flight and not self._stopping.is_set():
            self._producer.flush(_FLUSH_S)
        error, self._error = self._error, None
        if error is not None:
            raise NearcastError(f"Kafka does not take it: {error}")
        change = changes[-1].number if changes else self.sent.change
        sent = Sent(message, change)
        if self._in_flight or sent == self.sent:
            return
        with TemporaryFile(self._path) as temporary:
            temporary.path.write_bytes(msgspec.json.encode(sent))
            temporary.publish()
        self.sent = sent
        self._engine.sent(change)


def _count_due(changes: list[Outgoing], done: int, after: int) -> int:
    """Return how many changes come not after the messages up to a number."""
    while done < len(changes) and changes[done].after <= after:
        done += 1
    return done


def _read_sent(path: Path) -> Sent:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Sent)
    except (FileNotFoundError, msgspec.DecodeError):
        return Sent()
