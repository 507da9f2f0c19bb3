"""The OpenAPI document: what FastAPI makes of the routes, with problem documents for all errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from nearcast.server.http import models, settings_models
from nearcast.server.http.problems import MEDIA_TYPE, PROBLEM_SCHEMA

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
