"""Webhooks of a real server, whose receivers misbehave; beside them, a good one gets everything.

``NEARCAST_WEBHOOK_EVENTS`` is how many events each sink gets, ``NEARCAST_WEBHOOK_KILLS`` how often
the server is killed while it sends.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from standardwebhooks import Webhook
from yarl import URL

from effort import repeated
from faulty_receivers import (
    Receiver,
    answer,
    break_off_answer,
    break_off_head,
    endless,
    hang,
    receiving,
)
from tested_server import Client, LiveServer, box, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from faulty_receivers import Behavior, Received

EVENTS = repeated("NEARCAST_WEBHOOK_EVENTS", 6, 12)
KILLS = repeated("NEARCAST_WEBHOOK_KILLS", 1, 4)
WAIT_S = 60
TRIES = 2  # of an event; after two events that were given up, a sink is disabled
ANSWER_S = 4  # longer than a good receiver ever takes
SEAMS: dict[str, Any] = {"retries_s": [0.02] * (TRIES - 1), "sink_answer_s": ANSWER_S}
ALLOW = ("--allow-sink", "127.0.0.0/8")
OTHERS = ("--allow-sink", "127.1.0.0/16")
HOUR_S = 3600
_words = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(tmp_path_factory.mktemp("server"), *ALLOW, **SEAMS) as running:
        running.start()
        yield running


class Hook(NamedTuple):
    """A sink of a server, its receiver, and the secret that its requests are signed with."""

    client: Client
    id: str
    secret: str
    receiver: Receiver

    def get(self, part: str = "") -> Any:
        """Return the sink, or a part of it."""
        answer = self.client.request("GET", f"/v1/sinks/{self.id}{part}")
        assert answer.status == 200, answer
        return answer.json

    def post(self, part: str, body: object = None) -> Any:
        """Do something with the sink."""
        answer = self.client.request("POST", f"/v1/sinks/{self.id}{part}", body)
        assert answer.status == 200, answer
        return answer.json

    def wait_until(self, **wanted: object) -> Any:
        """Return the sink when it has some values; the server is asked again until then."""
        give_up_s = time.monotonic() + WAIT_S
        while True:
            sink = self.get()
            if all(sink.get(name) == value for name, value in wanted.items()):
                return sink
            assert time.monotonic() < give_up_s, (sink, wanted)

    def outcomes(self) -> list[tuple[str, object]]:
        """Return the events that were tried and what became of them, the first one first."""
        attempts = self.get("/attempts")["attempts"][::-1]
        return [(one["eventId"], one.get("status") or one["error"]) for one in attempts]

    def dead(self) -> list[tuple[str, str]]:
        """Return the events that were given up, and why."""
        return [(one["eventId"], one["reason"]) for one in self.get("/dead")["dead"]]

    def everything(self) -> Any:
        """Return all that the server says about the sink."""
        return self.get(), self.get("/attempts"), self.get("/dead")

    def ids(self, events: int) -> list[str]:
        """Return the ids of the first events that came, whose signatures are valid."""
        return [self.verified(one) for one in self.receiver.wait_for(events)]

    def verified(self, received: Received) -> str:
        """Return the id of an event after a judge has looked at its signature."""
        event = Webhook(self.secret).verify(received.body, received.headers)
        assert event["id"] == received.id
        assert received.method == "POST"
        return received.id


def hook(client: Client, word: str, receiver: Receiver, url: str | None = None) -> Hook:
    """Return a new sink for messages with a word."""
    url = url or receiver.url
    name = f"{word}-{next(_words)}"
    made = client.put(name, {**subscription(name, [word], box(0, 0, 1, 1)), "sink": url})
    sinks = client.request("GET", "/v1/sinks").json["sinks"]
    [id] = [sink["id"] for sink in sinks if sink["subscriber"] == name]
    return Hook(client, id, made["sinkCredential"]["secret"], receiver)


def publish(client: Client, word: str, messages: int, together: int = 5) -> list[str]:
    """Publish messages with a word, some in each request; return the ids of their events."""
    ids = []
    for first in range(0, messages, together):
        several = range(first, min(first + together, messages))
        found = client.publish(*({"text": f"{word} {n}", "lon": 0.5, "lat": 0.5} for n in several))
        epoch = found["firstId"].split("-")[0]
        ids += [f"{epoch}-{seq}" for seq in range(found["firstSeq"], found["lastSeq"] + 1)]
    return ids


class Case(NamedTuple):
    """A sink of a receiver that misbehaves, after events were published."""

    bad: Hook
    ids: list[str]


@contextmanager
def beside_a_good_one(
    server: LiveServer, behavior: Behavior, events: int = EVENTS, together: int = 5
) -> Iterator[Case]:
    """Publish events to a receiver that misbehaves, and to a good one; that one gets them all."""
    client, word = server.client(), f"w{next(_words)}"
    with receiving(behavior) as bad_receiver, receiving() as good_receiver:
        bad = hook(client, word, bad_receiver)
        good = hook(client, word, good_receiver)
        ids = publish(client, word, events, together)
        assert good.ids(events) == ids
        sink = good.wait_until(pending=0)
        assert (sink["status"], sink["failures"], sink["cursor"]) == ("ACTIVE", 0, ids[-1])
        assert good.dead() == []
        yield Case(bad, ids)
        assert good.ids(len(good_receiver.received)) == ids  # each of them once, until the end


def check_given_up(case: Case, outcome: object, reason: str) -> None:
    """Check that two events were given up, and that the sink was disabled then."""
    bad, ids = case
    sink = bad.wait_until(status="DISABLED")
    assert sink["reason"] == f"{2 * TRIES} attempts failed; the last: {reason}"
    assert (sink["failures"], sink["pending"]) == (2 * TRIES, len(ids) - 2)
    assert "nextAttemptAt" not in sink
    assert sink["cursor"] == ids[1]
    assert bad.outcomes() == [(id, outcome) for id in ids[:2] for _ in range(TRIES)]
    assert bad.dead() == [(id, reason) for id in ids[:2]]


def check_recovery(case: Case, undelivered: int) -> None:
    """Let the receiver be good from now on; check that what it has not got comes, and all again.

    ``undelivered`` is the place of the first event that was neither delivered nor given up.
    """
    bad, ids = case
    bad.receiver.behavior = answer(200)
    before = len(bad.receiver.received)
    bad.post("/enable")
    expected = ids[undelivered:]
    assert bad.ids(before + len(expected))[before:] == expected
    sink = bad.wait_until(pending=0)
    assert (sink["status"], sink["failures"]) == ("ACTIVE", 0)
    assert "reason" not in sink
    before += len(expected)
    bad.post("/replay", {"cursor": "earliest"})
    assert bad.ids(before + len(ids))[before:] == ids
    bad.wait_until(pending=0)
    assert len(bad.receiver.received) == before + len(ids)


def test_a_receiver_that_never_answers(server: LiveServer) -> None:
    with beside_a_good_one(server, hang) as case:
        check_given_up(case, f"no answer within {ANSWER_S} s", f"no answer within {ANSWER_S} s")
        check_recovery(case, undelivered=2)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_never_followed(server: LiveServer, status: int) -> None:
    with (
        receiving() as target,
        beside_a_good_one(server, answer(status, Location=target.url)) as case,
    ):
        check_given_up(case, status, f"status {status}")
        assert case.bad.post("/test")["status"] == status
        assert target.received == []
        check_recovery(case, undelivered=2)
        assert target.received == []


def test_a_receiver_that_is_gone(server: LiveServer) -> None:
    # In one request: its subscription ends with the first answer, and gets nothing after that.
    with beside_a_good_one(server, answer(410), together=EVENTS) as case:
        sink = case.bad.wait_until(status="DISABLED")
        assert sink["reason"] == "the receiver answered 410 Gone"
        assert sink["pending"] == EVENTS
        assert case.bad.outcomes() == [(case.ids[0], 410)]
        assert case.bad.dead() == []
        check_recovery(case, undelivered=0)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_receiver_that_asks_to_wait(server: LiveServer, status: int, form: str) -> None:
    until = datetime.fromtimestamp(time.time() + HOUR_S, UTC)
    text = str(HOUR_S) if form == "seconds" else format_datetime(until, usegmt=True)
    with beside_a_good_one(server, answer(status, Retry_After=text)) as case:
        sink = case.bad.wait_until(failures=1)
        assert (sink["status"], sink["pending"]) == ("ACTIVE", EVENTS)
        [attempt] = case.bad.get("/attempts")["attempts"]
        assert (attempt["eventId"], attempt["status"]) == (case.ids[0], status)
        next_attempt = datetime.fromisoformat(sink["nextAttemptAt"])
        if form == "seconds":
            waits = next_attempt - datetime.fromisoformat(attempt["at"])
            assert HOUR_S <= waits.total_seconds() < HOUR_S + 60
        else:
            assert abs((next_attempt - until).total_seconds()) <= 1
        assert case.bad.dead() == []
        check_recovery(case, undelivered=0)


@pytest.mark.parametrize(
    ("piece", "pause_s", "events"), [(b"x" * 65536, 0.0, EVENTS), (b"x", 0.05, 2)]
)
def test_an_answer_without_end(
    server: LiveServer, piece: bytes, pause_s: float, events: int
) -> None:
    """The status counts; what follows is cut off, after a few bytes or a little time."""
    with beside_a_good_one(server, endless(piece, pause_s), events=events) as case:
        assert case.bad.ids(events) == case.ids
        case.bad.wait_until(pending=0, failures=0)
        assert case.bad.outcomes() == [(id, 200) for id in case.ids][-100:]
        case.bad.receiver.wait_for_cut_off(events)
        assert len(case.bad.receiver.received) == events


def test_a_connection_that_is_closed_before_the_end_of_the_headers(server: LiveServer) -> None:
    with beside_a_good_one(server, break_off_head) as case:
        reason = "the receiver closed the connection before the end of its headers"
        check_given_up(case, reason, reason)
        check_recovery(case, undelivered=2)


def test_a_connection_that_is_closed_in_the_middle_of_an_answer(server: LiveServer) -> None:
    with beside_a_good_one(server, break_off_answer) as case:
        assert case.bad.ids(EVENTS) == case.ids
        case.bad.wait_until(pending=0, failures=0)
        assert len(case.bad.receiver.received) == EVENTS


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.2.0.1/hook", "127.2.0.0/16"),
        ("https://127.2.0.1/hook", "127.2.0.0/16"),
        ("http://localhost:{port}/hook", "127.0.0.0/16"),
    ],
)
def test_an_address_that_is_not_allowed_any_more(tmp_path: Path, url: str, allowed: str) -> None:
    """It was allowed when the sink was made, and not when there is something to send.

    At `localhost` there is a receiver, and nothing gets to it.
    """
    with (
        LiveServer(tmp_path, *OTHERS, "--allow-sink", allowed, **SEAMS) as server,
        receiving() as inside,
        receiving(host="127.1.0.1") as outside,
    ):
        client = server.start()
        hooks = (
            hook(client, "tea", inside, url.format(port=URL(inside.url).port)),
            hook(client, "tea", outside),
        )
        server.stop()
        server.arguments = OTHERS
        client = server.start()
        bad, good = (one._replace(client=client) for one in hooks)
        ids = publish(client, "tea", EVENTS)
        assert good.ids(EVENTS) == ids
        reason = bad.wait_until(status="DISABLED")["reason"].partition("the last: ")[2]
        assert "the address of the host is not allowed" in reason
        check_given_up(Case(bad, ids), reason, reason)
        assert "the address of the host is not allowed" in bad.post("/test")["error"]
        assert inside.received == []


def test_a_server_that_is_killed_while_it_sends(tmp_path: Path) -> None:
    throttle = answer(503, Retry_After=str(HOUR_S))
    with (
        LiveServer(tmp_path, *ALLOW, **SEAMS) as server,
        receiving() as accepting,
        receiving(throttle) as throttling,
        receiving(answer(410)) as gone,
        receiving(answer(500)) as failing,
    ):
        client = server.start()
        good = hook(client, "tea", accepting)
        others = [hook(client, "tea", receiver) for receiver in (throttling, gone, failing)]
        ids = publish(client, "tea", EVENTS, together=EVENTS)  # all before the first answer
        good.ids(EVENTS)
        others[0].wait_until(failures=1)
        for other in others[1:]:
            other.wait_until(status="DISABLED")
        known = [other.everything() for other in others]
        tried = [len(other.receiver.received) for other in others]
        assert tried == [1, 1, 2 * TRIES]

        for _ in range(KILLS):
            before = len(accepting.received)
            ids += publish(client, "tea", EVENTS)
            accepting.wait_for(before + 1)
            server.kill()
            client = server.start()
            good, *others = [hook._replace(client=client) for hook in (good, *others)]

        good.wait_until(pending=0, failures=0, cursor=ids[-1])
        received = accepting.received
        assert list(dict.fromkeys(good.ids(len(received)))) == ids
        bodies: dict[str, bytes] = {}
        assert all(bodies.setdefault(one.id, one.body) == one.body for one in received)

        assert [len(other.receiver.received) for other in others] == tried
        # The subscription of the receiver that is gone has ended.
        later = [KILLS * EVENTS, 0, KILLS * EVENTS]
        for other, (sink, attempts, dead), more in zip(others, known, later, strict=True):
            assert other.get("/attempts") == attempts
            assert other.get("/dead") == dead
            assert other.get() == {**sink, "pending": sink["pending"] + more}
        for other, first, last in zip(others, (0, 0, 2), (None, EVENTS, None), strict=True):
            other.receiver.behavior = answer(200)
            before = len(other.receiver.received)
            other.post("/enable")
            expected = ids[first:last]
            assert other.ids(before + len(expected))[before:] == expected
            other.wait_until(pending=0, status="ACTIVE", failures=0)
