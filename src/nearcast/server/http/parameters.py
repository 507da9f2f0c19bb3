"""Parameters in the query of a request: one that a route does not know is refused.

A misspelled parameter would be ignored otherwise, and `?dryrun=1` would publish.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from fastapi.routing import APIRoute

from nearcast.server.http.problems import FieldError, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from starlette.requests import HTTPConnection

__all__ = ["check_names", "check_parameters"]

_MAX_NAMED, _MAX_NAME = 20, 64
"""How many unknown names are listed, and how long: to look for similar ones takes some time."""


def check_parameters(connection: HTTPConnection) -> None:
    """Raise a problem of status 400 if the route of a request does not know a parameter."""
    if connection.scope["query_string"]:
        route = connection.scope.get("route")
        if isinstance(route, APIRoute):
            check_names(connection.query_params, _known(route))


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Raise a problem of status 400 if a name is not one of those that are known.

    Examples
    --------
    >>> check_names(["dryrun"], ["dryRun"])
    Traceback (most recent call last):
    nearcast.server.http.problems.Problem: dryrun: is not a known parameter; did you mean dryRun?
    """
    unknown = islice((name for name in given if name not in known), _MAX_NAMED)
    errors = [FieldError(name[:_MAX_NAME], _reason(name[:_MAX_NAME], known)) for name in unknown]
    if errors:
        raise Problem.of_fields(errors)


def _reason(name: str, known: Collection[str]) -> str:
    folded = {one.lower(): one for one in known}
    close = get_close_matches(name.lower().replace("_", ""), folded, 1)
    if close:
        return f"is not a known parameter; did you mean {folded[close[0]]}?"
    listed = ", ".join(sorted(known))
    return (
        f"is not a known parameter; there are: {listed}" if listed else "is not a known parameter"
    )


def _known(route: APIRoute) -> frozenset[str]:
    """Return the names of the parameters that a route has."""
    return frozenset(field.alias for field in route.dependant.query_params)
