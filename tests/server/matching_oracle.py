"""What matching should do, in plain Python: a dict of subscriptions, one pair at a time."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from nearcast.server.log.records import (
    ADMIN,
    CHANGES,
    MESSAGES,
    MOVES,
    TICK,
    Change,
    Definition,
    SinkDefinition,
    admin_body,
    changes_body,
    messages_body,
    moves_body,
    timed,
)
from nearcast.server.matching.postings import (
    ENDED_DELETED,
    ENDED_EXPIRED,
    ENDED_MAX_EVENTS,
    ENDED_SINK_GONE,
    MATCH,
    STARTED,
    UNMATCH,
    UPDATED,
)
from nearcast.storage.log import Entry, Record

SECOND = 1_000_000
START_US = 1_800_000_000 * SECOND
EPOCH = 7
RADIUS_M = 6_371_008.8
WIDE = {"delta": 0.5, "tau": 0.6, "max_distance_m": 200_000.0}
NAMES = {
    MATCH: "match",
    UNMATCH: "unmatch",
    STARTED: "subscription-started",
    UPDATED: "subscription-updated",
    ENDED_DELETED: "subscription-ended",
    ENDED_EXPIRED: "subscription-ended",
    ENDED_MAX_EVENTS: "subscription-ended",
    ENDED_SINK_GONE: "subscription-ended",
}


Row = tuple[int, int, int, int, float | None]
"""A match that begins or ends: seq, message, handle, sign and score."""


class Sent(NamedTuple):
    """A message of the log."""

    seq: int
    tenant: int
    words: frozenset[str]
    lon: float
    lat: float
    ends_us: int


class Told(NamedTuple):
    """A posting, with its channel as (tenant, subscriber, url)."""

    seq: int
    channel: tuple[int, str, str | None]
    handle: int
    message: int
    kind: int
    score: float | None


@dataclass
class Sub:
    """A subscription."""

    handle: int
    tenant: int
    id: str
    definition: Definition
    place: dict[str, Any]
    version: int
    status: str = "active"
    since: int = 0
    in_engine: bool = False
    events: int = 0

    @property
    def over(self) -> bool:
        return self.status in ("ended", "deleted")


@dataclass
class Oracle:
    """All subscriptions, and the messages that live."""

    subs: list[Sub] = field(default_factory=list)
    messages: list[Sent] = field(default_factory=list)
    waiting: dict[tuple[int, int], tuple[int, int, float | None]] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    outcomes: dict[int, list[str]] = field(default_factory=dict)
    time_us: int = START_US
    channels: list[tuple[int, str, str | None]] = field(default_factory=list)
    retired: set[int] = field(default_factory=set)

    # --- what is known --------------------------------------------------------------------------

    def known(self, tenant: int, id: str | None) -> Sub | None:
        fits = (s for s in self.subs if (s.tenant, s.id) == (tenant, id))
        return next((s for s in fits if s.status != "deleted"), None)

    def find(self, tenant: int, id: str | None) -> Sub | None:
        sub = self.known(tenant, id)
        return None if sub is None or sub.over else sub

    # --- records --------------------------------------------------------------------------------

    def pass_time(self, seq: int, time_us: int) -> None:
        self.time_us = time_us
        due = [s for s in self.subs if not s.over and _expiry(s) <= time_us]
        for sub in sorted(due, key=lambda s: (_expiry(s), s.handle)):
            self._end(sub, seq, ENDED_EXPIRED)
        done = {pair: w for pair, w in self.waiting.items() if w[0] <= time_us}
        for pair in done:
            del self.waiting[pair]
        lives = {message.seq for message in self.messages if message.ends_us > time_us}
        rows = [
            (seq, m, h, sign, score)
            for (h, m), (_, sign, score) in done.items()
            if sign < 0 or m in lives
        ]
        self._post(rows)

    def publish(self, message: Sent) -> None:
        rows = []
        for sub in self.subs:
            score = _score(sub.definition, sub.place, message)
            if sub.in_engine and sub.tenant == message.tenant and score is not None:
                rows.append((message.seq, message.seq, sub.handle, 1, _shown(sub, score)))
        self._post(rows)
        if message.ends_us > self.time_us:
            self.messages.append(message)

    def change(self, tenant: int, changes: list[Change], first: int) -> None:
        before = {s.handle: (s.definition, s.place, s.since) for s in self.subs if s.in_engine}
        put: dict[int, int] = {}
        codes = []
        for seq, change in enumerate(changes, first):
            codes.append(self._change_one(tenant, change, seq, put, before))
        self.outcomes[first] = codes
        updates: list[Row] = []
        for handle, seq in put.items():
            sub = self.subs[handle]
            old = before.get(handle)
            if old is None and not sub.definition.initial:
                sub.since = first
            elif old is None:
                sub.since = 0
            updates += self._difference(sub, old, seq)
        self._update(updates)

    def _change_one(
        self,
        tenant: int,
        change: Change,
        seq: int,
        put: dict[int, int],
        before: dict[int, Any],
    ) -> str:
        known, sub = self.known(tenant, change.id), self.find(tenant, change.id)
        definition = change.definition
        if known is not None and sub is None and definition is None and not change.expected:
            known.status = "deleted"
            return ""
        if sub is None and (definition is None or change.must_exist):
            return "NOT_FOUND"
        chosen = change.id in ("sub-0", "sub-1")
        if known is None and chosen:
            return "NOT_FOUND"
        if sub is not None and change.expected == 0:
            return "CONFLICT"
        if change.expected and (sub is None or sub.version != change.expected):
            return "PRECONDITION_FAILED"
        if definition is None:
            assert sub is not None
            sub.status, sub.in_engine = "deleted", False
            self._forget(sub, put, before)
            self._live(sub, seq, ENDED_DELETED)
            return ""
        kind = STARTED if sub is None else UPDATED
        if known is not None and sub is None and chosen:
            sub, known.events = known, 0
        elif known is not None and sub is None:
            known.status = "deleted"
        if sub is None:
            handle = len(self.subs)
            sub = Sub(handle, tenant, change.id or f"sub-{handle:x}", definition, {}, seq)
            self.subs.append(sub)
        if sub.definition.max_events != definition.max_events:
            sub.events = 0
        sub.definition, sub.place, sub.version = definition, definition.row, seq
        sub.status = "active" if definition.active else "paused"
        sub.in_engine = definition.active
        put.pop(sub.handle, None)
        if definition.active:
            put[sub.handle] = seq
        else:
            self._forget(sub, put, before)
        self.channel(tenant, definition.subscriber, None)
        if definition.sink is not None:
            self.channel(tenant, definition.subscriber, definition.sink.url)
        self._live(sub, seq, kind)
        return ""

    def channel(self, tenant: int, subscriber: str, url: str | None) -> int:
        """Return the number of a channel; one that is retired is never used again."""
        whose = tenant, subscriber, url
        for number, other in enumerate(self.channels, 1):
            if other == whose and number not in self.retired:
                return number
        self.channels.append(whose)
        return len(self.channels)

    def administer(self, change: dict[str, Any], seq: int) -> None:
        self.outcomes[seq] = [""]
        if change["op"] == "subscriber":
            self.channel(change["tenant"], change["name"], None)
        if change["op"] in ("sink-gone", "remove-sink"):
            number = int(change["id"].removeprefix("sink-"), 16)
            self.outcomes[seq] = [self._end_sink(change["op"], number, seq)]

    def _end_sink(self, op: str, number: int, seq: int) -> str:
        if number > len(self.channels) or self.channels[number - 1][2] is None:
            return "NOT_FOUND"
        tenant, subscriber, url = self.channels[number - 1]
        using = [
            sub
            for sub in self.subs
            if not sub.over
            and number not in self.retired
            and sub.definition.sink is not None
            and (sub.tenant, sub.definition.subscriber, sub.definition.sink.url)
            == (tenant, subscriber, url)
        ]
        if op == "remove-sink" and using:
            return "CONFLICT"
        for sub in using:
            self._end(sub, seq, ENDED_SINK_GONE)
        self.retired.add(number)
        return ""

    def move(self, tenant: int, moves: list[tuple[str, dict[str, Any]]], first: int) -> None:
        codes = []
        last: dict[int, tuple[int, dict[str, Any]]] = {}
        for seq, (id, place) in enumerate(moves, first):
            sub = self.find(tenant, id)
            if sub is None:
                codes.append("NOT_FOUND")
            elif sub.status == "paused":
                codes.append("CONFLICT")
            else:
                codes.append("")
                last[sub.handle] = seq, place
        self.outcomes[first] = codes
        updates = []
        for handle, (seq, place) in last.items():
            sub = self.subs[handle]
            old = sub.definition, sub.place, sub.since
            sub.place = place
            updates += self._difference(sub, old, seq)
        self._update(updates)

    # --- what follows ---------------------------------------------------------------------------

    def _forget(self, sub: Sub, put: dict[int, int], before: dict[int, Any]) -> None:
        put.pop(sub.handle, None)
        before.pop(sub.handle, None)
        self.waiting = {pair: w for pair, w in self.waiting.items() if pair[0] != sub.handle}

    def _difference(
        self, sub: Sub, old: tuple[Definition, dict[str, Any], int] | None, seq: int
    ) -> list[Row]:
        found = []
        for message in self.messages:
            if message.ends_us <= self.time_us or message.tenant != sub.tenant:
                continue
            if message.seq <= sub.since:
                continue
            was = None if old is None else _score(old[0], old[1], message)
            now = _score(sub.definition, sub.place, message)
            if (was is None) != (now is None):
                sign = 1 if was is None else -1
                found.append((seq, message.seq, sub.handle, sign, _shown(sub, now)))
        return found

    def _update(self, updates: list[Row]) -> None:
        rows = []
        for seq, message, handle, sign, score in updates:
            dwell_us = self.subs[handle].definition.dwell_us
            if self.waiting.pop((handle, message), None) is not None:
                continue
            if dwell_us:
                self.waiting[handle, message] = self.time_us + dwell_us, sign, score
            else:
                rows.append((seq, message, handle, sign, score))
        self._post(rows)

    def _post(self, rows: list[Row]) -> None:
        ends = []
        for seq, message, handle, sign, score in sorted(rows, key=lambda r: r[:3]):
            sub, kind = self.subs[handle], MATCH if sign > 0 else UNMATCH
            limit = sub.definition.max_events
            if sub.status != "active" or not _wants(sub, kind) or (limit and sub.events >= limit):
                continue
            self._tell(sub, seq, message, kind, score)
            sub.events += bool(limit)
            if limit and sub.events == limit:
                ends.append((sub, seq))
        for sub, seq in ends:
            self._end(sub, seq, ENDED_MAX_EVENTS)

    def _end(self, sub: Sub, seq: int, kind: int) -> None:
        sub.status, sub.in_engine = "ended", False
        self.waiting = {pair: w for pair, w in self.waiting.items() if pair[0] != sub.handle}
        self._live(sub, seq, kind)

    def _live(self, sub: Sub, seq: int, kind: int) -> None:
        if _wants(sub, kind):
            self._tell(sub, seq, 0, kind, None)

    def _tell(self, sub: Sub, seq: int, message: int, kind: int, score: float | None) -> None:
        name, sink = sub.definition.subscriber, sub.definition.sink
        for url in [None] if sink is None else [None, sink.url]:
            channel = sub.tenant, name, url
            self.told.append(Told(seq, channel, sub.handle, message, kind, score))


def _wants(sub: Sub, kind: int) -> bool:
    return sub.definition.types is None or NAMES[kind] in sub.definition.types


def _expiry(sub: Sub) -> float:
    return math.inf if sub.definition.expires_us is None else sub.definition.expires_us


def _shown(sub: Sub, score: float | None) -> float | None:
    return None if sub.definition.kind == "boolean" else score


def _score(definition: Definition, place: dict[str, Any], message: Sent) -> float | None:
    """Return the score of a pair, 0 for a boolean match, None if it is none."""
    words = set(definition.row.get("keywords") or ())
    if definition.kind == "boolean":
        inside = place["west"] <= message.lon <= place["east"]
        inside = inside and place["south"] <= message.lat <= place["north"]
        return 0.0 if inside and words <= message.words else None
    text = len(words & message.words) / len(words)  # one word: its weight does not matter
    a, b = math.radians(place["lat"]), math.radians(message.lat)
    turn = math.radians(message.lon - place["lon"])
    near = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turn / 2) ** 2
    distance_m = 2 * RADIUS_M * math.asin(math.sqrt(near))
    score = 0.5 * text + 0.5 * max(0.0, 1 - distance_m / WIDE["max_distance_m"])
    return score if score >= WIDE["tau"] else None


# --- random logs ---------------------------------------------------------------------------------

IDS = ["a", "b", "c", None, "sub-0", "sub-1", "sub-x"]
_TYPES = [None, None, None, ("match",), ("unmatch", "subscription-ended"), ("match", "unmatch")]
_sides = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted)
_boxes = st.tuples(_sides, _sides).map(
    lambda s: {"west": s[0][0], "south": s[1][0], "east": s[0][1], "north": s[1][1]}
)
_points = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda p: {"lon": p[0], "lat": p[1]})
_words = st.lists(st.sampled_from(["tea", "milk"]), max_size=2, unique=True)


@st.composite
def definitions(draw: Any) -> tuple[Definition, int | None]:
    """Draw a definition, and after how many seconds it expires."""
    ranked = draw(st.integers(0, 3)) == 0
    if ranked:
        keywords = [draw(st.sampled_from(["tea", "milk"]))]
        row = {"keywords": keywords, **draw(_points), **WIDE}
    else:
        keywords = draw(_words)
        row = {**({"keywords": keywords} if keywords else {}), **draw(_boxes)}
    sink = draw(st.sampled_from([None, None, "https://one.example", "https://two.example"]))
    definition = Definition(
        draw(st.sampled_from(["u", "v"])),
        row,
        (0.0, 0.0, 3.0, 3.0),
        "proximity" if ranked else "boolean",
        {},
        sink=None if sink is None else SinkDefinition(sink, ("s",)),
        types=draw(st.sampled_from(_TYPES)),
        max_events=draw(st.sampled_from([0, 0, 0, 1, 2])),
        initial=draw(st.booleans()),
        dwell_us=draw(st.sampled_from([0, 0, 4 * SECOND])),
        active=draw(st.integers(0, 5)) > 0,
    )
    return definition, draw(st.sampled_from([None, None, 3, 10]))


_changes = st.tuples(
    st.sampled_from(IDS),
    st.none() | definitions() | definitions() | definitions(),
    st.sampled_from([None, None, None, 0, "right", "wrong"]),
    st.integers(0, 4).map(lambda n: n == 0),
)
_messages = st.tuples(_words, _points, st.sampled_from([None, 0, 2, 20, 20]))
_tenants = st.sampled_from([0, 0, 0, 1])
ADMIN_CHANGES: list[dict[str, Any]] = [
    {"op": "tenant", "name": "acme", "limits": {}},
    {"op": "subscriber", "tenant": 0, "name": "w", "settings": {"cap": 3}},
    {
        "op": "key",
        "id": "k1",
        "tenant": 0,
        "sha256": b"x",
        "roles": ["admin"],
        "subscriber": None,
        "name": "key",
    },
    {"op": "revoke", "id": "k1"},
    *({"op": "sink-gone", "id": f"sink-{n:x}", "reason": "410"} for n in range(1, 6)),
    *({"op": "remove-sink", "id": f"sink-{n:x}"} for n in range(1, 6)),
]
operations = st.tuples(
    st.sampled_from([0, 0, 1, 2, 5, 11]),
    st.one_of(
        st.tuples(st.just(MESSAGES), _tenants, st.lists(_messages, min_size=1, max_size=4)),
        st.tuples(st.just(CHANGES), _tenants, st.lists(_changes, min_size=1, max_size=5)),
        st.tuples(
            st.just(MOVES),
            _tenants,
            st.lists(st.tuples(st.sampled_from(IDS), _boxes, _points), min_size=1, max_size=3),
        ),
        st.tuples(st.just(TICK), st.just(0), st.none()),
        st.tuples(st.just(ADMIN), st.just(0), st.sampled_from(ADMIN_CHANGES)),
    ),
)


def random_records(seed: int, count: int, oracle: Oracle | None = None) -> list[Record]:
    """Return a long log with something of everything."""
    rng = random.Random(seed)

    def box() -> dict[str, int]:
        (west, east), (south, north) = (sorted(rng.choices(range(4), k=2)) for _ in "xy")
        return {"west": west, "south": south, "east": east, "north": north}

    def point() -> dict[str, int]:
        return {"lon": rng.randrange(4), "lat": rng.randrange(4)}

    def defined() -> tuple[Definition, int | None]:
        ranked = rng.random() < 0.3
        words = [rng.choice(["tea", "milk"])]
        row = {"keywords": words, **point(), **WIDE} if ranked else {"keywords": words, **box()}
        sink = rng.choice([None, None, "https://one.example", "https://two.example"])
        definition = Definition(
            rng.choice("uv"),
            row,
            (0.0, 0.0, 3.0, 3.0),
            "proximity" if ranked else "boolean",
            {},
            sink=None if sink is None else SinkDefinition(sink, ("s",)),
            types=rng.choice(_TYPES),
            max_events=rng.choice([0, 0, 0, 5, 2]),
            initial=rng.random() < 0.5,
            dwell_us=rng.choice([0, 0, 4 * SECOND]),
            active=rng.random() < 0.9,
        )
        return definition, rng.choice([None, None, None, 30, 10])

    def change() -> tuple[Any, ...]:
        expected = rng.choice([None, None, None, None, 0, "right", "wrong"])
        what = None if rng.random() < 0.15 else defined()
        return rng.choice([*IDS, *"defgh"]), what, expected, rng.random() < 0.1

    def message() -> tuple[Any, ...]:
        words = rng.choice([["tea"], ["tea", "milk"], ["milk"], []])
        return words, point(), rng.choice([None, 0, 2, 20, 20])

    def operation() -> tuple[int, Any]:
        kind = rng.choices([MESSAGES, CHANGES, MOVES, TICK, ADMIN], [5, 5, 4, 1, 2])[0]
        many = rng.randint(1, 5)
        what: Any = None
        if kind == MESSAGES:
            what = [message() for _ in range(many)]
        elif kind == CHANGES:
            what = [change() for _ in range(many)]
        elif kind == MOVES:
            what = [(rng.choice([*IDS, *"defgh"]), box(), point()) for _ in range(many)]
        elif kind == ADMIN:
            what = rng.choice(ADMIN_CHANGES)
        tenant = 0 if kind in (TICK, ADMIN) or rng.random() < 0.8 else 1
        return rng.choice([0, 0, 0, 1, 2, 5]), (kind, tenant, what)

    return records_of([operation() for _ in range(count)], oracle or Oracle())


def records_of(drawn: list[Any], oracle: Oracle) -> list[Record]:
    """Return a log, and let the oracle process it."""
    records: list[Record] = []
    seq, time_us = 1, START_US
    for seconds, (kind, tenant, what) in drawn:
        time_us += seconds * SECOND
        oracle.pass_time(seq, time_us)
        entry = _entry(kind, tenant, what, oracle, seq, time_us)
        body = timed(entry, time_us).body
        records.append(Record(seq, kind, body, EPOCH, entry.count))
        seq += entry.count
    return records


def _entry(kind: int, tenant: int, what: Any, oracle: Oracle, seq: int, time_us: int) -> Entry:
    if kind == MESSAGES:
        blobs = []
        for number, (words, point, ttl_s) in enumerate(what):
            ends_us = time_us + (ttl_s or 0) * SECOND
            message = Sent(
                seq + number, tenant, frozenset(words), point["lon"], point["lat"], ends_us
            )
            oracle.publish(message)
            blobs.append(message_json(words, **point, ttl_s=ttl_s))
        return messages_body(tenant, blobs)
    if kind == CHANGES:
        changes = [_change(tenant, given, oracle, time_us) for given in what]
        oracle.change(tenant, changes, seq)
        return changes_body(tenant, changes)
    if kind == MOVES:
        moves = []
        for id, box, point in what:
            sub = oracle.find(tenant, id)
            ranked = sub is not None and sub.definition.kind != "boolean"
            moves.append((id or "nobody", point if ranked else box))
        oracle.move(tenant, moves, seq)
        return moves_body(tenant, moves)
    if kind == ADMIN:
        oracle.administer(what, seq)
        return admin_body(what)
    return Entry(TICK, b"", 1)


def _change(tenant: int, given: Any, oracle: Oracle, time_us: int) -> Change:
    """Return a change; the version that it expects is that before the record."""
    id, defined, expected, must_exist = given
    sub = oracle.find(tenant, id)
    if expected == "right":
        expected = None if sub is None else sub.version
    elif expected == "wrong":
        expected = 1 << 40
    definition = None
    if defined is not None:
        definition, seconds = defined
        expires_us = None if seconds is None else time_us + seconds * SECOND
        fields = {name: getattr(definition, name) for name in definition.__struct_fields__}
        definition = Definition(**{**fields, "expires_us": expires_us})
    return Change(id, definition, expected, must_exist)


def message_json(words: list[str], lon: int, lat: int, ttl_s: float | None = None) -> bytes:
    """Return a message as the log has it."""
    fields: dict[str, Any] = {"text": " ".join(words), "lon": float(lon), "lat": float(lat)}
    if ttl_s is not None:
        fields["ttl_s"] = float(ttl_s)
    return msgspec.json.encode(fields)
