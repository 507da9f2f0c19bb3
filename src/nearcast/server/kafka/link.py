"""The two threads that connect a server with Kafka."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaException

from nearcast.errors import NearcastError
from nearcast.server.kafka.intake import Intake
from nearcast.server.kafka.receiving import Receiver
from nearcast.server.kafka.sending import Sender, Signals, Source
from nearcast.server.matching.remote import RemoteEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.server.kafka.topics import Topics
    from nearcast.server.matching.pipeline import Pipeline
    from nearcast.server.service import Service

__all__ = ["KafkaLink"]

_log = logging.getLogger("nearcast.server")
_RETRY_S = 5.0


class _Worker(Protocol):
    """Does one kind of work."""

    def work(self) -> None:
        """Do what there is to do, or wait a moment for something."""

    def close(self) -> None:
        """Close the connection."""


class KafkaLink:
    """Sends messages and changes to Kafka, and receives matches from there.

    Parameters
    ----------
    topics
        The topics.
    service
        The server, which does not match by itself.
    """

    def __init__(self, topics: Topics, service: Service) -> None:
        self._topics, self._service = topics, service
        self._stopping = threading.Event()
        self._awake = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, pipeline: Pipeline) -> None:
        """Start the threads."""
        service, engine = self._service, pipeline.matcher.engine
        assert isinstance(engine, RemoteEngine)
        path = service.folder / "kafka" / "sent.json"
        source = Source(service.log, engine, lambda: pipeline.matched_seq)
        intake = Intake(service.log, service.registry, service.events, engine.offsets)
        signals = Signals(self._awake, self._stopping)

        def sender() -> Sender:
            return Sender(self._topics, path, source, signals)

        def receiver() -> Receiver:
            return Receiver(self._topics, intake, pipeline.submit, self._stopping)

        for name, make in (("kafka-sender", sender), ("kafka-receiver", receiver)):
            thread = threading.Thread(target=self._run, args=(make,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wake(self) -> None:
        """Let the sender look for new records."""
        self._awake.set()

    def stop(self) -> None:
        """End the threads; what was not sent is sent at the next start."""
        self._stopping.set()
        self._awake.set()
        for thread in self._threads:
            thread.join()

    def _run(self, make: Callable[[], _Worker]) -> None:
        """Let a worker work. After an error another one begins where the last one was sure."""
        worker: _Worker | None = None
        while not self._stopping.is_set():
            try:
                worker = worker or make()
                worker.work()
            except (KafkaException, NearcastError) as error:
                _log.warning("Kafka: %s; trying again in %.0f s", error, _RETRY_S)
                if worker is not None:
                    worker.close()
                worker = None
                self._stopping.wait(_RETRY_S)
            except BaseException as error:
                self._stopping.set()
                self._service.failed(error)
        if worker is not None:
            worker.close()
