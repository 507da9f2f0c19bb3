"""A server whose time limits and disk can be changed: ``server_process.py SEAMS ARGUMENTS...``.

``SEAMS`` is a JSON object. Everything else is what ``nearcast`` does with the arguments.

``checkpoint_bytes``
    A checkpoint is made after this much of the log.
``segment_bytes``
    The size of the segments of the log.
``min_free_bytes``
    How much of the disk stays free for what is derived from the log.
``stuck_s``, ``beat_s``
    When a connection that does not read is given up, and how often that is checked.
``seal_postings``
    How long segments of events are.
``sink_answer_s``
    How long webhooks wait for an answer.
``retries_s``
    How long webhooks wait after each failed attempt.
``shifted_s``
    How many seconds the clock of the server is ahead.
``connections``
    Other limits of connections, by the names of `ConnectionLimits`.
``failing_sync``
    From the time at which this file exists, syncing the log fails.
"""

from __future__ import annotations

import errno
import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nearcast.server.delivery.feeds as feeds
import nearcast.server.http.app as app
import nearcast.server.http.context as context
import nearcast.server.http.running as running
import nearcast.server.matching.checkpoint as checkpoint
import nearcast.server.opening as opening
from nearcast.cli import main
from nearcast.server.delivery.posting import SinkClient
from nearcast.server.delivery.webhooks import Retries, SystemClock, WebhookSender
from nearcast.server.http.connections import HttpProtocol, http_protocol
from nearcast.server.http.door import ConnectionLimits
from nearcast.server.matching.pipeline import CheckpointPolicy
from nearcast.server.matching.recovery import Seal
from nearcast.server.service import Service
from nearcast.storage.log import Log
from nearcast.storage.log.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable


class FailingDisk(Disk):
    """A disk that breaks."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign

    def sync(self, file: int) -> None:
        """Sync, or fail."""
        if self._sign.exists():
            raise OSError(errno.EIO, "Input/output error")
        super().sync(file)


class ShiftedClock(SystemClock):
    """A clock that is ahead."""

    def __init__(self, seconds: float) -> None:
        self._ahead_us = round(seconds * 1e6)

    def now_us(self) -> int:
        """Return the microseconds since 1970."""
        return super().now_us() + self._ahead_us


def _protocol_with(
    limits: ConnectionLimits, usual: ConnectionLimits, refused: Callable[[int], None]
) -> type[HttpProtocol]:
    """Return the protocol of a server with other limits than the usual ones."""
    return http_protocol(limits, refused)


def change(seams: dict[str, Any]) -> None:
    """Change what the server is made of."""
    log: dict[str, Any] = {}
    if "failing_sync" in seams:
        log["disk"] = FailingDisk(Path(seams["failing_sync"]))
    if "segment_bytes" in seams:
        log["segment_bytes"] = seams["segment_bytes"]
    if log:
        setattr(opening, "Log", functools.partial(Log, **log))  # noqa: B010
    service: dict[str, Any] = {}
    if "checkpoint_bytes" in seams:
        service["policy"] = CheckpointPolicy(log_bytes=seams["checkpoint_bytes"])
    if "seal_postings" in seams:
        service["seal"] = Seal(seams["seal_postings"])
    if "shifted_s" in seams:
        service["clock"] = ShiftedClock(seams["shifted_s"])
    setattr(opening, "Service", functools.partial(Service, **service))  # noqa: B010
    if "min_free_bytes" in seams:
        checkpoint._MIN_FREE_BYTES = seams["min_free_bytes"]
    if "stuck_s" in seams:
        feeds._STUCK_S = seams["stuck_s"]
    if "beat_s" in seams:
        app._BEAT_S = seams["beat_s"]
    if "connections" in seams:
        limits = ConnectionLimits(**seams["connections"])
        protocol = functools.partial(_protocol_with, limits)
        setattr(running, "http_protocol", protocol)  # noqa: B010
    if "sink_answer_s" in seams:
        client = functools.partial(SinkClient, timeout_s=seams["sink_answer_s"])
        setattr(context, "SinkClient", client)  # noqa: B010
    if "retries_s" in seams:
        sender = functools.partial(WebhookSender, retries=Retries(seams["retries_s"]))
        setattr(context, "WebhookSender", sender)  # noqa: B010


if __name__ == "__main__":
    change(json.loads(sys.argv.pop(1)))
    main()
