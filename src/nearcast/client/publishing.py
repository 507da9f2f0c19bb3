"""Messages in batches: how they are cut, sent and answered, whichever client sends them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nearcast.client.errors import InvalidAnswer
from nearcast.client.exchange import (
    NDJSON,
    Answer,
    Call,
    Document,
    Request,
    document,
    json_body,
    path,
)
from nearcast.errors import InvalidInput
from nearcast.model import Message

__all__ = [
    "AnyMessage",
    "Batch",
    "Batcher",
    "Published",
    "Publishing",
    "Reach",
    "Rejected",
    "is_one_message",
    "message",
]

AnyMessage = Message | Mapping[str, Any]

BATCH_MESSAGES = 1_000
BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class Rejected:
    """A message or record that was refused; ``index`` counts from 0 in what was given."""

    index: int
    field: str
    reason: str


class Reach(NamedTuple):
    """Whom a message would reach."""

    subscriptions: int
    subscribers: int


@dataclass(frozen=True, slots=True)
class Published:
    """What became of messages.

    Attributes
    ----------
    accepted
        How many are on the server's disk.
    ids
        Their ids, one for each given message; None for messages that were not accepted.
    rejected
        The others, with the reason.
    reach
        With `Client.dry_run`: whom each message would reach; None for those not accepted.
    """

    accepted: int
    ids: tuple[str | None, ...]
    rejected: tuple[Rejected, ...]
    reach: tuple[Reach | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines that are sent together, and where each was in what was given."""

    lines: list[bytes]
    indexes: list[int]


class Batcher:
    """Cuts lines into batches.

    Parameters
    ----------
    max_lines, max_bytes
        When a batch is full. A line that is larger is a batch of its own.
    """

    def __init__(self, max_lines: int = BATCH_MESSAGES, max_bytes: int = BATCH_BYTES) -> None:
        self._max_lines, self._max_bytes = max_lines, max_bytes
        self._batch = Batch([], [])
        self._bytes = 0

    def add(self, index: int, line: bytes) -> Batch | None:
        """Add a line; return the batch before it if that is full."""
        full = len(self._batch.lines) >= self._max_lines
        done = None
        if self._batch.lines and (full or self._bytes + len(line) + 1 > self._max_bytes):
            done = self.end()
        self._batch.lines.append(line)
        self._batch.indexes.append(index)
        self._bytes += len(line) + 1
        return done

    def end(self) -> Batch | None:
        """Return the last batch; None if there is nothing."""
        done, self._batch, self._bytes = self._batch, Batch([], []), 0
        return done if done.lines else None


@dataclass(slots=True)
class Publishing:
    """Messages on their way: what was cut into batches, and what was answered.

    Parameters
    ----------
    strict
        All or nothing: everything is one request.
    dry_run
        Only ask whom the messages would reach.
    """

    strict: bool = False
    dry_run: bool = False
    _count: int = 0
    _rejected: list[Rejected] = field(default_factory=list)
    _ids: dict[int, str] = field(default_factory=dict)
    _reach: dict[int, Reach] = field(default_factory=dict)
    _batcher: Batcher = field(init=False)

    def __post_init__(self) -> None:
        unlimited = 1 << 62
        self._batcher = Batcher(unlimited, unlimited) if self.strict else Batcher()

    def add(self, message: AnyMessage) -> Call[None] | None:
        """Add a message; return the call that is to be made before the next one, if any."""
        index, self._count = self._count, self._count + 1
        try:
            line = json_body(message.to_dict() if isinstance(message, Message) else message)
        except (TypeError, ValueError, RecursionError) as error:
            if self.strict:
                problem = f"message {index} cannot be written as JSON: {error}"
                raise InvalidInput("messages", message, problem) from None
            self._rejected.append(Rejected(index, "", f"cannot be written as JSON: {error}"))
            return None
        return self._call(self._batcher.add(index, line))

    def end(self) -> Call[None] | None:
        """Return the last call; None if everything was sent."""
        return self._call(self._batcher.end())

    def calls(self, messages: Iterable[AnyMessage]) -> Iterator[Call[None]]:
        """Yield the calls that publish messages."""
        for message in messages:
            if (call := self.add(message)) is not None:
                yield call
        if (call := self.end()) is not None:
            yield call

    def result(self) -> Published:
        """Return what became of all messages so far."""
        every = range(self._count)
        return Published(
            accepted=len(self._reach if self.dry_run else self._ids),
            ids=() if self.dry_run else tuple(map(self._ids.get, every)),
            rejected=tuple(sorted(self._rejected)),
            reach=tuple(map(self._reach.get, every)) if self.dry_run else (),
        )

    def _call(self, batch: Batch | None) -> Call[None] | None:
        if batch is None:
            return None
        headers = {"content-type": NDJSON}
        if not self.dry_run:
            headers["idempotency-key"] = uuid.uuid4().hex
        if self.strict:
            headers["prefer"] = "handling=strict"
        body = b"\n".join(batch.lines) + b"\n"
        query = {"dryRun": "1"} if self.dry_run else {}
        request = Request("POST", path("messages"), query, headers, body, repeatable=True)
        return Call(request, lambda answer: self._note(batch, answer))

    def _note(self, batch: Batch, answer: Answer) -> None:
        given = document(answer)
        refused = rejected_of(given, batch.indexes)
        self._rejected += refused
        left_out = {one.index for one in refused}
        accepted = [index for index in batch.indexes if index not in left_out]
        if given.get("accepted") != len(accepted):
            problem = f"{given.get('accepted')!r} of {len(batch.lines)} messages were accepted"
            raise InvalidAnswer(f"{problem}, but {len(refused)} rejected")
        if self.dry_run:
            reach = [Reach(one["subscriptions"], one["subscribers"]) for one in given["reach"]]
            self._reach |= dict(zip(accepted, reach, strict=False))
        elif accepted:
            epoch, _, _ = str(given["firstId"]).partition("-")
            first = int(given["firstSeq"])
            self._ids |= {index: f"{epoch}-{first + k}" for k, index in enumerate(accepted)}


def rejected_of(given: Mapping[str, Any], indexes: list[int]) -> list[Rejected]:
    """Return what an answer says about rejected lines, which it counts from 1."""
    return [
        Rejected(indexes[one["line"] - 1], one["field"], one["reason"]) for one in given["rejected"]
    ]


def message(id: str) -> Call[Document]:
    """Return a message by the id that publishing returned, and how many subscriptions it reached.

    ``reach`` is None until it is matched.
    """
    return Call(Request("GET", path("messages", id), repeatable=True), document)


def is_one_message(messages: object) -> bool:
    """Return whether this is one message instead of many."""
    return isinstance(messages, Message | Mapping)
