"""Answers: JSON, and which media type a client accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from nearcast.server.http.messages import JSON
from nearcast.server.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["accepted_type", "json_answer"]


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer with a value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON)


def accepted_type(accept: str, offered: Sequence[str], otherwise: str = "") -> str:
    """Return the media type that a client likes best of those that are offered.

    Parameters
    ----------
    accept
        The header ``Accept``; everything is accepted if it is empty.
    offered
        Media types; the first one is chosen if the client likes several equally.
    otherwise
        What else the client can do, for the detail of the problem.

    Raises
    ------
    Problem
        Of status 406, if the client accepts none of them.

    Examples
    --------
    >>> accepted_type("text/html;q=0.5, application/*", ["text/html", "application/json"])
    'application/json'
    """
    liked = {name: _quality(accept, name) for name in offered} if accept.strip() else {}
    best = max(offered, key=lambda name: liked.get(name, 1.0))
    if liked.get(best, 1.0) > 0:
        return best
    detail = f"this route answers with {' or '.join(offered)}; change Accept{otherwise}"
    raise Problem(406, "NOT_ACCEPTABLE", detail)


def _quality(accept: str, name: str) -> float:
    """Return how much a client likes a media type, from 0 to 1; the closest range decides."""
    ranges = (name, name.partition("/")[0] + "/*", "*/*")
    found = {}
    for part in accept.split(","):
        range_name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        given = next((one[2:] for one in parameters if one.startswith("q=")), "1")
        try:
            found[range_name] = min(max(float(given), 0.0), 1.0)
        except ValueError:
            found[range_name] = 1.0
    return next((found[one] for one in ranges if one in found), 0.0)
