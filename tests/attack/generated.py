"""Attacks that are generated: by Schemathesis from the API, and by changing valid requests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attack.callers import ARROW
from attack.sending import Attack, Effort, Tally, exchange, head, resource, statuses_of
from crafted_tables import VALID, damaged, stream_of

if TYPE_CHECKING:
    import random

    from attack.measuring import Target

__all__ = ["ATTACKS", "changed"]

_SETTINGS = Path(__file__).parents[1] / "server" / "faults"
_STREAMS_AND_OWN_KEY = ("/v1/events", "/v1/keys/{id}")
_ANSWER_S = 3.0
_MAX_ROUNDS = 20


# --- from the description of the API -------------------------------------------------------------


def schemathesis(target: Target, effort: Effort, tally: Tally) -> None:
    """Run all checks of Schemathesis over all operations, until there were enough requests."""
    wanted = effort.repeated(3_000, 30_000)
    seed = effort.chance.randrange(1 << 30)
    for number in range(_MAX_ROUNDS):
        _run_schemathesis(target, tally, seed + number, effort.repeated(3, 50))
        if tally.requests >= wanted or tally.wrong or target.has_ended():
            return


def _run_schemathesis(target: Target, tally: Tally, seed: int, examples: int) -> None:
    command = [sys.executable, "-m", "schemathesis.cli"]
    command += ["--config-file", str(_SETTINGS / "schemathesis.toml"), "run", "--no-color"]
    command += ["--header", f"Authorization: Bearer {target.admin.key}", "--seed", str(seed)]
    for path in _STREAMS_AND_OWN_KEY:  # streams have no end; its own key must not be revoked
        command += ["--exclude-path", path]
    command += ["--request-timeout", "60", "--max-examples", str(examples)]
    path = os.pathsep.join([str(_SETTINGS), os.environ.get("PYTHONPATH", "")])
    settings = {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": path}
    before = _answers_by_status(target)
    done = subprocess.run(
        [*command, f"{target.live.url}/openapi.json"],
        cwd=target.live.folder.parent,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    for status, count in _answers_by_status(target).items():
        more = count - before.get(status, 0)
        tally.count([status] * more, more)
    if done.returncode != 0:
        print(done.stdout[-20_000:], done.stderr[-5_000:], flush=True)
        tally.wrong.append("Schemathesis found something, which is shown above")


def _answers_by_status(target: Target) -> dict[int, int]:
    """Return how many answers had each status, as the server counts them."""
    text = target.admin.request("GET", "/metrics").body.decode()
    counted: dict[int, int] = {}
    for line in re.findall(r"^nearcast_http_requests_total\{.*\} .*$", text, re.MULTILINE):
        if 'route="/healthz"' not in line:
            found = re.search(r'status="(\d+)".*\} (.*)', line)
            assert found is not None, line
            counted[int(found[1])] = counted.get(int(found[1]), 0) + int(float(found[2]))
    return counted


# --- from valid requests -------------------------------------------------------------------------


def valid_requests(key: str | None) -> list[bytes]:
    """Return a valid request to each route that changes or parses something."""
    message = {"id": "m", "text": "hot tea", "lon": 0.5, "lat": 0.5, "ttl_s": 60.5}
    messages = [message | {"properties": {"a": [1, None, "\u20ac"]}}, message]
    line = {"id": "i", "keywords": ["tea"], "lon": 0.5, "lat": 0.5, "radius_m": 500}
    point = {"type": "Point", "coordinates": [0.5, 0.5]}
    feature = {"type": "Feature", "id": "f", "properties": {"keywords": ["a"]}, "geometry": point}
    collection = {"type": "FeatureCollection", "features": [feature]}
    expression = resource(expression="tea AND (milk OR NOT sugar)")
    preview = {"subscription": resource(), "message": message}
    quiet = {"from": "22:00", "to": "07:00", "timeZone": "Europe/Berlin"}
    lines = "application/x-ndjson"
    given: list[tuple[str, str, str, object]] = [
        ("POST", "/v1/messages", "application/json", messages),
        ("POST", "/v1/messages?dryRun=1", lines, message),
        ("POST", "/v1/messages", ARROW["Content-Type"], stream_of(VALID["messages"]())),
        ("PUT", "/v1/subscriptions/a", "application/json", resource()),
        ("POST", "/v1/subscriptions", "application/json", expression),
        ("PATCH", "/v1/subscriptions/a", "application/merge-patch+json", {"status": "INACTIVE"}),
        ("POST", "/v1/subscriptions/import", lines, line),
        ("POST", "/v1/subscriptions/import", "application/geo+json", collection),
        ("POST", "/v1/moves", lines, {"subscriptionId": "a", "lon": 0.4, "lat": 0.4}),
        ("POST", "/v1/preview", "application/json", preview),
        ("PUT", "/v1/subscribers/a", "application/json", {"quietHours": quiet}),
        ("PUT", "/v1/cursors/a?subscriber=a", "application/json", {"cursor": "earliest"}),
        ("POST", "/v1/tokens", "application/json", {"subscriber": "a", "expiresInS": 60}),
        ("GET", "/v1/events?poll=1&subscriber=attacked&cursor=earliest&limit=5", "", b""),
        ("GET", "/v1/subscriptions/cells?bbox=0,0,1,1&columns=16", "", b""),
        ("GET", "/v1/messages?limit=5", "", b""),
        ("GET", "/v1/history", "", b""),
        ("DELETE", "/v1/subscriptions/a", "", b""),
    ]
    made = []
    for number, (method, path, kind, body) in enumerate(given):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        framing = (f"Content-Type: {kind}", f"Content-Length: {len(content)}") if kind else ()
        made.append(head(method, path, *framing, f"Idempotency-Key: k{number}", key=key) + content)
    return made


def changed(request: bytes, chance: random.Random) -> bytes:
    """Return a request with bytes flipped, cut, repeated or replaced, mostly of a right length."""
    start, gap, body = request.partition(b"\r\n\r\n")
    if body and chance.random() < 0.7:
        body = _bytes_changed(body, chance)
        if chance.random() < 0.9:
            length = b"Content-Length: %d" % len(body)
            start = re.sub(rb"Content-Length: \d+", length, start)
    else:
        start = _bytes_changed(start, chance)
    return start + gap + body


def _bytes_changed(given: bytes, chance: random.Random) -> bytes:
    content = bytearray(given)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(content) or 1)
        size = chance.randint(1, 40)
        piece = bytes(content[place : place + size])
        match chance.randrange(6):
            case 0:
                content[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del content[place : place + size]
            case 2:
                content[place:place] = piece * chance.choice((1, 2, 50, 2_000))
            case 3:
                content[place:place] = chance.choice(_PIECES)
            case 4:
                other = chance.randrange(len(content) or 1)
                content[place : place + size] = content[other : other + size]
            case 5 if chance.random() < 0.3:
                del content[place:]
    return bytes(content)


_PIECES = [
    *(b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\r\n", b"%ff", b"%00", b"%E2%82%AC"),
    *(b"1e999", b"1e-320", b"-0", b"NaN", b"9" * 400, b"null", b"{", b"[", b"[[]]", b"{}"),
]


def mutations(target: Target, effort: Effort, tally: Tally) -> None:
    """Send valid requests that were changed."""
    requests = valid_requests(target.publisher.key)
    for request in requests:
        statuses = statuses_of(exchange(target.address, [request]))
        tally.count(statuses)
        if not statuses or statuses[0] >= 400:
            tally.wrong.append(f"a valid request got {statuses}: {request[:60]!r}")
    for _ in range(effort.repeated(3_000, 30_000)):
        sent = changed(effort.chance.choice(requests), effort.chance)
        answer = exchange(target.address, [sent], _ANSWER_S, end=True)
        _count_and_keep(answer, sent, tally)


def arrow_mutations(target: Target, effort: Effort, tally: Tally) -> None:
    """Send damaged streams of Arrow."""
    tables = [stream_of(make()) for make in VALID.values()]
    client = target.publisher
    for _ in range(effort.repeated(1_000, 10_000)):
        body = damaged(effort.chance.choice(tables), effort.chance)
        tally.ask(client, "POST", "/v1/messages", body, ARROW)


def _count_and_keep(answer: bytes, sent: bytes, tally: Tally) -> None:
    """Count an answer, and keep the first requests that were answered by 500."""
    statuses = statuses_of(answer)
    tally.count(statuses)
    if 500 in statuses and len(tally.wrong) < 5:
        tally.wrong.append(f"500 to {sent[:600]!r}")


ATTACKS = [
    Attack("schemathesis", "all its checks over all operations", schemathesis, alone=True),
    Attack("mutations", "valid requests with bytes flipped, cut and repeated", mutations),
    Attack("arrow-mutations", "damaged streams of Arrow", arrow_mutations),
]
