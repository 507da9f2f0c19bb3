"""Errors as problem documents (RFC 9457), each with a code that programs can rely on.

Everything that fails answers ``application/problem+json``. `Problem` is the one exception that
routes raise; `install` adds the handlers that turn it, and all other exceptions, into answers.
"""

from __future__ import annotations

import http
import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from nearcast.errors import (
    DuplicateId,
    ExpressionError,
    InvalidInput,
    NearcastError,
    NoSpace,
    Unavailable,
    UnknownId,
    one_line,
)
from nearcast.server.http.correlators import correlator_of
from nearcast.server.log.committer import Overloaded
from nearcast.server.matching.segments import DamagedEvents
from nearcast.storage.scarce import is_scarce

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.applications import Starlette
    from starlette.requests import Request

__all__ = [
    "CODES",
    "MEDIA_TYPE",
    "PROBLEM_SCHEMA",
    "FieldError",
    "Problem",
    "install",
    "problem_of",
    "validation_problem",
]

CODES: dict[str, tuple[int, str]] = {
    "INVALID_ARGUMENT": (400, "A field, a parameter or the body is invalid."),
    "OUT_OF_RANGE": (400, "A value is of the right kind, but too small, too large or too late."),
    "INVALID_SINK": (400, "The address for webhooks cannot be used."),
    "INVALID_CREDENTIAL": (400, "The credential for a sink is malformed or has expired."),
    "UNAUTHENTICATED": (401, "The key or token is missing, unknown, revoked or expired."),
    "PERMISSION_DENIED": (403, "The key or token has no role for this."),
    "NOT_FOUND": (404, "There is no such resource, or it belongs to another tenant."),
    "METHOD_NOT_ALLOWED": (405, "The resource does not support this method."),
    "NOT_ACCEPTABLE": (406, "None of the media types that the client accepts is available."),
    "REQUEST_TIMEOUT": (408, "The request took too long to arrive."),
    "CONFLICT": (409, "The resource exists already, or the request contradicts another one."),
    "PRECONDITION_FAILED": (412, "The resource has another version than If-Match names."),
    "CONTENT_TOO_LARGE": (413, "The body, or the number of messages in it, is too large."),
    "UNSUPPORTED_MEDIA_TYPE": (415, "The body has a media type that the route does not read."),
    "UNPROCESSABLE": (422, "Some messages are invalid, and the request asked for all or none."),
    "TOO_MANY_REQUESTS": (429, "The tenant is above its limit; try again after Retry-After."),
    "HEADERS_TOO_LARGE": (431, "The headers of the request are too large, or too many."),
    "INTERNAL": (500, "An error of the server; its log has the details under the correlator."),
    "UNAVAILABLE": (503, "The server is starting, stopping or has lost its log; try again."),
    "NO_SPACE": (507, "The disk of the server is full or read-only; nothing was stored."),
}
"""The codes of problems, with their usual status and meaning."""

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "description": "Always about:blank; the code tells the kind."},
        "title": {"type": "string", "examples": ["Bad Request"]},
        "status": {"type": "integer", "examples": [400]},
        "detail": {"type": "string", "description": "What is wrong, in plain English."},
        "code": {"type": "string", "enum": list(CODES)},
        "instance": {"type": "string", "description": "The correlator of the request, as a URN."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "reason"],
                "properties": {
                    "field": {"type": "string", "examples": ["config.subscriptionDetail.region"]},
                    "reason": {"type": "string"},
                    "position": {
                        "type": "integer",
                        "description": "The character of an expression, from 0.",
                    },
                },
            },
        },
    },
}
"""The JSON schema of a problem document, for OpenAPI."""

MEDIA_TYPE = "application/problem+json"
"""The media type of problem documents."""

_MAX_ERRORS = 20
_BY_STATUS = {status: code for code, (status, _) in reversed(CODES.items())}
_OUT_OF_RANGE = frozenset(
    {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "out_of_range"}
)
_BODY = frozenset({"body", "query", "path", "header"})
_log = logging.getLogger("nearcast.server")


class FieldError(NamedTuple):
    """What is wrong with one field; ``position`` is that of a character in an expression."""

    field: str
    reason: str
    position: int | None = None

    def to_dict(self) -> dict[str, str | int]:
        """Return the entry of ``errors`` in a problem document."""
        shown: dict[str, str | int] = {"field": self.field, "reason": self.reason}
        if self.position is not None:
            shown["position"] = self.position
        return shown


class Problem(Exception):
    """An error that is answered as a problem document.

    Parameters
    ----------
    status
        The HTTP status.
    code
        One of `CODES`.
    detail
        What is wrong and what to do, in plain English.
    errors
        The fields that are wrong.
    headers
        Headers of the answer, such as ``Retry-After``.

    Examples
    --------
    >>> Problem(404, "NOT_FOUND", "there is no subscription sub-2a").to_dict()
    {'type': 'about:blank', 'title': 'Not Found', 'status': 404,
     'detail': 'there is no subscription sub-2a', 'code': 'NOT_FOUND'}
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: Iterable[FieldError] = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = one_line(detail)
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    @classmethod
    def of_fields(cls, errors: Sequence[FieldError], code: str = "INVALID_ARGUMENT") -> Problem:
        """Return the problem of a request with invalid fields; the first one is its detail."""
        first = errors[0]
        detail = f"{first.field}: {first.reason}" if first.field else first.reason
        return cls(CODES[code][0], code, detail, errors)

    def to_dict(self) -> dict[str, Any]:
        """Return the problem document."""
        document: dict[str, Any] = {
            "type": "about:blank",
            "title": http.HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        if self.errors:
            document["errors"] = [error.to_dict() for error in self.errors]
        return document

    def response(self, correlator: str = "") -> Response:
        """Return the answer; the document names the correlator of the request."""
        document = self.to_dict()
        headers = {"x-content-type-options": "nosniff", **self.headers}
        if correlator:
            document["instance"] = f"urn:correlator:{correlator}"
            headers["x-correlator"] = correlator
        return Response(msgspec.json.encode(document), self.status, headers, media_type=MEDIA_TYPE)


def problem_of(error: NearcastError) -> Problem:
    """Return the problem that an error of the library is for a client.

    Examples
    --------
    >>> problem_of(InvalidInput("dwellS", -1, "must be 0 or more")).detail
    'dwellS: must be 0 or more (got -1)'
    """
    if isinstance(error, InvalidInput):
        position = error.position if isinstance(error, ExpressionError) else None
        reason = error.problem if position is not None else error.problem + error.got()
        return Problem.of_fields([FieldError(error.field, reason, position)])
    if isinstance(error, DuplicateId):
        return Problem(409, "CONFLICT", str(error))
    if isinstance(error, UnknownId):
        return Problem(404, "NOT_FOUND", str(error))
    if isinstance(error, NoSpace):
        detail = "the disk of the server is full, or cannot be written; nothing was stored"
        return Problem(507, "NO_SPACE", detail)
    if isinstance(error, DamagedEvents):
        detail = (
            f"the events of seqs {error.first_seq} to {error.last_seq} were damaged on the disk "
            "and are computed again from the log; try again in a few seconds"
        )
        return Problem(503, "UNAVAILABLE", detail, headers={"Retry-After": "5"})
    if isinstance(error, Unavailable):
        return _unavailable()
    if isinstance(error, Overloaded):
        return Problem(503, "UNAVAILABLE", str(error), headers={"Retry-After": "1"})
    raise error


def _unavailable() -> Problem:
    """Return the problem of a server that lacks something which comes back; its log says what."""
    detail = (
        "the server cannot reach its storage, or has too little memory or too many open files, at "
        "the moment; nothing was changed; try again in a few seconds"
    )
    return Problem(503, "UNAVAILABLE", detail, headers={"Retry-After": "5"})


def validation_problem(errors: Iterable[Any]) -> Problem:
    """Return the problem of a body or parameters that pydantic refused.

    Parameters
    ----------
    errors
        What ``errors()`` of pydantic's or FastAPI's exception returns.
    """
    found = list(islice(errors, _MAX_ERRORS))
    fields = [_field_error(error) for error in found]
    only_ranges = all(error["type"] in _OUT_OF_RANGE for error in found)
    return Problem.of_fields(fields, "OUT_OF_RANGE" if only_ranges else "INVALID_ARGUMENT")


def install(app: Starlette) -> None:
    """Make an application answer every exception with a problem document."""
    app.add_exception_handler(Problem, _answer_problem)
    app.add_exception_handler(NearcastError, _answer_library_error)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_exception_handler(MemoryError, _answer_unexpected)
    app.add_exception_handler(OSError, _answer_unexpected)
    app.add_exception_handler(Exception, _answer_unexpected)


def _field_error(error: Mapping[str, Any]) -> FieldError:
    if error["type"] == "json_invalid":
        return FieldError("", f"the body is not valid JSON (at character {error['loc'][-1]})")
    return FieldError(_path(error["loc"]), _reason(error))


def _path(location: Sequence[str | int]) -> str:
    """Return the path of a field as users write it: without FastAPI's and our unions' tags."""
    parts = [str(part) for part in location if not str(part).startswith("as:")]
    if parts and parts[0] in _BODY and parts[0] == location[0]:
        parts = parts[1:]
    return ".".join(parts)


def _reason(error: Mapping[str, Any]) -> str:
    """Return pydantic's message as the end of the sentence that begins with the field."""
    kind, context = error["type"], error.get("ctx", {})
    reasons = {
        "missing": "is missing",
        "extra_forbidden": "is not a known property",
        "float_type": "must be a number",
        "int_type": "must be an integer",
        "int_from_float": "must be an integer",
        "string_type": "must be a string",
        "bool_type": "must be true or false",
        "list_type": "must be an array",
        "dict_type": "must be an object",
        "model_type": "must be an object",
        "model_attributes_type": "must be an object",
        "finite_number": "must be a finite number",
    }
    if kind in reasons:
        return reasons[kind]
    templates = {
        "greater_than": "must be greater than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "string_too_short": "must have at least {min_length} characters",
        "string_too_long": "must have at most {max_length} characters",
        "too_short": "must have at least {min_length} items",
        "too_long": "must have at most {max_length} items",
        "literal_error": "must be {expected}",
        "union_tag_invalid": "must be one of {expected_tags}",
    }
    template = templates.get(kind)
    if template is not None:
        return template.format(**context).replace("as:", "")
    return one_line(str(error["msg"]).removeprefix("Value error, "), 500)


def _answer(request: Request, problem: Problem) -> Response:
    return problem.response(correlator_of(request.scope))


async def _answer_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _answer(request, error)


async def _answer_library_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, NearcastError)
    if isinstance(error, DamagedEvents):
        request.app.state.context.service.damaged(error)
    try:
        problem = problem_of(error)
    except NearcastError:
        return await _answer_unexpected(request, error)
    return _answer(request, problem)


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """Answer a client that went away before its request was complete: for the log only."""
    del error
    return _answer(request, Problem(400, "INVALID_ARGUMENT", "the request is not complete"))


async def _answer_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _answer(request, validation_problem(error.errors()))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _BY_STATUS.get(error.status_code)
    if code is None:
        code = "INVALID_ARGUMENT" if error.status_code < 500 else "INTERNAL"
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    return _answer(request, Problem(error.status_code, code, str(error.detail), headers=headers))


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes of a path; Starlette names those of the first one."""
    return [
        method
        for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    correlator = correlator_of(request.scope)
    if is_scarce(error) or _is_thread_refused(error):
        _log.error("a request failed: %r", error, extra={"fields": {"correlator": correlator}})
        return _answer(request, _unavailable())
    _log.error("unexpected error", exc_info=error, extra={"fields": {"correlator": correlator}})
    detail = "an error of the server; its log has the details under the correlator"
    return _answer(request, Problem(500, "INTERNAL", detail))


def _is_thread_refused(error: Exception) -> bool:
    """Return whether the system has refused another thread, for lack of memory or by a limit."""
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"
