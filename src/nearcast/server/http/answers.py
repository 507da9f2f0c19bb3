"""Answers in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from nearcast.server.http.messages import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["json_answer"]


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer with a value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON)
