"""The two threads that connect a server with Kafka."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from nearcast.errors import NearcastError
from nearcast.server.kafka.intake import Intake
from nearcast.server.kafka.receiving import Receiver
from nearcast.server.kafka.sending import Sender
from nearcast.server.matching.remote import RemoteEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.server.kafka.topics import Topics
    from nearcast.server.matching.pipeline import Pipeline
    from nearcast.server.service import Service

__all__ = ["KafkaLink"]

_log = logging.getLogger("nearcast.server")
_RETRY_S = 5.0


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
        for name, work in (("kafka-sender", self._send), ("kafka-receiver", self._receive)):
            thread = threading.Thread(target=work, args=(pipeline,), name=name, daemon=True)
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

    def _send(self, pipeline: Pipeline) -> None:
        service, engine = self._service, pipeline.matcher.engine
        assert isinstance(engine, RemoteEngine)
        path = service.folder / "kafka" / "sent.json"
        sender = Sender(
            self._topics, path, service.log, engine, lambda: pipeline.matched_seq, self._stopping
        )
        while not self._stopping.is_set():
            self._awake.clear()
            if self._try(sender.send):
                self._awake.wait(None if sender.sent.message >= pipeline.matched_seq else 0)
        sender.close()

    def _receive(self, pipeline: Pipeline) -> None:
        service, engine = self._service, pipeline.matcher.engine
        assert isinstance(engine, RemoteEngine)
        intake = Intake(service.log, service.registry, service.events, engine.offsets)
        receiver = None
        while not self._stopping.is_set():
            if receiver is None:
                try:
                    receiver = Receiver(self._topics, intake, pipeline.submit, self._stopping)
                except KafkaException as error:
                    self._wait(error)
                    continue
            self._try(receiver.receive)
        if receiver is not None:
            receiver.close()

    def _try(self, work: Callable[[], None]) -> bool:
        """Do something; if Kafka refuses, wait and return False."""
        try:
            work()
        except (KafkaException, NearcastError) as error:
            self._wait(error)
            return False
        except BaseException as error:
            self._stopping.set()
            self._service.failed(error)
            return False
        return True

    def _wait(self, error: Exception) -> None:
        _log.warning("Kafka: %s; trying again in %.0f s", error, _RETRY_S)
        self._stopping.wait(_RETRY_S)
