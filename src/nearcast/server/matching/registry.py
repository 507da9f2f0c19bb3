"""What matching has to know of every subscription, by handle; and the numbers of channels.

Everything here follows from the log. It is kept in flat arrays, saved with every checkpoint, and
brought up to date from the log after that.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import NEVER, UNITS, GrowingArray
from nearcast.storage import strings_from_arrays, strings_to_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.server.state.cells import Box

__all__ = [
    "ACTIVE",
    "DELETED",
    "ENDED",
    "PAUSED",
    "WANTS",
    "Channel",
    "Registry",
    "Row",
    "generated_id",
]

ACTIVE, PAUSED, ENDED, DELETED = 1, 2, 3, 4
"""The status of a subscription. From `ENDED` on it is never matched again.

One that ended by itself keeps its id until another one takes it; one that was deleted does not.
"""

WANTS = {
    "match": 1,
    "unmatch": 2,
    "subscription-started": 4,
    "subscription-updated": 8,
    "subscription-ended": 16,
}
"""The bit of each type of event in ``wants``."""

_ROW = np.dtype(
    [
        ("tenant", "<u4"),
        ("channel", "<u4"),
        ("sink", "<u4"),
        ("max_events", "<i4"),
        ("events", "<i4"),
        ("status", "u1"),
        ("wants", "u1"),
        ("ranked", "?"),
        ("in_engine", "?"),
        ("expires_us", "<i8"),
        ("dwell_us", "<i8"),
        ("version", "<i8"),
    ]
)
_GENERATED = "sub-"
_SUBSCRIBER, _SINK, _RETIRED = "subscriber\0", "sink\0", "retired\0"
"""How the keys of channels begin; a retired sink gets no more events."""

_MIN_EXPIRING = 1024


class Row(NamedTuple):
    """What is known of a subscription, as a tuple; see `Registry`."""

    tenant: int
    channel: int
    sink: int
    max_events: int
    events: int
    status: int
    wants: int
    ranked: bool
    in_engine: bool
    expires_us: int
    dwell_us: int
    version: int


NEW = Row(0, 0, 0, 0, 0, 0, 0, False, False, NEVER, 0, 0)
"""What is known of a subscription before it is added."""


class Channel(NamedTuple):
    """Whose events a channel has: those of a subscriber, or, with a URL, those for a sink."""

    tenant: int
    subscriber: str
    url: str | None = None

    @property
    def key(self) -> str:
        """The channel as a text that no other channel has."""
        kind = _SUBSCRIBER if self.url is None else _SINK
        return kind + "\0".join([str(self.tenant), self.subscriber, self.url or ""])


def generated_id(handle: int) -> str:
    """Return the id of a subscription for which the client gave none."""
    return f"{_GENERATED}{handle:x}"


def _handle_of_generated(id: str) -> int | None:
    digits = id.removeprefix(_GENERATED)
    if digits == id or len(digits) > 8 or not digits.isascii():
        return None
    try:
        handle = int(digits, 16)
    except ValueError:
        return None
    return handle if generated_id(handle) == id else None


class Registry:
    """Subscriptions by handle, and channels by number. Handles are never given to another one.

    One thread changes it, any thread may look something up. The fields of ``rows`` and `Row`:

    ``tenant``, ``channel``, ``sink``
        Whose it is, and the channels of its events; ``sink`` is 0 if it has none.
    ``status``, ``version``
        `ACTIVE`, `PAUSED`, `ENDED` or `DELETED`, and the number of its last change.
    ``wants``
        The types of events it wants, as bits of `WANTS`.
    ``max_events``, ``events``
        After how many events it ends (0: never), and how many it had, if that matters.
    ``ranked``, ``expires_us``, ``dwell_us``
        As in its definition.
    ``in_engine``
        Whether the engine has it: not while it is paused; for a while after it has ended.
    """

    def __init__(self) -> None:
        self._rows = GrowingArray(np.empty(0, _ROW))
        self._boxes = GrowingArray(np.empty((0, 4), np.int32))
        self._names: list[str | None] = []
        self._ids: dict[int, dict[str, int]] = {}  # by tenant and id
        self._channels: dict[str, int] = {}
        self._channel_keys: list[str] = []
        self._subscriber_tenants = GrowingArray(np.empty(0, np.int64))  # by channel
        self._expiring: list[tuple[int, int]] = []
        self.ranked_count = 0
        self.per_tenant: dict[int, int] = {}
        self.subscribers_per_tenant: dict[int, int] = {}
        self._add_channel("none")  # channel 0 is no channel

    def __len__(self) -> int:
        return len(self._names)

    @property
    def rows(self) -> NDArray[Any]:
        """The fields of all subscriptions, by handle; to be changed in place."""
        return self._rows.writable

    @property
    def boxes(self) -> NDArray[np.int32]:
        """The bounding boxes of all subscriptions where they are now, by handle.

        West, south, east and north in units of 1e-7 degree; across the antimeridian, west > east.
        """
        return self._boxes.view

    # --- channels --------------------------------------------------------------------------------

    @property
    def channel_count(self) -> int:
        """How many numbers of channels there are; the first one is 0."""
        return len(self._channel_keys)

    def channel_of(self, channel: Channel) -> int:
        """Return the number of a channel; 0 if it never had a subscription."""
        return self._channels.get(channel.key, 0)

    def add_channel(self, channel: Channel) -> tuple[int, bool]:
        """Return the number of a channel, and whether it is new."""
        key = channel.key
        known = self._channels.get(key)
        return (known, False) if known is not None else (self._add_channel(key), True)

    def channel(self, number: int) -> Channel:
        """Return a channel by its number, also one that is retired."""
        kind, tenant, subscriber, url = self._channel_keys[number].split("\0")
        return Channel(int(tenant), subscriber, None if kind == "subscriber" else url)

    def is_subscriber_of(self, tenant: int, channels: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Tell which channels are those of subscribers of a tenant, and not of sinks."""
        chosen: NDArray[np.bool_] = self._subscriber_tenants.view[channels] == tenant
        return chosen

    def is_sink(self, number: int) -> bool:
        """Return whether there is a channel with this number, and it is that of a sink."""
        known = 0 < number < len(self._channel_keys)
        return known and self.channel(number).url is not None

    def retire(self, number: int) -> None:
        """Let the channel of a sink get no more events: its address gets another one if needed."""
        key = self._channel_keys[number]
        if key.startswith(_SINK):
            del self._channels[key]
            self._channel_keys[number] = _RETIRED + key.removeprefix(_SINK)

    def sending_to(self, channel: int) -> list[int]:
        """Return the subscriptions that have not ended and have the sink of a channel."""
        rows = self.rows
        found = np.flatnonzero((rows["sink"] == channel) & (rows["status"] < ENDED))
        return [] if not channel else found.tolist()

    def used_sinks(self) -> set[int]:
        """Return the channels of the sinks of subscriptions that have not ended."""
        return {*np.unique(self.rows["sink"][self.unended()]).tolist()} - {0}

    def _add_channel(self, key: str) -> int:
        number = len(self._channel_keys)
        self._channel_keys.append(key)
        tenant = _subscriber_tenant(key)
        self._subscriber_tenants.push(tenant)
        if tenant >= 0:
            self.subscribers_per_tenant[tenant] = self.subscribers_per_tenant.get(tenant, 0) + 1
        self._channels[key] = number
        return number

    # --- subscriptions ---------------------------------------------------------------------------

    def find(self, tenant: int, id: str) -> int:
        """Return the handle of a subscription that has not ended, -1 if there is none."""
        handle = self.known(tenant, id)
        return handle if handle >= 0 and self.rows["status"][handle] < ENDED else -1

    def known(self, tenant: int, id: str) -> int:
        """Return the handle of a subscription that was not deleted, -1 if there is none."""
        generated = _handle_of_generated(id)
        if generated is not None:
            if generated >= len(self) or self._names[generated] is not None:
                return -1
            row = self.rows[generated]
            return generated if row["tenant"] == tenant and row["status"] < DELETED else -1
        return self._ids.get(tenant, {}).get(id, -1)

    def id_of(self, handle: int) -> str:
        """Return the id by which clients know a subscription."""
        return self._names[handle] or generated_id(handle)

    def is_reserved(self, id: str) -> bool:
        """Return whether an id has the form of those that the server chooses."""
        return _handle_of_generated(id) is not None

    def row(self, handle: int) -> Row:
        """Return what is known of a subscription."""
        return Row(*self.rows[handle].item())

    def add(self, id: str | None, row: Row, box: Box) -> int:
        """Return the handle of a new subscription; ``box`` is its bounding box in degrees."""
        handle, tenant = len(self._names), row.tenant
        self._names.append(id)
        if id is not None:
            self._ids.setdefault(tenant, {})[id] = handle
        self._boxes.push(_units(box))  # before it counts for readers
        self._rows.push(row)
        self.per_tenant[tenant] = self.per_tenant.get(tenant, 0) + 1
        self._note(handle, NEW, row)
        return handle

    def put(self, handle: int, before: Row, row: Row) -> None:
        """Change what is known of a subscription that has not ended."""
        self.rows[handle] = row
        self._note(handle, before, row)

    def _note(self, handle: int, before: Row, row: Row) -> None:
        self.ranked_count += int(row.ranked) - int(before.ranked)
        if row.expires_us < NEVER and row.expires_us != before.expires_us:
            heapq.heappush(self._expiring, (row.expires_us, handle))
            if len(self._expiring) > 2 * len(self) + _MIN_EXPIRING:
                self._expiring = self._all_expiring()

    def place(self, handle: int, box: Box) -> None:
        """Note where a subscription is, by its bounding box in degrees."""
        self._boxes.writable[handle] = _units(box)

    def revive(self, handle: int) -> None:
        """Let a subscription that ended by itself begin again; `put` says what is known of it."""
        row = self.rows[handle]
        self.per_tenant[int(row["tenant"])] += 1

    def end(self, handle: int) -> None:
        """End a subscription by itself; it keeps its id."""
        row = self.rows[handle]
        row["status"] = ENDED
        self.per_tenant[int(row["tenant"])] -= 1
        self.ranked_count -= int(row["ranked"])

    def delete(self, handle: int) -> None:
        """Delete a subscription, also one that has ended; its id is free again."""
        row, name = self.rows[handle], self._names[handle]
        if row["status"] < ENDED:
            self.end(handle)
        row["status"] = DELETED
        if name is not None:
            del self._ids[int(row["tenant"])][name]

    @property
    def next_expiry_us(self) -> int:
        """When the next subscription expires, at the earliest."""
        return self._expiring[0][0] if self._expiring else NEVER

    def take_expired(self, time_us: int) -> list[int]:
        """Return the subscriptions that expire until a time and have not ended, by expiry."""
        found = []
        while self._expiring and self._expiring[0][0] <= time_us:
            expiry, handle = heapq.heappop(self._expiring)
            row = self.rows[handle]
            if row["status"] < ENDED and row["expires_us"] == expiry:
                found.append(handle)
        return [*dict.fromkeys(found)]

    def _all_expiring(self) -> list[tuple[int, int]]:
        """Return expiry and handle of all subscriptions that expire, as a heap."""
        handles, expires_us = self.unended(), self.rows["expires_us"]
        handles = handles[expires_us[handles] < NEVER]
        return sorted(zip(expires_us[handles].tolist(), handles.tolist(), strict=True))

    def unended(self) -> NDArray[np.int64]:
        """Return the handles of subscriptions that have not ended."""
        return np.flatnonzero(self.rows["status"] < ENDED)

    # --- on disk ---------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays, to be saved."""
        named = [handle for handle, name in enumerate(self._names) if name is not None]
        names = pa.array([self._names[handle] for handle in named], pa.string())
        return {
            **{name: self.rows[name].copy() for name in _ROW.names or ()},
            "box": self.boxes.copy(),
            "named": np.array(named, np.int64),
            **{f"names.{k}": v for k, v in strings_to_arrays(names).items()},
            **{
                f"channels.{k}": v
                for k, v in strings_to_arrays(pa.array(self._channel_keys, pa.string())).items()
            },
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Registry:
        """Return the registry that was saved."""
        registry = cls()
        rows = np.zeros(len(arrays["tenant"]), _ROW)
        for name in _ROW.names or ():
            rows[name] = arrays[name]
        registry._rows = GrowingArray(rows)
        registry._boxes = GrowingArray(arrays["box"].astype(np.int32).reshape(len(rows), 4))
        registry._names = [None] * len(rows)
        status, tenant = rows["status"], rows["tenant"]
        for handle, name in zip(arrays["named"].tolist(), _strings("names", arrays), strict=True):
            registry._names[handle] = name
            if status[handle] < DELETED:
                registry._ids.setdefault(int(tenant[handle]), {})[name] = handle
        registry._channel_keys = _strings("channels", arrays)
        tenants = [_subscriber_tenant(key) for key in registry._channel_keys]
        registry._subscriber_tenants = GrowingArray(np.array(tenants, np.int64))
        registry.subscribers_per_tenant = {**Counter(t for t in tenants if t >= 0)}
        registry._channels = {
            key: number
            for number, key in enumerate(registry._channel_keys)
            if not key.startswith(_RETIRED)
        }
        open_ = registry.unended()
        registry.ranked_count = int(np.count_nonzero(rows["ranked"][open_]))
        numbers, counts = np.unique(tenant[open_], return_counts=True)
        registry.per_tenant = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        registry._expiring = registry._all_expiring()
        return registry


def _subscriber_tenant(key: str) -> int:
    """Return the tenant of the subscriber whose channel has a key; -1 if it is no subscriber's."""
    kind, _, rest = key.partition("\0")
    return int(rest.partition("\0")[0]) if kind + "\0" == _SUBSCRIBER else -1


def _units(box: Box) -> tuple[int, ...]:
    return tuple(round(side * UNITS) for side in box)


def _strings(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    own = {k.removeprefix(f"{prefix}."): v for k, v in arrays.items() if k.startswith(prefix + ".")}
    values: list[str] = strings_from_arrays(own).to_pylist()
    return values
