"""The description of the API says what the server accepts, no more and no less.

Every sample is judged by both: by the schema in ``/openapi.json``, and by a real server.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jsonschema_rs
import pytest

from running import Running, circle, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = "application/json"
PATCH = "application/merge-patch+json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, allow_sinks=("127.0.0.0/8",)) as running:
        with running.client() as client:
            for id in ("s", "p"):
                path = f"/v1/subscriptions/{id}"
                client.put(path, json=subscription(id=id)).raise_for_status()
            client.post("/v1/tenants", json={"name": "t"}).raise_for_status()
        yield running


@pytest.fixture(scope="module")
def document(server: Running) -> dict[str, Any]:
    with server.client() as client:
        found: dict[str, Any] = client.get("/openapi.json").raise_for_status().json()
    return found


def subscription(**changes: Any) -> dict[str, Any]:
    """Return a subscription; names of changes say where in it they are, with ``__`` for a dot."""
    detail = {"keywords": ["tea"], "region": circle()}
    found: dict[str, Any] = {"config": {"subscriptionDetail": detail}}
    for path, value in changes.items():
        names = path.replace("detail", "config__subscriptionDetail").split("__")
        at = found
        for name in names[:-1]:
            at = at[name]
        if value is ...:
            del at[names[-1]]
        else:
            at[names[-1]] = value
    return found


def polygon(*ring: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [list(ring)]}


SQUARE = ([13, 52], [14, 52], [14, 53], [13, 53], [13, 52])
FAR = "2099-01-01T00:00:00Z"
PROXIMITY = {"delta": 0.5, "tau": 0.5, "maxDistanceM": 100}
OVERLAP = {"alpha": 0.5, "theta": 0.5}
POINT = {"type": "Point", "coordinates": [13, 52]}
SECRET = {"credentialType": "WEBHOOKSECRET", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
TOKEN = {"credentialType": "ACCESSTOKEN", "accessToken": "abc", "accessTokenExpiresUtc": FAR}
HOOK = "http://127.0.0.1:9/hook"

SUBSCRIPTIONS: list[tuple[bool, dict[str, Any]]] = [
    (True, {}),
    # Ids are parts of paths.
    *((True, {"id": id}) for id in ("a b", "é", "...", "cells2", "x" * 256)),
    *((False, {"id": id}) for id in ("", "a/b", ".", "..", "cells", "a\nb", "a\x7f", "x" * 257)),
    (False, {"id": 7}),
    *(
        (False, {"detail__subscriber": name})
        for name in ("", "\t", "a\u2028b", "\u00a0", "x" * 257)
    ),
    (True, {"detail__subscriber": "Ann of Green Gables/2"}),
    # Words.
    (True, {"detail__keywords": ["tea", "flood*"]}),
    (True, {"detail__keywords": ["tea"] * 1000}),
    (False, {"detail__keywords": ["tea"] * 1001}),
    (False, {"detail__keywords": []}),
    (False, {"detail__keywords": [""]}),
    (True, {"detail__keywords": None}),
    (True, {"detail__keywords": ...}),
    (False, {"detail__expression": "tea"}),
    (True, {"detail__keywords": ..., "detail__expression": "tea OR milk"}),
    (True, {"detail__keywords": None, "detail__expression": "tea OR milk"}),
    (False, {"detail__keywords": ..., "detail__expression": ""}),
    (True, {"detail__keywords": ..., "detail__expression": None}),
    (
        True,
        {
            "detail__expression": "milk OR cake",
            "detail__region": POINT,
            "detail__ranking": PROXIMITY,
        },
    ),
    # Regions.
    (False, {"detail__region": ...}),
    (True, {"detail__region": polygon(*SQUARE)}),
    (True, {"detail__region": polygon(*SQUARE[:3])}),
    (False, {"detail__region": polygon(*SQUARE[:2])}),
    (False, {"detail__region": polygon([13], *SQUARE)}),
    (False, {"detail__region": polygon([13, 52, 1, 1], *SQUARE[1:])}),
    (True, {"detail__region": polygon(*([*at, 900] for at in SQUARE))}),
    (False, {"detail__region": polygon([181, 52], *SQUARE[1:])}),
    (False, {"detail__region": polygon([13, 91], *SQUARE[1:])}),
    (False, {"detail__region": polygon([13, "52"], *SQUARE[1:])}),
    (True, {"detail__region": {**polygon(*SQUARE), "bbox": [13, 52, 14, 53]}}),
    (False, {"detail__region": {**polygon(*SQUARE), "bbox": [13, 52, 14, 53, 1, 2, 3]}}),
    (False, {"detail__region": POINT}),
    (True, {"detail__region": {"type": "Feature", "geometry": polygon(*SQUARE), "id": 7.5}}),
    (False, {"detail__region": {"type": "Feature", "geometry": circle()}}),
    (False, {"detail__region": circle(radius_m=-1)}),
    (False, {"detail__region": {**circle(), "more": 1}}),
    (False, {"detail__region": {"areaType": "BOX", "west": 1, "south": 5, "east": 2}}),
    # Rankings.
    (True, {"detail__region": POINT, "detail__ranking": PROXIMITY}),
    (False, {"detail__ranking": PROXIMITY}),
    (True, {"detail__region": POINT, "detail__ranking": OVERLAP}),
    (False, {"detail__region": polygon(*SQUARE), "detail__ranking": PROXIMITY}),
    (True, {"detail__ranking": OVERLAP}),
    (True, {"detail__ranking": None}),
    (True, {"detail__region": polygon(*SQUARE), "detail__ranking": OVERLAP}),
    (False, {"detail__region": POINT, "detail__ranking": {**PROXIMITY, "delta": 1.1}}),
    (False, {"detail__region": POINT, "detail__ranking": {**PROXIMITY, **OVERLAP}}),
    # When it ends.
    (True, {"config__subscriptionMaxEvents": 1}),
    (True, {"config__subscriptionMaxEvents": 5.0}),
    (False, {"config__subscriptionMaxEvents": 5.5}),
    (False, {"config__subscriptionMaxEvents": True}),
    (False, {"config__subscriptionMaxEvents": 1_000_001}),
    (True, {"config__subscriptionExpireTime": "2099-01-01t00:00:00.123456789+05:30"}),
    (True, {"config__subscriptionExpireTime": "2099-01-01 00:00:00z"}),
    *(
        (False, {"config__subscriptionExpireTime": text})
        for text in (
            "2099-01-01",
            "2099-01-01T00:00:00",
            "2099-01-01T25:00:00Z",
            "tomorrow",
            "",
            "2099-13-01T00:00:00Z",
            "2099-01-01T00:60:00Z",
            "2099-01-01T00:00:00.1234567891Z",
        )
    ),
    (False, {"config__initialEvent": "true"}),
    (True, {"detail__dwellS": 0.5}),
    (False, {"detail__dwellS": 86_401}),
    # Types.
    (True, {"types": ["org.nearcast.match", "org.nearcast.unmatch"]}),
    (False, {"types": ["org.nearcast.match", "org.nearcast.match"]}),
    (False, {"types": []}),
    (False, {"types": ["match"]}),
    (True, {"types": None}),
    # Sinks.
    (True, {"sink": HOOK}),
    (True, {"sink": "HTTPS://127.0.0.1:9/hook?a=b"}),
    *(
        (False, {"sink": sink})
        for sink in (
            "",
            "hook",
            "ftp://127.0.0.1/",
            "https://127.0.0.1/#a",
            "https://user@a.b/",
            "https://127.0.0.1/a b",
            "https://127.0.0.1/é",
            "https://127.0.0.1/\\",
            "https://",
        )
    ),
    (False, {"sinkCredential": SECRET}),
    (True, {"sink": HOOK, "sinkCredential": SECRET}),
    (True, {"sink": HOOK, "sinkCredential": TOKEN}),
    *(
        (False, {"sink": HOOK, "sinkCredential": {**SECRET, "secret": secret}})
        for secret in (
            "whsec_",
            "whsec_YWJj",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-w",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwA",
            "whsec_" + "A" * 88,
        )
    ),
    *(
        (False, {"sink": HOOK, "sinkCredential": {**TOKEN, "accessToken": token}})
        for token in ("", "a b", "a\nb", "\u00e9")
    ),
    (False, {"sink": HOOK, "sinkCredential": {**TOKEN, "accessTokenExpiresUtc": "soon"}}),
    (False, {"status": "EXPIRED"}),
    (True, {"status": "INACTIVE"}),
    (False, {"protocol": "MQTT"}),
    (False, {"more": 1}),
]

CURSORS = [
    *((True, text) for text in ("now", "earliest", "1-2", "1-2.3", "1795888800-42", FAR, "1.5")),
    *((False, text) for text in ("", "later", "Now", "@", "-")),
]

BODIES: list[tuple[bool, str, str, Any]] = [
    # What only the server sets is ignored when a subscription is sent back.
    (True, "PUT", "/v1/subscriptions/{id}", subscription(version=3, startsAt=FAR, warnings=[])),
    (True, "PUT", "/v1/subscriptions/{id}", subscription(status="EXPIRED", expiresAt=FAR)),
    (False, "PUT", "/v1/subscriptions/{id}", subscription(status="GONE")),
    (False, "PUT", "/v1/subscriptions/{id}", subscription(more=1)),
    (False, "PUT", "/v1/subscriptions/{id}", []),
    (True, "PATCH", "/v1/subscriptions/{id}", {}),
    (True, "PATCH", "/v1/subscriptions/{id}", {"status": "INACTIVE"}),
    (True, "PATCH", "/v1/subscriptions/{id}", {"types": None}),
    (False, "PATCH", "/v1/subscriptions/{id}", {"version": 1}),
    (False, "PATCH", "/v1/subscriptions/{id}", {"status": "GONE"}),
    (False, "PATCH", "/v1/subscriptions/{id}", {"more": 1}),
    (False, "PATCH", "/v1/subscriptions/{id}", {"config": None}),
    (False, "PATCH", "/v1/subscriptions/{id}", []),
    (True, "POST", "/v1/preview", {"subscription": subscription()}),
    (True, "POST", "/v1/preview", {"subscription": subscription(), "messages": 5.0}),
    (True, "POST", "/v1/preview", {"subscription": subscription(), "messages": None}),
    (False, "POST", "/v1/preview", {"subscription": subscription(), "messages": 0}),
    (
        True,
        "POST",
        "/v1/preview",
        {"subscription": subscription(), "message": {"text": "a", "lon": 1, "lat": 1}},
    ),
    (
        False,
        "POST",
        "/v1/preview",
        {
            "subscription": subscription(),
            "message": {"text": "a", "lon": 1, "lat": 1},
            "messages": 1,
        },
    ),
    (False, "POST", "/v1/preview", {"subscription": subscription(), "message": {"lon": "x"}}),
    (False, "POST", "/v1/preview", {"subscription": subscription(), "message": {}}),
    *((valid, "PUT", "/v1/cursors/{name}", {"cursor": text}) for valid, text in CURSORS),
    *((valid, "POST", "/v1/sinks/{id}/replay", {"cursor": text}) for valid, text in CURSORS),
    (True, "POST", "/v1/tokens", {"subscriber": "ann", "expiresInS": 60.0}),
    (False, "POST", "/v1/tokens", {"subscriber": "ann", "expiresInS": 0}),
    (False, "POST", "/v1/tokens", {"subscriber": "ann", "roles": ["admin"]}),
    (False, "POST", "/v1/tokens", {"subscriber": "a\x00"}),
    (True, "POST", "/v1/keys", {"roles": ["admin"], "name": "n"}),
    (True, "POST", "/v1/keys", {"roles": ["publish", "publish"], "subscriber": "ann"}),
    (True, "POST", "/v1/keys", {"roles": ["admin"], "subscriber": None}),
    (False, "POST", "/v1/keys", {"roles": ["admin"], "subscriber": "ann"}),
    (False, "POST", "/v1/keys", {"roles": []}),
    (True, "PUT", "/v1/tenants/{name}/limits", {"requestsPerS": 5, "clauses": 10.0}),
    (False, "PUT", "/v1/tenants/{name}/limits", {"requestsPerS": 0}),
    (False, "PUT", "/v1/tenants/{name}/limits", {"clauses": 1001}),
    (True, "PUT", "/v1/subscribers/{name}", {"cap": {"events": 2.0, "periodS": 60}}),
    (True, "PUT", "/v1/subscribers/{name}", {"quietHours": {"from": "22:00", "to": "07:00"}}),
    *(
        (
            valid,
            "PUT",
            "/v1/subscribers/{name}",
            {"quietHours": {"from": "22:00", "to": "07:00", "timeZone": zone}},
        )
        for valid, zone in (
            *((True, name) for name in ("UTC", "Europe/Berlin", "America/Argentina/Ushuaia")),
            *((False, name) for name in ("", "../UTC", "/etc/UTC", "europe berlin")),
        )
    ),
    (False, "PUT", "/v1/subscribers/{name}", {"quietHours": {"from": "24:00", "to": "07:00"}}),
]

PATHS = {
    "/v1/subscriptions/{id}": "/v1/subscriptions/p",
    "/v1/cursors/{name}": "/v1/cursors/c",
    "/v1/sinks/{id}/replay": "/v1/sinks/SINK/replay",
    "/v1/tenants/{name}/limits": "/v1/tenants/t/limits",
    "/v1/subscribers/{name}": "/v1/subscribers/ann",
}

PARAMETERS: list[tuple[bool, str, str, str, str]] = [
    *(
        (valid, path, "query", name, text)
        for path, name in (("/v1/messages", "dryRun"), ("/v1/events?poll=1", "all"))
        for valid, text in ((True, "1"), (True, "true"), (True, "0"), (False, "2"), (False, ""))
        if path != "/v1/messages"
    ),
    *((valid, "/v1/messages", "query", "after", text) for valid, text in CURSORS if text),
    *((valid, "/v1/events?poll=1", "query", "cursor", text) for valid, text in CURSORS if text),
    (False, "/v1/events?poll=1", "query", "cursor", "@" + "x" * 260),
    (True, "/v1/events?poll=1", "query", "limit", "1000"),
    (False, "/v1/events?poll=1", "query", "limit", "1001"),
    (False, "/v1/events?poll=1", "query", "limit", "null"),
    (True, "/v1/events?poll=1", "header", "Last-Event-ID", "1-2"),
    (False, "/v1/events?poll=1", "header", "Last-Event-ID", "later"),
    *((True, "/v1/subscriptions", "query", "status", text) for text in ("ACTIVE", "EXPIRED")),
    *((False, "/v1/subscriptions", "query", "status", text) for text in ("", "active", "GONE")),
    *((True, "/v1/subscriptions", "query", "after", text) for text in ("0", "12")),
    *((False, "/v1/subscriptions", "query", "after", text) for text in ("", "a", "1" * 19)),
    *(
        (valid, path, "query", "bbox", text)
        for path in ("/v1/subscriptions", "/v1/subscriptions/cells")
        for valid, text in (
            (True, "13,52,14,53"),
            (True, "170,-20.5,-170,1e1"),
            (False, ""),
            (False, "1,2,3"),
            (False, "1,2,3,4,5"),
            (False, "a,b,c,d"),
            (False, "nan,0,1,1"),
        )
    ),
    *((False, "/v1/sinks/SINK/dead", "query", "after", text) for text in ("", "a", "now")),
    (True, "/v1/sinks/SINK/dead", "query", "after", "1-2"),
]


def judge(document: dict[str, Any], schema: dict[str, Any], value: Any) -> bool:
    """Return whether a schema of the document accepts a value."""
    whole = {**deepcopy(schema), "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(whole).is_valid(value)


def body_schema(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    content = document["paths"][path][method.lower()]["requestBody"]["content"]
    found: dict[str, Any] = content[PATCH if method == "PATCH" else JSON]["schema"]
    return found


@pytest.mark.parametrize(
    ("valid", "changes"), SUBSCRIPTIONS, ids=[f"{n}" for n in range(len(SUBSCRIPTIONS))]
)
def test_subscriptions(
    server: Running, document: dict[str, Any], valid: bool, changes: dict[str, Any]
) -> None:
    body = subscription(**changes)
    with server.client() as client:
        answer = client.post("/v1/subscriptions", content=json.dumps(body))
        if answer.is_success:
            client.delete("/v1/subscriptions/" + quote(answer.json()["id"], safe=""))
    assert answer.status_code < 500
    assert answer.is_success is valid, answer.text
    schema = body_schema(document, "POST", "/v1/subscriptions")
    assert judge(document, schema, body) is valid, changes


def sink(server: Running) -> str:
    """Return the id of a sink."""
    with server.client() as client:
        body = subscription(id="hooked", sink=HOOK)
        client.put("/v1/subscriptions/hooked", json=body).raise_for_status()
        return str(client.get("/v1/sinks").json()["sinks"][0]["id"])


@pytest.mark.parametrize(
    ("valid", "method", "path", "body"), BODIES, ids=[f"{n}" for n in range(len(BODIES))]
)
def test_other_bodies(
    server: Running, document: dict[str, Any], valid: bool, method: str, path: str, body: Any
) -> None:
    address = PATHS.get(path, path)
    address = address.replace("SINK", sink(server)) if "SINK" in address else address
    with server.client() as client:
        headers = {"Content-Type": PATCH if method == "PATCH" else JSON}
        answer = client.request(method, address, content=json.dumps(body), headers=headers)
    assert answer.status_code < 500
    assert answer.is_success is valid, answer.text
    assert judge(document, body_schema(document, method, path), body) is valid, body


@pytest.mark.parametrize(
    ("valid", "path", "place", "name", "text"),
    PARAMETERS,
    ids=[f"{n}" for n in range(len(PARAMETERS))],
)
def test_parameters(
    server: Running,
    document: dict[str, Any],
    valid: bool,
    path: str,
    place: str,
    name: str,
    text: str,
) -> None:
    described = path.replace("SINK", "{id}").partition("?")[0]
    address = path.replace("SINK", sink(server)) if "SINK" in path else path
    with server.client() as client:
        given = {name: text}
        where = {"headers": given} if place == "header" else {"params": given}
        url, _, more = address.partition("?")
        if place == "query" and more:
            where["params"] = {**dict([more.split("=")]), **given}
        elif more:
            url = address
        answer = client.get(url, **where)  # type: ignore[arg-type]
    assert answer.status_code < 500
    assert answer.is_success is valid, answer.text
    parameters = document["paths"][described]["get"]["parameters"]
    [schema] = [p["schema"] for p in parameters if (p["in"], p["name"]) == (place, name)]
    values: list[Any] = [text]
    if text in ("true", "false") or text.lstrip("-").isdigit():
        values.append(json.loads(text))
    assert any(judge(document, schema, value) for value in values) is valid, text


def test_headers_that_routes_read_are_described(document: dict[str, Any]) -> None:
    found = {
        (path, method, parameter["name"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "header"
    }
    assert found == {
        ("/v1/messages", "post", "Idempotency-Key"),
        ("/v1/messages", "post", "Prefer"),
        ("/v1/events", "get", "Last-Event-ID"),
        ("/v1/subscriptions/{id}", "put", "If-Match"),
        ("/v1/subscriptions/{id}", "put", "If-None-Match"),
        ("/v1/subscriptions/{id}", "patch", "If-Match"),
        ("/v1/subscriptions/{id}", "delete", "If-Match"),
    }


def test_media_types_that_routes_take_are_described(document: dict[str, Any]) -> None:
    paths = document["paths"]
    imported = paths["/v1/subscriptions/import"]["post"]["requestBody"]["content"]
    lines = {"application/x-ndjson", "application/ndjson", "application/jsonl"}
    assert set(imported) == lines | {"application/geo+json"}
    assert "/healthz" in paths
