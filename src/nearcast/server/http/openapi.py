"""The OpenAPI document: what FastAPI makes of the routes, with problem documents for all errors."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from nearcast.server.http import models, settings_models
from nearcast.server.http.definitions import READ_ONLY
from nearcast.server.http.problems import MEDIA_TYPE, PROBLEM_SCHEMA
from nearcast.server.state import STATUSES

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["install"]

_SCHEMAS = "#/components/schemas/"
_REFERENCE = re.compile(f'"{_SCHEMAS}([^"]+)"')
_PROBLEM = {"$ref": f"{_SCHEMAS}Problem"}
_ERRORS = {
    "4XX": "The request is wrong, or not allowed.",
    "5XX": "The server cannot do it now; nothing was changed.",
}


def install(app: FastAPI) -> None:
    """Let an application serve its document at ``/openapi.json``; call it after all routes."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
    )
    for operations in document["paths"].values():
        for operation in operations.values():
            _add_problems(operation["responses"])
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    _add_models(document)
    _add_sent_back(document)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete_parameters(operation, path, method)
    return document


def _add_problems(responses: dict[str, Any]) -> None:
    """Replace FastAPI's own answer to invalid requests, which is never given."""
    if "HTTPValidationError" in json.dumps(responses.get("422", {})):
        del responses["422"]
    for status, description in _ERRORS.items():
        content = {MEDIA_TYPE: {"schema": _PROBLEM}}
        responses.setdefault(status, {"description": description, "content": content})


def _add_models(document: dict[str, Any]) -> None:
    """Add models that routes name in descriptions of bodies which they parse themselves."""
    schemas = document["components"]["schemas"]
    missing = set(_REFERENCE.findall(json.dumps(document))) - set(schemas)
    classes = [getattr(module, name) for module in _MODULES for name in module.__all__]
    found = [c for c in classes if isinstance(c, type) and c.__name__ in missing]
    assert all(issubclass(c, BaseModel) for c in found)
    _, made = models_json_schema(
        [(model, "validation") for model in found], ref_template=_SCHEMAS + "{model}"
    )
    for name, schema in made.get("$defs", {}).items():
        schemas.setdefault(name, schema)


_MODULES = (models, settings_models)

# --- what routes check themselves ------------------------------------------------------------

_ID = {"minLength": 1, "maxLength": 256, "pattern": models.ID_PATTERN}
_NAME = {"minLength": 1, "maxLength": 256, "pattern": models.NAME_PATTERN}
_KEPT = settings_models.CURSOR_PATTERN.replace("^(", "^(@.+|")
_EVENT_ID = {"pattern": "^[0-9]{1,18}-[0-9]{1,18}([.][0-9]{1,18})?$"}
_DEGREES = "[-+]?[0-9]*[.]?[0-9]*([eE][-+]?[0-9]+)?"
_BBOX = {"pattern": f"^ *{_DEGREES} *(, *{_DEGREES} *){{3}}$", "minLength": 7}
_TRUE_OR_FALSE = ["0", "1", "false", "true", "f", "t", "n", "y", "no", "yes", "off", "on"]

_PARAMETERS: dict[tuple[str, str], dict[str, Any]] = {
    ("/v1/subscriptions/{id}", "id"): _ID,
    ("/v1/subscribers/{name}", "name"): _NAME,
    ("/v1/cursors/{name}", "name"): {},
    ("/v1/tenants/{name}/limits", "name"): _NAME,
    ("/v1/messages", "after"): {"pattern": settings_models.CURSOR_PATTERN},
    ("/v1/events", "cursor"): {"pattern": _KEPT},
    ("/v1/subscribers/{name}", "cursor"): {"pattern": _KEPT},
    ("/v1/subscriptions", "after"): {"pattern": "^[0-9]{1,18}$"},
    ("/v1/subscriptions", "bbox"): _BBOX,
    ("/v1/subscriptions/cells", "bbox"): _BBOX,
    ("/v1/subscriptions", "status"): {"enum": list(STATUSES)},
    ("/v1/sinks/{id}/dead", "after"): _EVENT_ID,
}
"""What the schemas of parameters also say, by path and name."""

_IF_MATCH = {
    "name": "If-Match",
    "description": "The ETag of the version to change; `*` for any.",
    "schema": {"type": "string", "examples": ['"3"']},
}
_HEADERS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("/v1/messages", "post"): [
        {
            "name": "Idempotency-Key",
            "description": "The same key again gives the same answer, and publishes nothing.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        },
        {
            "name": "Prefer",
            "description": "`handling=strict`: all messages are valid, or none is published.",
            "schema": {"type": "string", "examples": ["handling=strict"]},
        },
    ],
    ("/v1/events", "get"): [
        {
            "name": "Last-Event-ID",
            "description": "As `cursor`, which it comes before: browsers send it by themselves.",
            "schema": {"type": "string", "pattern": _KEPT},
        }
    ],
    ("/v1/subscriptions/{id}", "put"): [
        _IF_MATCH,
        {
            "name": "If-None-Match",
            "description": "`*`: only if it is new.",
            "schema": {"type": "string", "examples": ["*"]},
        },
    ],
    ("/v1/subscriptions/{id}", "patch"): [_IF_MATCH],
    ("/v1/subscriptions/{id}", "delete"): [_IF_MATCH],
}
"""The headers that routes read, by path and method."""


def _complete_parameters(operation: dict[str, Any], path: str, method: str) -> None:
    """Add what routes check themselves, and the headers that they read."""
    parameters: list[dict[str, Any]] = operation.setdefault("parameters", [])
    for parameter in parameters:
        schema = parameter["schema"]
        if {"type": "null"} in schema.get("anyOf", ()):  # left out: there is no null in a query
            [given] = [one for one in schema.pop("anyOf") if one["type"] != "null"]
            schema.update(given)
        if schema.get("type") == "boolean":
            del schema["type"]
            schema["anyOf"] = [{"type": "boolean"}, {"enum": _TRUE_OR_FALSE}]
        schema.update(_PARAMETERS.get((path, parameter["name"]), {}))
    for header in _HEADERS.get((path, method), ()):
        parameters.append({"in": "header", "required": False, **header})
    if not parameters:
        del operation["parameters"]


def _add_sent_back(document: dict[str, Any]) -> None:
    """Describe what PUT also takes, a subscription as it was read, and what PATCH changes."""
    schemas = document["components"]["schemas"]
    sent_back = deepcopy(schemas["SubscriptionRequest"])
    sent_back["description"] = "A subscription as it was read; what the server sets is ignored."
    sent_back["properties"] |= {
        name: {"readOnly": True, "description": "Ignored."} for name in READ_ONLY
    }
    sent_back["properties"]["status"]["enum"] = ["ACTIVE", "INACTIVE", "EXPIRED", "DELETED"]
    schemas["SubscriptionSentBack"] = sent_back
    parts: dict[str, Any] = {
        name: {} for name in sent_back["properties"] if name not in (*READ_ONLY, "config")
    }
    schemas["SubscriptionPatch"] = {
        "type": "object",
        "description": "Changes of a subscription (RFC 7396): null removes a property.",
        "additionalProperties": False,
        "properties": {
            **parts,
            "config": {"type": "object"},
            "status": {"enum": ["ACTIVE", "INACTIVE", None]},
        },
    }
    changing = document["paths"]["/v1/subscriptions/{id}"]
    for method, media_type, name in (
        ("put", "application/json", "SubscriptionSentBack"),
        ("patch", "application/merge-patch+json", "SubscriptionPatch"),
    ):
        content = changing[method]["requestBody"]["content"][media_type]
        content["schema"] = {"$ref": _SCHEMAS + name}
