"""Messages of the log as rows for Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from nearcast.server.log.records import read_messages_body

if TYPE_CHECKING:
    from nearcast.storage.log import Record

__all__ = ["message_rows"]

_START = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS = ("text", "tokens", "lon", "lat", "west", "south", "east", "north")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def message_rows(record: Record) -> list[bytes]:
    """Return the messages of a record as rows for Spark.

    Their ids are their event ids, their times those of the record, their scopes the tenants. They
    do not live on: whom they reach is decided when they come.
    """
    body = read_messages_body(record)
    time = _START + timedelta(microseconds=body.time_us)
    values = []
    for seq, blob in enumerate(body.messages, record.seq):
        fields = _decode(blob)
        row = {name: fields[name] for name in _FIELDS if name in fields}
        own = {"id": f"{record.epoch}-{seq}", "time": time, "scope": str(body.tenant), "ttl_s": 0}
        values.append(_encode(row | own))
    return values
