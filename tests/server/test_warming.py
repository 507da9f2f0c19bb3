"""What a server compiles before it is ready is all that it ever needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nearcast.compiled.kernel_cache import KernelCache
from nearcast.server.warming import compile_kernels
from running import BERLIN, circle, resource, running_server

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    import pytest

BOX = {"areaType": "BOX", "west": 13.0, "south": 52.0, "east": 14.0, "north": 53.0}
TRIANGLE = {"type": "Polygon", "coordinates": [[[13, 52], [14, 52], [13, 54], [13, 52]]]}
POINT = {"type": "Point", "coordinates": [*BERLIN]}


def details() -> list[dict[str, Any]]:
    """Return a subscription of each kind."""
    return [
        {"keywords": ["tea"], "region": BOX},
        {"expression": '"hot tea" OR (milk NOT sug*)', "region": TRIANGLE},
        {
            "keywords": ["tea", "hot"],
            "region": POINT,
            "ranking": {"delta": 0.5, "tau": 0.1, "maxDistanceM": 100_000},
        },
        {"keywords": ["tea"], "region": BOX, "ranking": {"alpha": 0.5, "theta": 0.1}},
    ]


def use_everything(client: httpx.Client) -> None:
    """Call every route that matches, finds or explains, with all kinds of subscriptions."""

    def call(method: str, path: str, **more: Any) -> Any:
        answer = client.request(method, path, **more)
        assert answer.is_success, (method, path, answer.text)
        return answer.json() if answer.content else None

    for number, detail in enumerate(details()):
        given = {"config": {"subscriptionDetail": detail}}
        call("PUT", f"/v1/subscriptions/s{number}", json=given)
        call("POST", "/v1/preview", json={"subscription": given, "messages": 10})
    call("PUT", "/v1/subscriptions/moving", json=resource("tea"))
    line = {"id": "i", "keywords": ["tea"], "lon": 13.4, "lat": 52.5, "radius_m": 900}
    call(
        "POST",
        "/v1/subscriptions/import",
        content=json.dumps(line),
        headers={"Content-Type": "application/x-ndjson"},
    )
    message = {"text": "hot tea", "lon": BERLIN[0], "lat": BERLIN[1], "ttl_s": 600}
    first = call("POST", "/v1/messages", json=[message, {**message, "text": "milk"}])["firstId"]
    cursor, found = "earliest", list[str]()
    while first not in found:
        page = call("GET", f"/v1/events?poll=1&waitS=20&cursor={cursor}")
        cursor, found = page["cursor"], [event["id"] for event in page["events"]]
    explained = call("GET", f"/v1/events/{first}/explain")["explanations"]
    assert len(explained) == len(details()) + 2
    call("GET", f"/v1/messages/{first}/trace")
    call("GET", "/v1/subscriptions/cells", params={"bbox": "-180,-90,180,90"})
    call(
        "POST",
        "/v1/moves",
        json=[{"subscription_id": "moving", "lon": 13.5, "lat": 52.4, "radius_m": 99}],
    )
    call("POST", "/v1/messages", json=message)
    patch = {"config": {"subscriptionDetail": {"region": circle(*BERLIN, 5_000)}}}
    call(
        "PATCH",
        "/v1/subscriptions/s0",
        json=patch,
        headers={"Content-Type": "application/merge-patch+json"},
    )
    for number in range(len(details())):
        call("DELETE", f"/v1/subscriptions/s{number}")
    call("POST", "/v1/messages", json=message)


def test_nothing_is_compiled_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_kernels()
    late: list[str] = []

    def load(self: KernelCache, signature: Any, target_context: Any) -> Any:
        late.append(f"{self._function.__qualname__}{signature}")
        return load_overload(self, signature, target_context)

    load_overload = KernelCache.load_overload
    with running_server(tmp_path) as server, server.client() as client:
        monkeypatch.setattr(KernelCache, "load_overload", load)
        use_everything(client)
    assert late == []
