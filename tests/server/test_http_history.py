"""The history of the log, by requests to a real server and over logs of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nearcast.server.http import history
from nearcast.server.http.history import BUCKETS, history_of
from nearcast.server.log.records import TICK, messages_body, timed
from nearcast.storage.log import Entry, Log
from running import BERLIN, Running, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def test_the_messages_of_a_tenant_are_counted(server: Running) -> None:
    message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}
    with server.client(server.make_tenant("counted")) as client:
        published = [
            client.post("/v1/messages", json=[message] * n).raise_for_status().json()
            for n in (1, 5, 3)
        ]
        found = client.get("/v1/history").json()
        assert sum(bucket["messages"] for bucket in found["buckets"]) == 9
        assert found["approximate"] is False
        assert len(found["buckets"]) == BUCKETS
        times = [bucket["from"] for bucket in found["buckets"]]
        assert times == sorted(times)
        assert times[0] == found["from"] < times[-1] < found["to"]
        assert found["lastId"] == published[-1]["lastId"]
        listed = client.get("/v1/messages").json()["messages"]
        assert found["from"] <= listed[0]["publishedAt"] <= listed[-1]["publishedAt"] == found["to"]
        events = client.get(f"/v1/events?poll=1&cursor={found['firstId']}")
        assert events.status_code == 200
    with server.client(server.make_tenant("quiet")) as stranger:
        found = stranger.get("/v1/history").json()
        assert sum(bucket["messages"] for bucket in found["buckets"]) == 0


def test_publishers_and_subscribers_may_see_it(server: Running) -> None:
    for role in ("publish", "subscribe"):
        with server.client(server.make_key(role)) as client:
            assert client.get("/v1/history").status_code == 200
    with server.client(server.make_key("admin")) as client:
        assert client.get("/v1/history").status_code == 403
    with server.client("") as nobody:
        assert nobody.get("/v1/history").status_code == 401


def write(log: Log, second: int, tenant: int | None, count: int = 1) -> None:
    """Append messages of a tenant, or, if it is None, a record of another kind."""
    entry = Entry(TICK, b"") if tenant is None else messages_body(tenant, [b"{}"] * count)
    log.append([timed(entry, START + second * SECOND)])


def expected(records: list[tuple[int, int | None, int]], tenant: int) -> dict[int, int]:
    """Count the messages of a tenant by second."""
    found: dict[int, int] = {}
    for second, owner, count in records:
        if owner == tenant:
            found[second] = found.get(second, 0) + count
    return found


@pytest.fixture
def records() -> list[tuple[int, int | None, int]]:
    """Return second, tenant and number of messages of some records over a hundred seconds."""
    busy = [(second, second % 3 or None, 1 + second % 7) for second in range(40)]
    return [*busy, (70, 1, 50), (70, 2, 10), (99, 1, 1)]


def test_every_message_is_in_the_bucket_of_its_time(
    records: list[tuple[int, int | None, int]], tmp_path: Path
) -> None:
    with Log(tmp_path / "log") as log:
        assert history_of(log, 1) is None
        for one in records:
            write(log, *one)
        found = history_of(log, 1)
    assert found is not None
    assert (found.approximate, len(found.bucket_us)) == (False, 100)
    by_second = expected(records, 1)
    for at, messages in enumerate(found.messages):
        last = found.bucket_us[at + 1] if at + 1 < 100 else found.to_us + 1
        inside = [
            n for s, n in by_second.items() if found.bucket_us[at] <= START + s * SECOND < last
        ]
        assert messages == sum(inside)
    assert sum(found.messages) == sum(by_second.values())


def test_estimates_are_near_and_never_of_others(
    records: list[tuple[int, int | None, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_path / "log") as log:
        for one in records:
            write(log, *one)
        exact = {tenant: history_of(log, tenant) for tenant in (1, 2, 3)}
        monkeypatch.setattr(history, "EXACT", 0)
        estimated = {tenant: history_of(log, tenant) for tenant in (1, 2, 3)}
    for tenant, found in estimated.items():
        known = exact[tenant]
        assert found is not None
        assert known is not None
        assert found.approximate
        assert sum(found.messages) == pytest.approx(sum(known.messages), rel=0.05)
        # In 16 numbers at most, each is a sample; only the second with 60 of them is estimated.
        assert [a for a, b in zip(found.messages, known.messages, strict=True) if b < 10] == [
            b for b in known.messages if b < 10
        ]
    assert estimated[3] is not None
    assert not any(estimated[3].messages)


def test_one_record_is_a_history(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        write(log, 0, 1, 3)
        found = history_of(log, 1)
    assert found is not None
    assert (found.bucket_us, found.messages) == ([START], [3])
