"""What the description of the API says of every operation: its role, and the correlator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute

from nearcast.server.http.context import ROLES_OF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fastapi import APIRouter, FastAPI

__all__ = ["complete_description"]

_CORRELATOR = {
    "description": "The id of the request: the one that was sent, or a new one.",
    "schema": {"type": "string"},
}


def complete_description(app: FastAPI, routers: Iterable[APIRouter], prefix: str) -> None:
    """Add the role and the correlator to all operations; to be called after all routes exist.

    Parameters
    ----------
    app
        The application.
    routers, prefix
        The routers whose routes need a role, and the prefix of their paths.
    """
    paths: dict[str, dict[str, Any]] = app.openapi()["paths"]
    for operations in paths.values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                answer.setdefault("headers", {})["x-correlator"] = _CORRELATOR
    for router in routers:
        for route in router.routes:
            role = _role(route) if isinstance(route, APIRoute) else None
            if isinstance(route, APIRoute) and role is not None:
                for method in route.methods or ():
                    operation = paths[prefix + route.path_format][method.lower()]
                    about = operation.get("description", "")
                    operation["description"] = (
                        f"{about}\n\nRole: `{role.replace(' or ', '` or `')}`.".strip()
                    )


def _role(route: APIRoute) -> str | None:
    """Return the role that a route needs; None if it needs no key."""
    for dependency in route.dependant.dependencies:
        if dependency.call in ROLES_OF:
            return ROLES_OF[dependency.call]
    return None
