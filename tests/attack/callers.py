"""Attacks with a valid key: tables, expressions, many small things, and odd values."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from attack.sending import (
    JSON,
    Attack,
    Effort,
    Tally,
    at_once,
    exchange,
    head,
    repeated_up_to,
    resource,
    statuses_of,
    timed,
)
from crafted_tables import CRAFTED, crafted_column, stream_of

if TYPE_CHECKING:
    from attack.measuring import Target

__all__ = ["ARROW", "ATTACKS"]

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
_LINES = {"Content-Type": "application/x-ndjson"}
_FEATURES = {"Content-Type": "application/geo+json"}
_PLACES = ("id", "text", "tokens", "lon", "time", "properties", "geometry", "unknown")
_LIMIT = 5
_LONGEST_WAIT_S = 5.0


# --- tables --------------------------------------------------------------------------------------


def crafted_arrow(target: Target, effort: Effort, tally: Tally) -> None:
    """Send a few bytes that stand for gigabytes, in every column."""
    for name, make in CRAFTED.items():
        bodies = [stream_of(pa.table({"tokens": make()})), stream_of(pa.table({"text": make()}))]
        if effort.long or len(make()) < 10_000:
            bodies += [stream_of(crafted_column(name, place)) for place in _PLACES]
        for body in bodies:
            tally.ask(target.publisher, "POST", "/v1/messages", body, ARROW)


# --- expressions ---------------------------------------------------------------------------------


def expressions(target: Target, effort: Effort, tally: Tally) -> None:
    """Send long and deep expressions, words, keywords and regions."""
    words = " OR ".join(f"(a{n} AND b{n})" for n in range(800))
    points = [[(n % 1_000) / 1e3, (n // 1_000) / 1e3] for n in range(30_000)]
    ring = {"type": "Polygon", "coordinates": [[*points, points[0]]]}
    product = " AND ".join(f"(a{n} OR b{n})" for n in range(1_000))
    details: list[dict[str, Any]] = [
        {"expression": text}
        for text in [
            "a " * 500_000,
            "a " * 8_000,
            "a OR " * 200_000 + "a",
            "(" * 500_000,
            "(" * 8_000 + "a" + ")" * 8_000,
            "NOT " * 4_000 + "a",
            "a" * 1_000_000,
            words,
            product,
            product[:16_000].rsplit(" AND ", 1)[0],
            '"' * 16_000,
            "\u0130\ufdfa" * 8_000,
        ]
    ]
    details += [{"keywords": [f"w{n}" for n in range(100_000)]}, {"keywords": ["a" * 1_000_000]}]
    details += [{"keywords": ["\ufdfa" * 250] * 1_000}, {"region": ring}]
    for detail in details:
        one = resource(**detail)
        client = target.publisher
        tally.ask(client, "POST", "/v1/subscriptions", one)
        tally.ask(client, "PUT", "/v1/subscriptions/long", one)
        tally.ask(client, "POST", "/v1/preview", {"subscription": one})
        line = {"id": "a", "lon": 1, "lat": 1, "radius_m": 1, **detail}
        body = json.dumps(line).encode() + b"\n"
        tally.ask(client, "POST", "/v1/subscriptions/import", body * 3, _LINES)


# --- counts --------------------------------------------------------------------------------------


def counts(target: Target, effort: Effort, tally: Tally) -> None:
    """Send bodies of very many very small things."""
    client = target.publisher
    many = 15_000_000
    bodies = {
        "objects": (b"[" + b"{}," * (many // 3))[:-1] + b"]",
        "arrays": (b"[" + b"[]," * (many // 3))[:-1] + b"]",
        "deep": b"[" * (many // 2) + b"]" * (many // 2),
        "names": b'{"a":' * (many // 6) + b"1" + b"}" * (many // 6),
    }
    lines = b"{}\n" * (many // 3)
    tea = b'{"text": "tea", "lon": 0.5, "lat": 0.5}\n'
    for body in bodies.values():
        for path in ("/v1/messages", "/v1/moves", "/v1/subscriptions", "/v1/preview"):
            tally.ask(client, "POST", path, body, JSON)
    for body in (lines, b"\n" * many, b"1\n" * (many // 2), tea * 300_000):
        tally.ask(client, "POST", "/v1/messages", body, _LINES)
        tally.ask(client, "POST", "/v1/moves", body, _LINES)
    properties = b'{"text": "a", "lon": 1, "lat": 1, "properties": {%s}}'
    tally.ask(client, "POST", "/v1/messages", properties % (b'"a":{},' * 2_000_000)[:-1], JSON)


def texts(target: Target, effort: Effort, tally: Tally) -> None:
    """Publish 4 MB of texts that are folded slowly, or become longer when they are."""
    for text in (
        "\ufdfa" * 1_200,
        "\u732b" * 20_000,
        "\u0130 " * 20_000,
        "\u1112\u1161\u11ab" * 7_000,
    ):
        line = json.dumps({"text": text, "lon": 0.5, "lat": 0.5}, ensure_ascii=False).encode()
        body = (line + b"\n") * (4_000_000 // len(line))
        tally.ask(target.publisher, "POST", "/v1/messages", body, _LINES)
        target.wait_until_matched()


def imports(target: Target, effort: Effort, tally: Tally) -> None:
    """Import 60 MB of nothing, in lines and as one collection."""
    key, size = target.publisher.key, 60_000_000
    path = "/v1/subscriptions/import"
    for kind, first, piece in [
        (_LINES, b"", b"{}\n"),
        (_LINES, b"", b"\n"),
        (_LINES, b"", b"[]\n"),
        (_LINES, b"", b"["),
        (_FEATURES, b'{"type": "FeatureCollection", "features": [', b"{},"),
        (_FEATURES, b'{"type": "FeatureCollection", "features": [', b"[[],"),
    ]:
        framing = (f"Content-Type: {kind['Content-Type']}", "Transfer-Encoding: chunked")
        start = head("POST", path, *framing, key=key)
        pieces = [*repeated_up_to(piece, size, first)]
        chunks = [b"%x\r\n%b\r\n" % (len(one), one) for one in pieces if one]
        answer = exchange(target.address, [start, *chunks, b"0\r\n\r\n"], 120.0)
        tally.count(statuses_of(answer))
        if not answer:
            tally.wrong.append(f"no answer to an import of {piece!r}")


def limits_at_once(target: Target, effort: Effort, tally: Tally) -> None:
    """Create 60 subscriptions, cursors and subscribers at once where five are allowed."""
    limits = {"subscriptions": _LIMIT, "subscribers": _LIMIT, "cursors": _LIMIT}
    client = target.tenant(f"few-{effort.chance.randrange(1 << 40):x}", **limits)
    for path, body in [
        ("/v1/subscriptions/{}", resource()),
        ("/v1/subscribers/s{}", {}),
        ("/v1/cursors/{}?subscriber=attacked", {"cursor": "earliest"}),
    ]:
        accepted: list[str] = []

        def create(at: str, body: Any = body, accepted: list[str] = accepted) -> None:
            answer = tally.ask(client, "PUT", at, body)
            if answer is not None and answer.status < 300:
                accepted.append(at)

        at_once(create, [path.format(number) for number in range(60)], 60)
        tally.notes.append(f"{path.split('{')[0]}: {len(accepted)} of 60 were accepted")
        if len(accepted) > _LIMIT:
            tally.wrong.append(f"{len(accepted)} were accepted of {path}, the limit is {_LIMIT}")


def fairness(target: Target, effort: Effort, tally: Tally) -> None:
    """Send eight bodies of 1.2 MB by a limited tenant while another publishes and reads."""
    line = b'{"text": "%s", "lon": 0.5, "lat": 0.5, "properties": {"a": [%s]}}\n'
    message = {"text": "tea", "lon": 0.5, "lat": 0.5}
    large = line % (b"hot tea with milk " * 3, b"1," * 20 + b"1") * 7_000
    bodies = [
        (large[:1_200_000].rsplit(b"\n", 1)[0], _LINES),
        (b"[" + b"{}," * 400_000 + b"{}]", JSON),
        (
            stream_of(pa.table({name: [value] * 30_000 for name, value in message.items()})),
            ARROW,
        ),
        (b'{"text": "tea", "properties": {' + b'"a":[],' * 170_000 + b'"a":1}}', JSON),
    ]
    ended = threading.Event()
    publishing: list[float] = []
    reading: list[float] = []

    def others() -> None:
        while not ended.is_set():
            for times, request in [
                (publishing, ("POST", "/v1/messages", message)),
                (reading, ("GET", "/v1/subscriptions?limit=10")),
            ]:
                times.append(timed(lambda given=request: tally.ask(target.publisher, *given)))  # type: ignore[misc]
            time.sleep(0.02)

    beside = threading.Thread(target=others)
    beside.start()
    try:
        for _ in range(effort.repeated(3, 10)):
            for body, kind in bodies:
                request = ("POST", "/v1/messages", body, kind)
                at_once(lambda one: tally.ask(target.limited, *one), [request] * 8, 8)
                time.sleep(1.0)  # some more requests are allowed then
    finally:
        ended.set()
        beside.join()
    tally.note_worst("another tenant publishes", publishing)
    tally.note_worst("another tenant reads", reading)
    if max(publishing + reading) > _LONGEST_WAIT_S:
        tally.wrong.append(f"another tenant waited {max(publishing + reading):.1f} s")


# --- odd values ----------------------------------------------------------------------------------


def odd_values(target: Target, effort: Effort, tally: Tally) -> None:
    """Send values that are odd and possible."""
    client, admin = target.publisher, target.admin
    half = json.dumps({"text": "\ud800", "lon": 1, "lat": 1}).encode()
    preview = b'{"subscription": %s, "message": %s}' % (json.dumps(resource()).encode(), half)
    point = {"text": ["tea"], "lon": [1.0], "lat": [1.0]}
    zone = pa.timestamp("us", "Foo/Bar")
    zoned = [pa.table(point | {"time": pa.nulls(1, zone)})]
    zoned += [pa.table(point | {"properties": pa.nulls(1, pa.struct([("a", zone)]))})]
    bomb = {**JSON, "Content-Encoding": "gzip"}
    for id in ("%E2%82%AC", "%F0%9F%94%B1", "a%20b", "%FF", "%00", "%0d%0aX:1", "x" * 3_000):
        tally.ask(client, "PUT", f"/v1/subscriptions/{id}", resource())
        tally.ask(client, "GET", f"/v1/subscriptions/{id}")
        tally.ask(client, "DELETE", f"/v1/subscriptions/{id}")
    tally.ask(client, "POST", "/v1/preview", preview, JSON)
    tally.ask(client, "POST", "/v1/messages", half, JSON)
    for table in zoned:
        tally.ask(client, "POST", "/v1/messages", stream_of(table), ARROW)
    for limit in (1e-320, 5e-324, 1e308, 0, -1):
        tally.ask(admin, "PUT", "/v1/tenants/odd/limits", {"messagesPerS": limit})
        tally.ask(admin, "POST", "/v1/tenants", {"name": "odd"})
    tiny = target.tenant("tiny", messagesPerS=1e-320)
    for _ in range(3):
        tally.ask(tiny, "POST", "/v1/messages", {"text": "tea", "lon": 1, "lat": 1})
    for name in ("a" * 300, "a" * 3_000, "..", "%2e%2e%2fpage", "%00", "%ff"):
        tally.ask(client, "GET", f"/assets/{name}")
    for bbox in ("0,0,5e-324,1", "1,1,1,1", "180,0,-180,1", "nan,0,1,1", "0,0,1e-320,90"):
        tally.ask(client, "GET", f"/v1/subscriptions/cells?bbox={bbox}&columns=256")
    for path in ("/v1/subscriptions/", "/v1/messages/", "/v1/keys/", "/plain/"):
        answer = tally.ask(client, "GET", path, None, {"Host": "evil.example"})
        if answer is not None and 300 <= answer.status < 400:
            tally.wrong.append(f"{path} was redirected to {answer.headers.get('location')}")
    for path in ("/v1/messages", "/v1/subscriptions", "/v1/keys"):
        answer = tally.ask(client, "POST", path, b"\x1f\x8b", bomb)
        if answer is not None and answer.status != 415:
            tally.wrong.append(f"{path} answered {answer.status} to gzip instead of 415")


ATTACKS = [
    Attack("crafted-arrow", "few bytes that stand for gigabytes", crafted_arrow),
    Attack("expressions", "long, deep and wide expressions, words and regions", expressions),
    Attack("counts", "15 MB of very small things", counts),
    Attack("texts", "4 MB of texts that become longer when they are compared", texts),
    Attack("imports", "60 MB of empty lines and features", imports),
    Attack("limits-at-once", "60 at once where 5 are allowed", limits_at_once),
    Attack("fairness", "eight bodies of 1.2 MB by a limited tenant", fairness),
    Attack("odd-values", "odd values that once were answered by 500", odd_values),
]
