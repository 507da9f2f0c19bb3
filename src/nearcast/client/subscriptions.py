"""Calls about subscriptions: each function returns a request and how its answer is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from nearcast.client.errors import ProblemError
from nearcast.client.exchange import (
    GEOJSON,
    JSON,
    NDJSON,
    Answer,
    Call,
    Document,
    Request,
    document,
    json_body,
    nothing,
    path,
    post,
)
from nearcast.client.publishing import Batch, Batcher, Rejected, rejected_of
from nearcast.client.terms import Terms, region_document, subscription_document
from nearcast.errors import UnsupportedFile
from nearcast.model import Message, Subscription

if TYPE_CHECKING:
    from nearcast.model.checks import AnyTime

__all__ = [
    "Imported",
    "Importing",
    "Page",
    "StoredSubscription",
    "check_moved",
    "delete",
    "get",
    "is_collection",
    "move_record",
    "page",
    "pause",
    "preview",
    "records_of",
    "replace",
    "resume",
    "subscribe",
    "update",
]

_PAGE = 1_000
_MERGE_PATCH = "application/merge-patch+json"
AnyRecord = Subscription | Mapping[str, Any] | bytes


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription as the server has it.

    Attributes
    ----------
    id
        Its id.
    version
        Raised by every change; `Client.update` and others can insist on it.
    status
        ``ACTIVE``, ``INACTIVE``, ``EXPIRED`` or ``DELETED``.
    secret
        The secret that signs its webhooks, if the server has just made it: it is shown only once.
    raw
        The whole resource.
    warnings
        In answers to changes: what is valid and probably not meant, such as a lower-case ``or``.
    """

    id: str
    version: int
    status: str
    secret: str | None = field(default=None, repr=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of records or moves: how many were accepted, and the others with the reason."""

    accepted: int
    rejected: tuple[Rejected, ...]


class Page(NamedTuple):
    """A page of a list, and the cursor of the next one."""

    subscriptions: list[StoredSubscription]
    next: str | None


def subscribe(
    subscription: Subscription | None = None, /, **terms: Unpack[Terms]
) -> Call[StoredSubscription]:
    """Create a subscription; it counts from the answer on.

    Parameters
    ----------
    subscription
        A `nearcast.Subscription`; its owner is the subscriber.
    terms
        What it asks for, instead or in addition: see `Terms`.

    Raises
    ------
    ProblemError
        With status 409 if the id exists. If the connection breaks, nobody knows whether it was
        created: `replace`, with an id of your own, is safe to repeat.
    """
    body = json_body(subscription_document(subscription, terms))
    request = Request("POST", path("subscriptions"), headers={"content-type": JSON}, body=body)
    return Call(request, _stored)


def replace(
    id: str,
    subscription: Subscription | None = None,
    /,
    *,
    if_version: int | None = None,
    **terms: Unpack[Terms],
) -> Call[StoredSubscription]:
    """Replace a subscription, or create it if there is none with this id.

    Parameters
    ----------
    id
        Its id.
    subscription, terms
        What it asks for from now on, as for `subscribe`.
    if_version
        Only if it has this version; otherwise a `ProblemError` with status 412.
    """
    given = {**subscription_document(subscription, terms), "id": id}
    return _change("PUT", id, given, JSON, if_version)


def get(id: str) -> Call[StoredSubscription]:
    """Return a subscription."""
    return Call(Request("GET", path("subscriptions", id), repeatable=True), _stored)


def update(
    id: str, patch: Mapping[str, Any], *, if_version: int | None = None
) -> Call[StoredSubscription]:
    """Change parts of a subscription, by a merge patch (RFC 7396).

    Parameters
    ----------
    id
        Its id.
    patch
        The parts of the resource that change, such as
        ``{"config": {"subscriptionDetail": {"keywords": ["tea"]}}}``; None removes a part.
    if_version
        Only if it has this version; otherwise a `ProblemError` with status 412.
    """
    return _change("PATCH", id, dict(patch), _MERGE_PATCH, if_version)


def pause(id: str) -> Call[StoredSubscription]:
    """Make a subscription match nothing until it is resumed."""
    return update(id, {"status": "INACTIVE"})


def resume(id: str) -> Call[StoredSubscription]:
    """Let a subscription match again."""
    return update(id, {"status": "ACTIVE"})


def delete(id: str, *, if_version: int | None = None) -> Call[None]:
    """Delete a subscription.

    Parameters
    ----------
    id
        Its id.
    if_version
        Only if it has this version; otherwise a `ProblemError` with status 412.
    """
    headers = {} if if_version is None else {"if-match": f'"{if_version}"'}
    return Call(Request("DELETE", path("subscriptions", id), headers=headers), nothing)


def preview(
    subscription: Subscription | None = None,
    /,
    *,
    messages: int | None = None,
    message: Message | Mapping[str, Any] | None = None,
    **terms: Unpack[Terms],
) -> Call[Document]:
    """Return which messages a subscription would have matched, and why; nothing is stored.

    Parameters
    ----------
    subscription, terms
        What it would ask for, as for `subscribe`.
    messages
        How many of the last messages it is compared with, up to 1,000; 100 if left out.
    message
        A message that it is compared with instead.
    """
    given = {
        "subscription": subscription_document(subscription, terms),
        "messages": messages,
        "message": message.to_dict() if isinstance(message, Message) else message,
    }
    return Call(post(path("preview"), given, repeatable=True), document)


def page(
    after: str | None,
    subscriber: str | None,
    bbox: tuple[float, float, float, float] | None,
    status: str | None,
) -> Call[Page]:
    """Return a page of subscriptions."""
    query = {"limit": str(_PAGE)}
    if after is not None:
        query["after"] = after
    if subscriber is not None:
        query["subscriber"] = subscriber
    if bbox is not None:
        query["bbox"] = ",".join(map(str, bbox))
    if status is not None:
        query["status"] = status
    return Call(Request("GET", path("subscriptions"), query, repeatable=True), _page)


@dataclass(slots=True)
class Importing:
    """Records or moves on their way: what was cut into batches, and what was answered.

    Parameters
    ----------
    route, counted
        The parts of the path, and the name of the count of what was accepted.
    query
        The query of every request.
    repeatable
        Whether sending a batch twice is the same as sending it once.
    collection
        Whether batches are sent as FeatureCollections.
    """

    route: tuple[str, ...]
    counted: str
    query: Mapping[str, str]
    repeatable: bool
    collection: bool = False
    _accepted: int = 0
    _rejected: list[Rejected] = field(default_factory=list)
    _batcher: Batcher = field(default_factory=Batcher)

    @classmethod
    def of_subscriptions(cls, source: object, *, upsert: bool) -> Importing:
        """Return an import of subscriptions."""
        query = {"upsert": "1"} if upsert else {}
        route = ("subscriptions", "import")
        return cls(route, "accepted", query, upsert, is_collection(source))

    @classmethod
    def of_moves(cls) -> Importing:
        """Return moves; the last one of a subscription counts, however often it is sent."""
        return cls(("moves",), "moved", {}, repeatable=True)

    def calls(self, records: Iterable[tuple[int, AnyRecord]]) -> Iterator[Call[None]]:
        """Yield the calls that send numbered records."""
        for index, record in records:
            if not isinstance(record, bytes):
                record = json_body(record.to_dict() if isinstance(record, Subscription) else record)
            if (batch := self._batcher.add(index, record)) is not None:
                yield self._call(batch)
        if (batch := self._batcher.end()) is not None:
            yield self._call(batch)

    def result(self) -> Imported:
        """Return what became of all records so far."""
        return Imported(self._accepted, tuple(sorted(self._rejected)))

    def _call(self, batch: Batch) -> Call[None]:
        if self.collection:
            body = b'{"type":"FeatureCollection","features":[%s]}' % b",".join(batch.lines)
        else:
            body = b"\n".join(batch.lines) + b"\n"
        headers = {"content-type": GEOJSON if self.collection else NDJSON}
        request = Request("POST", path(*self.route), self.query, headers, body, self.repeatable)
        return Call(request, lambda answer: self._note(batch, answer))

    def _note(self, batch: Batch, answer: Answer) -> None:
        given = document(answer)
        self._accepted += int(given[self.counted])
        self._rejected += rejected_of(given, batch.indexes)


def records_of(
    source: str | Path | Iterable[Subscription | Mapping[str, Any]],
) -> Iterator[tuple[int, AnyRecord]]:
    """Yield the records of a file or an iterable with their numbers, from 0.

    A file has lines of JSON, whose numbers are those of the lines; or it is a GeoJSON
    FeatureCollection (.geojson or .json), whose numbers are those of the features.
    """
    if not isinstance(source, str | Path):
        yield from enumerate(source)
        return
    try:
        with Path(source).open("rb") as file:
            if is_collection(source):
                yield from enumerate(_features(file.read(), source))
                return
            for number, line in enumerate(file):
                if line.strip():
                    yield number, line.strip()
    except OSError as error:
        raise UnsupportedFile(f"{source}: {error.strerror}") from None


def is_collection(source: object) -> bool:
    """Return whether this is a file with a FeatureCollection."""
    return isinstance(source, str | Path) and Path(source).suffix in (".geojson", ".json")


def move_record(id: str, region: Any, time: AnyTime | None = None) -> dict[str, Any]:
    """Return a move as the server reads it."""
    given = {"subscriptionId": id, "region": region_document(region)}
    return given if time is None else {**given, "time": time}


def check_moved(moved: Imported) -> None:
    """Raise an error if the only move was rejected."""
    for one in moved.rejected:
        if one.field == "subscriptionId":
            raise ProblemError(404, "NOT_FOUND", one.reason)
        raise ProblemError(400, "INVALID_ARGUMENT", f"{one.field}: {one.reason}")


def _features(content: bytes, source: str | Path) -> list[Mapping[str, Any]]:
    """Return the features of a collection."""
    try:
        given = json.loads(content)
    except ValueError as error:
        raise UnsupportedFile(f"{source}: is not JSON: {error}") from None
    if not isinstance(given, dict) or not isinstance(given.get("features"), list):
        raise UnsupportedFile(f"{source}: must be a FeatureCollection, or lines (.ndjson)")
    features: list[Mapping[str, Any]] = given["features"]
    return features


def _change(
    method: str, id: str, given: dict[str, Any], content_type: str, if_version: int | None
) -> Call[StoredSubscription]:
    headers = {"content-type": content_type}
    if if_version is not None:
        headers["if-match"] = f'"{if_version}"'
    request = Request(
        method,
        path("subscriptions", id),
        headers=headers,
        body=json_body(given),
        repeatable=if_version is None,
    )
    return Call(request, _stored)


def _stored(answer: Answer) -> StoredSubscription:
    return _stored_of(document(answer))


def _stored_of(given: dict[str, Any]) -> StoredSubscription:
    secret = given.pop("sinkCredential", {}).get("secret")
    warnings = tuple(given.pop("warnings", None) or ())
    return StoredSubscription(
        given["id"], given["version"], given["status"], secret, given, warnings
    )


def _page(answer: Answer) -> Page:
    given = document(answer)
    return Page([_stored_of(one) for one in given["subscriptions"]], given.get("next"))
