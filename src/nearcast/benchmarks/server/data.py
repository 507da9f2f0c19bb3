"""The folder of a server before it starts: a key, subscriptions, and messages that were missed.

The subscriptions are those of the data set ``tweets``, ten a subscriber. Besides, every stream has
a subscription to one of a few tags, worldwide: so a message with a tag reaches a known number of
streams, whatever else it matches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nearcast.benchmarks.server.load import DUE, stream_name
from nearcast.datasets import Workload, message_table, subscription_table
from nearcast.server.log.records import Change, Definition
from nearcast.server.opening import DEFAULT_TENANT, make_tenant_key
from nearcast.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nearcast.benchmarks.compare import Step

__all__ = ["Prepared", "prepare_folder", "publish_missed", "request_bodies", "tag_of"]

SUBSCRIPTIONS_PER_SUBSCRIBER = 10
STREAMS_PER_TAG = 4
_CHANGES_PER_RECORD = 10_000
_MISSED_PER_RECORD = 10_000
_MISSED_IN_FLIGHT = 4
_BODIES = 250
_WORLD = (-180.0, -90.0, 180.0, 90.0)
_UNLIMITED = {"requestsPerS": 1e6, "messagesPerS": 1e9}


class Prepared(NamedTuple):
    """A folder that is ready for a server: where it is, a key, and how many streams it expects."""

    folder: Path
    key: str
    streams: int


def tag_of(stream: int) -> int:
    """Return the number of the tag that a stream has subscribed to."""
    return stream // STREAMS_PER_TAG


def prepare_folder(
    folder: Path, subscriptions: int, streams: int, seed: int, step: Step
) -> Prepared:
    """Fill a new folder with subscriptions, without HTTP, and return a key for it."""

    async def fill(service: Service) -> str:
        tenant = {"op": "tenant", "name": DEFAULT_TENANT, "limits": _UNLIMITED}
        await service.administer(tenant)
        await service.change(0, [_tag_change(number) for number in range(streams)])
        workload = Workload("tweets", seed)
        for first in range(0, subscriptions, _CHANGES_PER_RECORD):
            step("loading subscriptions", first, subscriptions)
            count = min(_CHANGES_PER_RECORD, subscriptions - first)
            await service.change(0, [*_changes(workload, first, count)])
        return await make_tenant_key(service, 0, ("publish", "subscribe"), "bench", None)

    folder.mkdir(mode=0o700, parents=True)

    async def run() -> str:
        service = Service.open(folder)
        service.start()
        try:
            return await fill(service)
        finally:
            await service.close()

    return Prepared(folder, asyncio.run(run()), streams)


def publish_missed(
    folder: Path, messages: int, tags: int, seed: int, step: Step
) -> tuple[str, list[int]]:
    """Publish messages without HTTP, in order of their tags, while nobody listens.

    Returns
    -------
    cursor, counts
        The id of the last record before them, and the number of messages of each tag.
    """
    blobs = _messages(tags * 100, tags, seed)

    async def run() -> str:
        service = Service.open(folder)
        service.start()
        try:
            before = await service.publish(
                0, [b'{"text":"before","lon":0.0,"lat":0.0}'], b"", None, b""
            )
            waiting: deque[asyncio.Task[object]] = deque()
            for first in range(0, messages, _MISSED_PER_RECORD):
                step("publishing what is missed", first, messages)
                count = min(_MISSED_PER_RECORD, messages - first)
                batch = [blobs[n % len(blobs)] for n in range(first, first + count)]
                waiting.append(asyncio.create_task(service.publish(0, batch, b"", None, b"")))
                if len(waiting) >= _MISSED_IN_FLIGHT:
                    await waiting.popleft()
            await asyncio.gather(*waiting)
            assert before.stretch is not None
            return before.stretch.last_id
        finally:
            await service.close()

    counts = [messages // tags + (tag < messages % tags) for tag in range(tags)]
    return asyncio.run(run()), counts


def request_bodies(batch: int, tags: int, seed: int) -> list[bytes]:
    """Return bodies of requests, each of ``batch`` messages with the time at which it is due."""
    blobs = _messages(_BODIES * batch, tags, seed, b'{"t":%s}' % DUE)
    return [b"\n".join(blobs[first : first + batch]) for first in range(0, len(blobs), batch)]


def _messages(count: int, tags: int, seed: int, properties: bytes = b"") -> list[bytes]:
    """Return messages of ``tweets`` as the log stores them; the n-th has tag n modulo ``tags``.

    Parameters
    ----------
    count
        How many.
    tags
        How many tags there are; without any, messages are as the data set has them.
    seed
        That of the data set.
    properties
        JSON for the property ``properties``, if any.
    """
    workload = Workload("tweets", seed)
    rows = message_table(workload, workload.messages(count)).select(["text", "lon", "lat"])
    tail = b',"properties":%s}' % properties if properties else b"}"
    blobs = []
    for number, row in enumerate(rows.to_pylist()):
        if tags:
            row["text"] += f" {_tag(number % tags)}"
        blobs.append(msgspec.json.encode(row)[:-1] + tail)
    return blobs


def _tag(number: int) -> str:
    return f"benchtag{number}"


def _changes(workload: Workload, first: int, count: int) -> Iterator[Change]:
    drawn = workload.subscriptions(count, first=first)
    for number, row in enumerate(subscription_table(workload, drawn).to_pylist(), first):
        del row["id"]
        subscriber = f"user-{number // SUBSCRIPTIONS_PER_SUBSCRIBER}"
        yield Change(None, _definition(subscriber, row))


def _tag_change(stream: int) -> Change:
    west, south, east, north = _WORLD
    place = {"west": west, "south": south, "east": east, "north": north}
    row = {"keywords": [_tag(tag_of(stream))], **place}
    return Change(None, _definition(stream_name(stream), row))


def _definition(subscriber: str, row: dict[str, object]) -> Definition:
    box = tuple(float(str(row[side])) for side in ("west", "south", "east", "north"))
    region = {"areaType": "BOX"} | {side: row[side] for side in ("west", "south", "east", "north")}
    detail = {"subscriber": subscriber, "keywords": row["keywords"], "region": region}
    given = {"protocol": "HTTP", "config": {"subscriptionDetail": detail}}
    west, south, east, north = box
    return Definition(
        subscriber, row, (west, south, east, north), "boolean", given, types=("match",)
    )
