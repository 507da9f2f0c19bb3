"""Both clients against servers and networks that misbehave."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from both import opened
from hostile import HANG, answer, cutting, event, scripted, stream_head
from nearcast import Circle
from nearcast.client import AsyncClient, Client, ConnectionFailed, InvalidAnswer, ProblemError
from running import running_server

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running

BERLIN = Circle(13.4, 52.5, radius_m=1000)
NOW = answer(b'{"events":[],"cursor":"7-1"}')
KEY = "nc_x_y"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.client.exchange._FIRST_DELAY_S", 0.001)


def tea(count: int) -> list[dict[str, Any]]:
    return [{"text": f"tea {n}", "lon": 13.4, "lat": 52.5} for n in range(count)]


def texts(events: Any, count: int) -> list[str]:
    return [one.message["text"] for one in islice(events, count)]


def accepted(count: int) -> bytes:
    given = {"accepted": count, "firstSeq": 5, "firstId": "7-5", "rejected": []}
    return answer(json.dumps(given).encode())


# --- publishing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [0, 1, 40, 200, 330])
def test_messages_whose_answer_is_cut_off_are_stored_once(
    kind: str, server: Running, allowed: int
) -> None:
    ann = uuid.uuid4().hex
    with opened(kind, server.url, server.key) as client:
        client.subscribe(keywords=[ann], region=BERLIN, subscriber=ann, types=["match"])
    given = [{**one, "text": ann} for one in tea(3)]
    with cutting(server.url, lambda n: allowed if n < 3 else None) as url:
        with opened(kind, url, server.key) as client:
            published = client.publish(given)
            ids = [*published.ids, *client.publish(given[0]).ids]
            with client.events("earliest", subscriber=ann) as events:
                found = [next(events).id for _ in ids]
    assert published.accepted == 3
    assert found == ids


@pytest.mark.parametrize("status", ["429 X", "502 X", "503 X", "504 X", "408 X"])
def test_passing_refusals_are_tried_again_with_the_same_key(kind: str, status: str) -> None:
    refused = answer(b"<html>", status, "retry-after: 0")
    with scripted([refused], [refused], [accepted(2)]) as (url, requests):
        with opened(kind, url, KEY) as client:
            assert client.publish(tea(2)).ids == ("7-5", "7-6")
    keys = {requests.header(n, "idempotency-key") for n in range(3)}
    assert len(keys) == 1
    assert None not in keys
    assert len({request.partition(b"\r\n\r\n")[2] for request in requests}) == 1


def test_batches_have_different_keys(kind: str) -> None:
    with scripted([accepted(1000)], [accepted(1000)], [accepted(1)]) as (url, requests):
        with opened(kind, url, KEY) as client:
            many = {"in_flight": 1} if kind == "asyncio" else {}
            assert client.publish(tea(2001), **many).accepted == 2001
    assert len({requests.header(n, "idempotency-key") for n in range(3)}) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422, 500, 507])
def test_final_refusals_are_raised_at_once(kind: str, status: int) -> None:
    document = {"code": "X", "detail": "no", "errors": [{"field": "f", "reason": "r"}]}
    refused = answer(json.dumps(document).encode(), f"{status} X")
    many = {"in_flight": 1} if kind == "asyncio" else {}
    with scripted([accepted(1000)], [refused]) as (url, requests):
        with opened(kind, url, KEY) as client, pytest.raises(ProblemError) as caught:
            client.publish(tea(1500), **many)
    assert len(requests) == 2
    error = caught.value
    assert (error.status, error.code, error.detail) == (status, "X", "no")
    assert error.errors == ({"field": "f", "reason": "r"},)
    assert error.published is not None
    assert error.published.accepted == 1000
    assert error.published.ids[999:1001] == ("7-1004", None)


def test_the_longest_wait_is_bounded(kind: str) -> None:
    busy = answer(b"{}", "503 X", "retry-after: 3600")
    with scripted([busy]) as (url, requests):
        with opened(kind, url, KEY, retry_s=5) as client, pytest.raises(ProblemError) as caught:
            client.publish(tea(1))
    assert (caught.value.status, len(requests)) == (503, 1)


def test_nobody_at_the_address_is_an_error_after_some_time(kind: str) -> None:
    with scripted([]) as (url, _):
        pass
    with opened(kind, url, KEY, retry_s=0.1) as client:
        with pytest.raises(ConnectionFailed):
            client.publish(tea(1))
        with pytest.raises(ConnectionFailed):
            client.events()
        with client.events("7-1") as events, pytest.raises(ConnectionFailed):
            next(events)


def test_what_must_not_be_repeated_is_not(kind: str) -> None:
    with scripted([b"HTTP/1.1 201 Cre"], [answer(b"{}", "503 X")]) as (url, requests):
        with opened(kind, url, KEY) as client:
            with pytest.raises(ConnectionFailed, match="may have acted"):
                client.subscribe(region=BERLIN)
            with pytest.raises(ProblemError, match="503"):
                client.subscribe(region=BERLIN)
    assert len(requests) == 2


def test_a_page_of_a_proxy_is_no_answer(kind: str) -> None:
    page = answer(b"<html>Sign in</html>")
    with scripted([page], [page], [stream_head("text/html") + b"<html>"]) as (url, _):
        with opened(kind, url, KEY) as client:
            with pytest.raises(InvalidAnswer, match="Sign in"):
                client.publish(tea(1))
            with pytest.raises(InvalidAnswer, match="Sign in"):
                client.get("s1")
            with client.events("7-1") as events, pytest.raises(InvalidAnswer, match="text/html"):
                next(events)


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"accepted":1}', b'{"accepted":1,"rejected":[{}]}', b'{"accepted":2,"rejected":[]}'],
)
def test_answers_with_something_missing_are_errors(kind: str, body: bytes) -> None:
    with scripted([answer(body)]) as (url, _), opened(kind, url, KEY) as client:
        with pytest.raises(InvalidAnswer):
            client.publish(tea(1))
        with pytest.raises(InvalidAnswer):
            client.get("s1")
        with pytest.raises(InvalidAnswer):
            client.cursor("phone")


def test_an_answer_that_never_comes_is_asked_for_again(kind: str) -> None:
    with scripted([HANG], [b"HTTP/1.1 200 OK\r\n", HANG], [accepted(1)]) as (url, requests):
        with opened(kind, url, KEY, timeout_s=0.3) as client:
            assert client.publish(tea(1)).accepted == 1
    assert len(requests) == 3


# --- events --------------------------------------------------------------------------------------


def test_frames_are_cut_doubled_and_mixed_and_events_come_once(kind: str) -> None:
    first, second, third = event("7-2", "één 😀"), event("7-3"), event("7-3.1", "nog één")
    script: list[list[Any]] = [
        [NOW],
        [stream_head(), b": open\r\n\r\n"],
        [stream_head(), first[:-30]],
        [stream_head() + first, second[:40]],
        [stream_head(), first, second, second, b"id: 7-2\n\n"],
        [stream_head(), third.replace(b"\n", b"\r\n"), b"id: 7-9\n\n", b"id: 7-10", HANG],
    ]
    with scripted(*script) as (url, requests):
        with opened(kind, url, KEY) as client:
            events = client.events()
            found = [next(events) for _ in range(3)]
            events.close()
    assert [one.id for one in found] == ["7-2", "7-3", "7-3.1"]
    assert [one.message["text"] for one in found] == ["één 😀", "tea", "nog één"]
    resumed = [requests.header(n, "last-event-id") for n in range(1, 6)]
    assert resumed == ["7-1", "7-1", "7-1", "7-2", "7-3"]


def test_characters_are_cut_between_chunks(kind: str) -> None:
    frame = event("7-2", "é€😀")
    pieces = [frame[n : n + 1] for n in range(len(frame))]
    with scripted([stream_head(), *pieces, HANG]) as (url, _):
        with opened(kind, url, KEY) as client, client.events("7-1") as events:
            assert next(events).message["text"] == "é€😀"


def test_bookmarks_move_the_cursor(kind: str) -> None:
    script: list[list[Any]] = [[stream_head(), b"id: 7-8\n\n"], [stream_head(), event("7-9"), HANG]]
    with scripted(*script) as (url, requests):
        with opened(kind, url, KEY) as client, client.events("earliest") as events:
            assert next(events).id == "7-9"
    assert [requests.header(n, "last-event-id") for n in (0, 1)] == [None, "7-8"]


def test_a_gap_comes_once_even_if_the_connection_breaks_after_it(kind: str) -> None:
    gap = b'event: gap\ndata: {"from":"7-1","to":"9-5","lost":3}\n\n'
    script: list[list[Any]] = [[stream_head(), gap], [stream_head(), event("9-5"), HANG]]
    with scripted(*script) as (url, requests):
        with opened(kind, url, KEY) as client, client.events("7-1") as events:
            found = [next(events), next(events)]
    assert [one.type for one in found] == ["gap", "match"]
    assert requests.header(1, "last-event-id") is None
    assert b"cursor=earliest" in requests[1]


def test_silence_is_a_break(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.client.transport.SILENCE_S", 0.3)
    script = [[stream_head(), event("7-2"), HANG], [HANG], [stream_head(), event("7-3"), HANG]]
    with scripted(*script) as (url, requests):
        with opened(kind, url, KEY) as client, client.events("7-1") as events:
            assert [next(events).id, next(events).id] == ["7-2", "7-3"]
    assert requests.header(2, "last-event-id") == "7-2"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_ends_the_stream(kind: str, status: int) -> None:
    refused = answer(b'{"code":"X","detail":"the token has expired"}', f"{status} X")
    with scripted([stream_head(), event("7-2")], [refused]) as (url, _):
        with opened(kind, url, KEY) as client, client.events("7-1") as events:
            assert next(events).id == "7-2"
            with pytest.raises(ProblemError, match="expired"):
                next(events)


def test_overload_and_errors_of_the_server_are_waited_for(kind: str) -> None:
    script = [
        [answer(b"{}", f"{status} X", "retry-after: 0")] for status in (429, 500, 502, 503, 504)
    ]
    with scripted(*script, [stream_head(), event("7-2"), HANG]) as (url, requests):
        with opened(kind, url, KEY) as client, client.events("7-1") as events:
            assert next(events).id == "7-2"
    assert len(requests) == 6


@pytest.mark.parametrize(
    "frame",
    [
        b"id: 7-2\ndata: no JSON\n\n",
        b"id: 7-2\ndata: []\n\n",
        b'id: 7-2\ndata: {"id":"7-2"}\n\n',
        b"id: what\ndata: {}\n\n",
        event("7-2").replace(b"id: 7-2", b"id: 7-4"),
        b"event: gap\ndata: {}\n\n",
    ],
)
def test_events_that_are_none_are_errors(kind: str, frame: bytes) -> None:
    with scripted([stream_head(), frame, HANG]) as (url, _):
        with opened(kind, url, KEY) as client, client.events("7-1") as events:
            with pytest.raises(InvalidAnswer):
                next(events)


def test_waiting_can_be_canceled_and_nothing_is_lost() -> None:
    async def run(url: str) -> list[str]:
        async with AsyncClient(url, KEY) as client, client.events("7-1") as events:
            found = [(await anext(events)).id]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.2)
            return [*found, (await anext(events)).id]

    half = event("7-3")
    script = [[stream_head(), event("7-2"), half[:50], HANG], [stream_head(), half, HANG]]
    with scripted(*script) as (url, requests):
        assert asyncio.run(run(url)) == ["7-2", "7-3"]
    assert requests.header(1, "last-event-id") == "7-2"


# --- a network that breaks, and a server that is restarted ---------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_events_come_once_through_a_network_that_breaks(
    kind: str, server: Running, seed: int
) -> None:
    ann = uuid.uuid4().hex
    draw = random.Random(seed)
    lengths = [draw.choice([0, 10, 300, 1000, 3000]) for _ in range(40)]
    with cutting(server.url, lambda n: lengths[n] if n < len(lengths) else None) as url:
        with opened(kind, url, server.key) as client:
            client.replace(ann, keywords=[ann], region=BERLIN, subscriber=ann, types=["match"])
            with client.events("earliest", subscriber=ann) as events:
                ids: list[str] = []
                for _ in range(5):
                    ids += client.publish([{**one, "text": ann} for one in tea(4)]).ids
                found = [one.id for one in islice(events, len(ids))]
    assert found == ids


def test_a_restart_of_the_server_loses_nothing_and_repeats_nothing(
    kind: str, tmp_path: Path
) -> None:
    target: list[str] = []
    found: list[str] = []
    published: list[str] = []
    with running_server(tmp_path) as running:
        target.append(running.url)
        key = running.key
    with cutting(target) as url, opened(kind, url, key) as client:
        stream: Any = None
        for _ in range(3):
            with running_server(tmp_path) as running:
                target[0] = running.url
                if stream is None:
                    client.subscribe(keywords="tea", region=BERLIN, types=["match"])
                    stream = client.events()
                published += client.publish(tea(20)).ids
                found += [next(stream).id for _ in range(15)]
        with running_server(tmp_path) as running:
            target[0] = running.url
            published += client.publish(tea(1)).ids
            found += [next(stream).id for _ in range(len(published) - len(found))]
            stream.close()
    assert found == published
    assert len({id.partition("-")[0] for id in found}) >= 3


def test_several_threads_may_use_a_client(server: Running) -> None:
    failures: list[BaseException] = []
    with Client(server.url, server.key) as client:

        def work() -> None:
            try:
                for _ in range(5):
                    assert client.publish(tea(10)).accepted == 10
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
