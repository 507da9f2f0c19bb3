"""The topics that a server and a stream of Spark share, and how they are reached."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from nearcast.errors import InvalidInput, NearcastError

__all__ = ["Topics"]

_log = logging.getLogger("nearcast.server.kafka")
_SCHEME = "kafka://"
_NAMES = ("messages", "changes", "matches")
_CHECK_S = 15.0


@dataclass(frozen=True, slots=True)
class Topics:
    """Three topics of a Kafka cluster.

    Parameters
    ----------
    servers
        ``HOST:PORT``, or several with commas.
    messages, changes, matches
        The names of the topics.
    config
        A file with more settings of librdkafka, ``name=value`` in each line, for passwords and
        certificates.

    Examples
    --------
    >>> Topics.parse("kafka://localhost:9092?matches=found").matches
    'found'
    """

    servers: str
    messages: str = "nearcast-messages"
    changes: str = "nearcast-changes"
    matches: str = "nearcast-matches"
    config: Path | None = None

    @classmethod
    def parse(cls, url: str) -> Topics:
        """Read ``kafka://HOST:PORT?messages=TOPIC&changes=TOPIC&matches=TOPIC&config=FILE``.

        What is left out is called ``nearcast-messages``, ``nearcast-changes`` and
        ``nearcast-matches``.

        Raises
        ------
        InvalidInput
            If it is something else.
        """
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        if not url.startswith(_SCHEME) or not parts.netloc or parts.path.strip("/"):
            raise InvalidInput("--matches", url, "must be kafka://HOST:PORT?matches=TOPIC")
        unknown = sorted({*given} - {*_NAMES, "config"})
        if unknown or not all(given.values()):
            problem = f"may name {', '.join(_NAMES)} and config, each once and with a value"
            raise InvalidInput("--matches", url, problem)
        config = given.pop("config", None)
        topics = cls(parts.netloc, **given, config=None if config is None else Path(config))
        if len({topics.messages, topics.changes, topics.matches}) < len(_NAMES):
            raise InvalidInput("--matches", url, "must name three different topics")
        return topics

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a client.

        Raises
        ------
        InvalidInput
            If the file of settings cannot be read.
        """
        given: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "client.id": "nearcast",
            "logger": _log,
        }
        if self.config is not None:
            try:
                lines = self.config.read_text(encoding="utf-8").splitlines()
            except OSError as error:
                problem = f"cannot be read: {error.strerror}"
                raise InvalidInput("config", str(self.config), problem) from None
            named = (line.partition("=") for line in lines if line.strip() and line[0] != "#")
            given |= {name.strip(): value.strip() for name, _, value in named}
        return given | more

    def check(self) -> None:
        """Ask the cluster for the topics.

        Raises
        ------
        NearcastError
            If it does not answer, or does not have one of them.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            found = AdminClient(self.settings()).list_topics(timeout=_CHECK_S).topics
        except KafkaException as error:
            problem = f"no answer from Kafka at {self.servers}: {error.args[0].str()}"
            raise NearcastError(problem) from None
        missing = [name for name in self.names if name not in found]
        if missing:
            raise NearcastError(
                f"Kafka at {self.servers} has no topic {', '.join(missing)}; create it first: "
                f"kafka-topics.sh --bootstrap-server {self.servers} --create --topic {missing[0]} "
                "--partitions 4"
            )

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of the topics."""
        return self.messages, self.changes, self.matches
