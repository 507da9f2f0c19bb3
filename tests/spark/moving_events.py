"""Generated changes and living messages, what they must give, and a stream without Spark.

The oracle knows nothing of engines or states: it keeps rows in dictionaries, and after every moment
it asks the scan what matches.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from generated import (
    MESSAGE_FIELDS,
    NOW_US,
    RANKED_FIELDS,
    SUBSCRIPTION_FIELDS,
    WORDS,
    message_table,
    mixed_table,
    scored,
)

from nearcast.spark.workers import updating
from nearcast.spark.workers.events import CHANGE, GIVEN, MESSAGE, PREFIX, RouteEvents
from nearcast.spark.workers.updating import COUNTS, ApplyEvents, Task, update_schema

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from nearcast.spark.artifact.versions import Artifact

Row = dict[str, Any]
Update = tuple[int, Any, Any, int, float | None]
"""Time in microseconds, subscription, message, sign, and the score if it is ranked."""

SECOND = 1_000_000
CHANGE_FIELDS = {"op": pa.string(), "time": pa.int64(), **SUBSCRIPTION_FIELDS, **RANKED_FIELDS}
SUBSCRIPTIONS = {**SUBSCRIPTION_FIELDS, **RANKED_FIELDS}
LIVING_FIELDS = {**MESSAGE_FIELDS, "ttl_s": pa.float64()}
_PLACE = ("west", "south", "east", "north", "lon", "lat", "radius_m", "geometry")
_STEPS = ("delete", "insert", "move", "message")


class Batch(NamedTuple):
    """The rows of a micro-batch, and its time."""

    changes: list[Row]
    messages: list[Row]
    now_us: int = NOW_US + 10_000 * SECOND


@dataclass
class Recording:
    """Subscriptions to begin with, and what happens to them."""

    subscriptions: pa.Table
    changes: list[Row]
    messages: list[Row]

    def cut(self, times_us: list[int]) -> list[Batch]:
        """Return everything in the order of time, cut before these times."""
        ends = [*sorted(times_us), 1 << 62]
        batches = []
        start = -1
        for end in ends:
            changes, messages = (
                [row for row in some if start <= row["time"] < end]
                for some in (self.changes, self.messages)
            )
            batches.append(Batch(changes, messages))
            start = end
        return [batch for batch in batches if batch.changes or batch.messages]


def record(seed: int, *, count: int = 40, events: int = 100, seconds: int = 25) -> Recording:
    """Draw a recording with subscriptions and places of every kind, in any order of rows."""
    draw = random.Random(seed)
    rows = mixed_table(count + 30, seed).to_pylist()
    for row in rows:
        if row["expires_at"] is not None:
            row["expires_at"] = NOW_US + draw.randrange(seconds) * SECOND
    begin, later = rows[:count], rows[count:]
    of_name = {row["id"]: row for row in rows}
    changes = []
    for _ in range(events):
        one = {"time": NOW_US + draw.randrange(seconds) * SECOND}
        op = draw.choice(["move"] * 8 + ["delete", "insert", "insert"])
        name = f"s{draw.randrange(count + 30)}"
        if op == "insert":
            changes.append({**draw.choice([*later, *rows]), **one, "op": op})
        elif op == "delete":
            changes.append({"id": name, **one, "op": op})
        else:
            place = draw.choice(rows)
            while draw.random() < 0.9 and _is_point(place) != _is_point(of_name[name]):
                place = draw.choice(rows)
            changes.append({"id": name, **{side: place[side] for side in _PLACE}, **one, "op": op})
    # The score of a match that begins is that of its first place, even if it moves at once.
    inserted = {(row["id"], row["time"]) for row in changes if row["op"] == "insert"}
    changes = [r for r in changes if r["op"] != "move" or (r["id"], r["time"]) not in inserted]
    messages = message_table(events // 2, seed).to_pylist()
    for row in messages:
        row["time"] = NOW_US + draw.randrange(seconds) * SECOND
        row["ttl_s"] = draw.choice([0.0, 1.0, 3.0, 10.0, 100.0])
        if row["text"] is None:
            row["tokens"] = row["tokens"][:9]
        else:
            row["text"] = " ".join(row["text"].split(", ")[:9])
        if draw.random() < 0.1:
            row["id"] = draw.choice(messages)["id"]
    table = pa.Table.from_pylist(begin, pa.schema([("id", pa.string()), *SUBSCRIPTIONS.items()]))
    return Recording(table, changes, messages)


def alternating(seed: int, *, count: int = 30, events: int = 70, seconds: int = 10) -> Recording:
    """Draw boolean subscriptions, and moves and living messages of which no two are simultaneous.

    Some few are not like that: a delete, an insert, a message that does not live, an id used again.
    """
    draw = random.Random(seed)
    rows = [row for row in mixed_table(4 * count, seed).to_pylist() if row["alpha"] is None]
    rows = [{**row, "expires_at": None} for row in rows if row["delta"] is None][:count]
    rows[0]["expires_at"] = NOW_US + seconds * SECOND // 2
    times = [NOW_US + moment for moment in draw.sample(range(seconds * SECOND), 2 * events)]
    changes: list[Row] = []
    for time_us in times[:events]:
        place = draw.choice(rows)
        move = {"id": draw.choice(rows)["id"], **{side: place[side] for side in _PLACE}}
        changes.append({**move, "time": time_us, "op": "move"})
    changes[7] = {"id": rows[1]["id"], "time": changes[7]["time"], "op": "delete"}
    changes[8] = {**rows[1], "time": changes[8]["time"], "op": "insert"}
    messages = message_table(events, seed).to_pylist()
    for row, time_us in zip(messages, times[events:], strict=True):
        row |= {"time": time_us, "ttl_s": draw.choice([0.2, 1.0, 3.0, 100.0])}
        row |= {"tokens": None, "text": " ".join(draw.sample(WORDS, 6))}
    messages[5]["ttl_s"] = 0.0
    messages[6]["id"] = messages[5]["id"]
    table = table_of(rows, SUBSCRIPTIONS)
    return Recording(table, changes, messages)


def _is_point(row: Row) -> bool:
    return row["delta"] is not None


@dataclass
class Truth:
    """What is registered and alive, and the updates that must come; one row at a time."""

    counted: pa.Table
    subscriptions: dict[Any, Row] = field(default_factory=dict)
    living: dict[Any, Row] = field(default_factory=dict)
    pairs: dict[tuple[Any, Any, int], float | None] = field(default_factory=dict)
    present_us: int = -(1 << 62)
    rejected: int = 0

    def __post_init__(self) -> None:
        self.subscriptions = {row["id"]: row for row in self.counted.to_pylist()}

    def apply(self, batch: Batch) -> Counter[Update]:
        """Return the updates of a micro-batch."""
        rows = [(row["op"], row) for row in batch.changes]
        rows += [("message", row) for row in batch.messages]
        events = []
        for position, (op, row) in enumerate(rows):
            when = max(self.present_us, min(row["time"], batch.now_us))
            events.append((when, _STEPS.index(op), row["time"], position, op, row))
        events.sort(key=lambda one: one[:4])
        last = max((one[0] for one in events), default=self.present_us)
        expiries = {self._end_us(row) for row in self.living.values()}
        expiries |= {self._end_us(one[5]) for one in events if one[4] == "message"}
        every = [*self.subscriptions.values(), *(one[5] for one in events)]
        expiries |= {_us(row["expires_at"]) for row in every if row.get("expires_at") is not None}
        times = {one[0] for one in events}
        times |= {time for time in expiries if self.present_us < time <= last}
        found: Counter[Update] = Counter()
        for now in sorted(times):
            found += self._moment(now, [one[4:] for one in events if one[0] == now])
        self.present_us = last
        return found

    def _end_us(self, row: Row) -> int:
        return int(row["time"] + row["ttl_s"] * SECOND)

    def _moment(self, now: int, events: list[tuple[str, Row]]) -> Counter[Update]:
        self.living = {id: row for id, row in self.living.items() if self._end_us(row) > now}
        self.subscriptions = {
            id: row
            for id, row in self.subscriptions.items()
            if row.get("expires_at") is None or _us(row["expires_at"]) > now
        }
        instants = []
        for op, row in events:
            registered = row["id"] in self.subscriptions
            if op == "message":
                if row["ttl_s"] == 0 or self._end_us(row) <= now:
                    instants.append(row)
                elif row["id"] in self.living:
                    self.rejected += 1
                else:
                    self.living[row["id"]] = row
            elif registered == (op == "insert"):
                self.rejected += 1
            elif op == "insert":
                self._insert(row, now)
            elif op == "delete":
                del self.subscriptions[row["id"]]
            else:
                self._move(row)
        before, self.pairs = self.pairs, self._found(list(self.living.values()), now)
        updates: Counter[Update] = Counter()
        for pair in self.pairs.keys() - before.keys():
            updates[now, *pair[:2], 1, self.pairs[pair]] += 1
        updates.update((now, *pair[:2], -1, None) for pair in before.keys() - self.pairs.keys())
        for row in instants:
            for pair, score in self._found([row], now).items():
                updates[now, *pair[:2], 1, score] += 1
        return updates

    def _insert(self, row: Row, now: int) -> None:
        expires = row.get("expires_at")
        if expires is None or _us(expires) > now:
            self.subscriptions[row["id"]] = row

    def _move(self, row: Row) -> None:
        own = self.subscriptions[row["id"]]
        point = own.get("delta") is not None
        given = {side for side in _PLACE if row.get(side) is not None}
        fits = given == {"lon", "lat"} if point else given != {"lon", "lat"}
        if not fits:
            self.rejected += 1
            return
        self.subscriptions[row["id"]] = {**own, **{side: row.get(side) for side in _PLACE}}

    def _found(self, messages: list[Row], now: int) -> dict[tuple[Any, Any, int], float | None]:
        """Return the pairs that match; the same id may name another message later."""
        if not messages or not self.subscriptions:
            return {}
        wanted = table_of(list(self.subscriptions.values()), SUBSCRIPTIONS)
        told = table_of([{**row, "time": now} for row in messages], MESSAGE_FIELDS)
        matches = scored(wanted, told, counted=self.counted, now_us=now)
        which = {row["id"]: id(row) for row in messages}
        return {(s, m, which[m]): score for m, s, score in matches}


def _us(time: Any) -> int:
    return time if isinstance(time, int) else round(time.timestamp() * SECOND)


def table_of(rows: list[Row], fields: dict[str, pa.DataType]) -> pa.Table:
    schema = pa.schema([("id", pa.string()), *fields.items()])
    return pa.Table.from_pylist([{k: r.get(k) for k in schema.names} for r in rows], schema)


class FakeStream:
    """A stream as Spark would run it: tasks that route, a shuffle, and tasks that apply.

    Parameters
    ----------
    artifact, folder
        The index, and a folder for the state and the rejects.
    partitions
        How many tasks share the subscriptions.
    """

    def __init__(
        self, artifact: Artifact, folder: Path, partitions: int, draw: random.Random
    ) -> None:
        self.folder = folder
        self.partitions = partitions
        self.run = "first run"
        self._draw = draw
        self._workers: list[OrderedDict[Any, Any]] = [OrderedDict() for _ in range(2)]
        self._task = Task("", 0, 0)
        self._applying = ApplyEvents(
            artifact.folder.uri,
            str(folder / "state"),
            partitions,
            None,
            update_schema(pa.string(), pa.string()),
            str(folder / "rejects"),
            lambda: self._task,
        )

    def restart(self) -> None:
        """Forget everything that is not on the disk."""
        self.run += "'"
        self._workers = [OrderedDict() for _ in range(2)]

    def batch(
        self, number: int, batch: Batch, patch: pytest.MonkeyPatch
    ) -> tuple[Counter[Update], Counter[str]]:
        """Return the updates and the counts of a micro-batch."""
        routed = self.routed(batch)
        updates: Counter[Update] = Counter()
        counts: Counter[str] = Counter()
        for partition in self._draw.sample(range(self.partitions), self.partitions):
            found, counted = self.partition(number, partition, routed, patch)
            updates += found
            counts += counted
        return updates, counts

    def partition(
        self,
        number: int,
        partition: int,
        routed: list[pa.RecordBatch],
        patch: pytest.MonkeyPatch,
    ) -> tuple[Counter[Update], Counter[str]]:
        """Run the task of a partition on some worker."""
        patch.setattr(updating, "_kept", self._draw.choice(self._workers))
        self._task = Task(self.run, number, partition)
        own = [one for one in routed if one["_key"][0].as_py() == partition + 100]
        own += [tick.slice(partition, 1) for tick in routed if tick["_kind"][0].as_py() == 2]
        self._draw.shuffle(own)
        rows = [row for one in self._applying(iter(own)) for row in one.to_pylist()]
        found = [row for row in rows if row["sign"] is not None]
        times = [row["time"] for row in found]
        assert times == sorted(times)
        [counts] = [row["counts"] for row in rows if row["sign"] is None]
        return Counter(map(update_of, found)), Counter(dict(zip(COUNTS, counts, strict=True)))

    def routed(self, batch: Batch) -> list[pa.RecordBatch]:
        """Route the rows in three tasks, one of which has none."""
        keys = tuple(range(100, 100 + self.partitions))
        given = given_rows(batch)
        at = self._draw.randrange(given.num_rows + 1)
        found = []
        for task, piece in enumerate([given[:at], given[at:], given[:0]]):
            first = pa.array([task << 33] * piece.num_rows, pa.int64())
            numbered = piece.set_column(piece.column_names.index("_row"), "_row", first)
            found += list(RouteEvents(keys)(iter(numbered.to_batches(max_chunksize=20))))
        return found


def given_rows(batch: Batch) -> pa.Table:
    """Return the rows of both kinds as one table, as Spark gives them to the first step."""
    columns: dict[str, pa.Array] = {}
    count = {CHANGE: len(batch.changes), MESSAGE: len(batch.messages)}
    parts = (
        (CHANGE, batch.changes, CHANGE_FIELDS),
        (MESSAGE, batch.messages, LIVING_FIELDS),
    )
    for kind, rows, fields in parts:
        plain = table_of([{**row, "time": row["time"]} for row in rows], fields)
        at = plain.column_names.index("time")
        stamped = plain.set_column(at, "time", plain["time"].cast(pa.timestamp("us", "UTC")))
        for name, column in zip(stamped.column_names, stamped.columns, strict=True):
            own = column.combine_chunks()
            nothing = pa.nulls(sum(count.values()) - len(own), own.type)
            both = [own, nothing] if kind == CHANGE else [nothing, own]
            columns[f"{PREFIX[kind]}{name}"] = pa.concat_arrays(both)
    kinds = [CHANGE] * count[CHANGE] + [MESSAGE] * count[MESSAGE]
    extra = (kinds, [0] * len(kinds), [batch.now_us] * len(kinds))
    for one, values in zip(GIVEN, extra, strict=True):
        columns[one.name] = pa.array(values, one.type)
    return pa.table(columns)


def update_of(row: Row) -> Update:
    """Return an update from a row."""
    return (
        _us(row["time"]),
        row["subscription_id"],
        row["message_id"],
        row["sign"],
        row["score"],
    )
