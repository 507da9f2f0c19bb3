"""The description of the API: what FastAPI finds out, and what all routes have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from nearcast.server.http.context import ROLES_OF
from nearcast.server.http.models import Subscription, SubscriptionRequest
from nearcast.server.http.problems import CODES, PROBLEM_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fastapi import FastAPI

__all__ = ["describe"]

_ALWAYS = (400, 401, 403, 404, 405, 429, 500, 503)
_WRITING = (409, 412, 413, 415, 422, 507)
_OPEN = (404, 405, 500, 503)
"""The statuses of problems: of all routes, of those that write, and of those without a key."""

_REF = "#/components/schemas/{model}"
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_CORRELATOR = {
    "description": "The id of the request: the one that was sent, or a new one.",
    "schema": {"type": "string"},
}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an application; it is made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        _add_schemas(document)
        for route in _routes(app.routes):
            for method in route.methods or ():
                operation = document["paths"].get(route.path_format, {}).get(method.lower())
                if operation is not None:
                    _complete(operation, route, method)
        app.openapi_schema = document
    return app.openapi_schema


def _routes(routes: Iterable[Any]) -> list[APIRoute]:
    return [route for route in routes if isinstance(route, APIRoute) and route.include_in_schema]


def _add_schemas(document: dict[str, Any]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    models = [(SubscriptionRequest, "validation"), (Subscription, "validation")]
    _, own = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    for name, schema in own.get("$defs", {}).items():
        schemas.setdefault(name, schema)
    schemas["Problem"] = PROBLEM_SCHEMA


def _complete(operation: dict[str, Any], route: APIRoute, method: str) -> None:
    """Add the role, the correlator and the problems to an operation."""
    role = _role(route)
    if role is not None:
        about = operation.get("description", "")
        operation["description"] = f"{about}\n\nRole: `{role}`.".strip()
    responses = operation["responses"]
    responses.pop("422", None)
    for answer in responses.values():
        answer["headers"] = {"x-correlator": _CORRELATOR}
    statuses: tuple[int, ...] = _OPEN if role is None else _ALWAYS
    if role is not None and method != "GET":
        statuses += _WRITING
    for status in statuses:
        responses.setdefault(str(status), _problem(status))


def _problem(status: int) -> dict[str, Any]:
    codes = [code for code, (usual, _) in CODES.items() if usual == status]
    about = " ".join(CODES[code][1] for code in codes) or "The request cannot be processed."
    return {
        "description": about,
        "headers": {"x-correlator": _CORRELATOR},
        "content": _PROBLEM,
    }


def _role(route: APIRoute) -> str | None:
    """Return the role that a route needs; None if it needs no key."""
    for dependency in route.dependant.dependencies:
        if dependency.call in ROLES_OF:
            return ROLES_OF[dependency.call]
    return None
