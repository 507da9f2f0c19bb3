"""What Schemathesis has to know of media types that it cannot send by itself."""

from __future__ import annotations

import json
from typing import Any

import schemathesis


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "replace")


@schemathesis.serializer(
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/vnd.apache.arrow.stream",
)
def as_it_is(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Send text and bytes as they are."""
    return _bytes_of(value)
