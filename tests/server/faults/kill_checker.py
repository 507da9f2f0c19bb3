"""Uses a server that is killed again and again, and checks that it keeps every promise.

A process of its own, which knows only what the server acknowledged and what its streams received::

    kill_checker.py URL_FILE KEY SEED

``URL_FILE`` has the address of the server, which changes with every start. A line on standard input
tells what to do: ``finish`` ends the load and checks everything; ``compare`` reads all streams once
more and compares them with the first time, byte by byte. The answer is one line, or a traceback.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")
WORDS = ["red", "green", "blue", "amber"]
END, NOBODY = "sentinel", "unpublished"
SUBSCRIBERS = ["ann", "bob", "cleo"]
PUBLISHERS, CHANGERS, STREAMS, IDS = 3, 2, 2, 6
RETRY_S = 0.05
PATIENCE_S = 120


class Event(NamedTuple):
    """An event as a stream had it."""

    id: str
    type: str
    data: bytes

    @property
    def position(self) -> tuple[int, int]:
        """Its place in the order of all events of a subscriber."""
        seq, _, k = self.id.partition("-")[2].partition(".")
        return int(seq), int(k or 0)


class Definition(NamedTuple):
    """A subscription, as simple as an oracle needs it."""

    subscriber: str
    words: tuple[str, ...]
    west: int
    south: int
    east: int
    north: int

    def resource(self) -> dict[str, Any]:
        """Return what is sent."""
        _, _, west, south, east, north = self
        detail = {"subscriber": self.subscriber, "keywords": list(self.words)}
        return {
            "types": ["org.nearcast.match", "org.nearcast.subscription-ended"],
            "config": {"subscriptionDetail": {**detail, "region": area(west, south, east, north)}},
        }

    def matches(self, message: dict[str, Any]) -> bool:
        """Return whether a message is what the subscription is about."""
        return (
            self.west <= message["lon"] <= self.east
            and self.south <= message["lat"] <= self.north
            and set(self.words) <= set(message["text"].split())
        )


class Changed(NamedTuple):
    """What became of a subscription, from a record of the log on; None if it was deleted."""

    seq: int
    definition: Definition | None


def area(west: int, south: int, east: int, north: int) -> dict[str, Any]:
    """Return a region."""
    return {"areaType": "BOX", "west": west, "south": south, "east": east, "north": north}


class Checker:
    """What was acknowledged and received."""

    def __init__(self, url_file: Path, key: str, rng: random.Random) -> None:
        self.url_file, self.rng = url_file, rng
        self.headers = {"Authorization": f"Bearer {key}"}
        self.finishing = False
        self.answers: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {}
        self.messages: dict[int, tuple[str, dict[str, Any]]] = {}
        self.history: dict[str, list[Changed]] = {}
        self.deletions: list[tuple[str, Definition, int]] = []
        self.streams: dict[tuple[str, int], list[Event]] = {}
        self.last = (0, 0)
        self.retries = self.resumptions = self.resolved = 0
        self.arrived = asyncio.Condition()

    # --- requests that survive a server which is killed ------------------------------------------

    async def once(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any] | None:
        """Send a request; None if nobody knows what became of it."""
        try:
            url = self.url_file.read_text() + path
            async with self.session.request(method, url, json=body, headers=headers) as answer:
                content = await answer.read()
                if answer.status == 503:
                    return None
                return answer.status, json.loads(content) if content else None
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return None

    async def request(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any]:
        """Send a request that may be repeated until it is answered."""
        while (answer := await self.once(method, path, body, **headers)) is None:
            self.retries += 1
            await asyncio.sleep(RETRY_S)
        return answer

    # --- publishers ------------------------------------------------------------------------------

    async def publish(self, name: str) -> None:
        """Publish until the end; every request is repeated with its key until it is answered."""
        number = 0
        while not self.finishing:
            messages = [self.message(f"{name}-{number}-{i}") for i in range(self.rng.randint(1, 5))]
            await self.publish_once(f"{name}-{number}", messages)
            if self.rng.random() < 0.2:
                key = self.rng.choice([*self.answers])
                await self.publish_again(key)
            number += 1

    def message(self, id: str) -> dict[str, Any]:
        """Return a message, never on the border of a region."""
        text = " ".join(self.rng.sample(WORDS, self.rng.randint(1, 3)))
        lon, lat = self.rng.randrange(8) + 0.5, self.rng.randrange(8) + 0.5
        return {"id": id, "text": text, "lon": lon, "lat": lat}

    async def publish_once(self, key: str, messages: list[dict[str, Any]]) -> int:
        """Publish, and return the number of the first message."""
        status, answer = await self.request(
            "POST", "/v1/messages", messages, **{"Idempotency-Key": key}
        )
        assert status == 200, (status, answer)
        assert answer["accepted"] == len(messages) == answer["lastSeq"] - answer["firstSeq"] + 1
        self.answers[key] = messages, answer
        epoch = answer["firstId"].partition("-")[0]
        for seq, message in enumerate(messages, answer["firstSeq"]):
            assert seq not in self.messages, "two messages have the same number"
            self.messages[seq] = epoch, message
        return int(answer["firstSeq"])

    async def publish_again(self, key: str) -> None:
        """Repeat a request that was answered: the answer is the same."""
        messages, before = self.answers[key]
        status, answer = await self.request(
            "POST", "/v1/messages", messages, **{"Idempotency-Key": key}
        )
        assert (status, answer) == (200, before)

    # --- subscriptions ---------------------------------------------------------------------------

    async def change(self, name: str) -> None:
        """Create, replace, move and delete subscriptions of its own until the end."""
        while not self.finishing:
            id = f"{name}-{self.rng.randrange(IDS)}"
            history = self.history.setdefault(id, [])
            current = history[-1].definition if history else None
            action = self.rng.random()
            if current is None or action < 0.4:
                await self.put(id, self.definition())
            elif action < 0.7:
                await self.move(f"{name}-moving")
            else:
                await self.delete(id, current)

    def definition(self) -> Definition:
        """Return a subscription."""
        words = tuple(sorted(self.rng.sample(WORDS, self.rng.randint(1, 2))))
        return Definition(self.rng.choice(SUBSCRIBERS), words, *self.region())

    def region(self) -> tuple[int, int, int, int]:
        """Return a box on whole degrees."""
        west, south = self.rng.randrange(7), self.rng.randrange(7)
        return west, south, self.rng.randint(west + 1, 8), self.rng.randint(south + 1, 8)

    def known(self, id: str) -> int:
        """Return the number of the last change of a subscription that is known."""
        history = self.history.get(id, [])
        return history[-1].seq if history else 0

    async def put(self, id: str, definition: Definition) -> None:
        """Create or replace a subscription."""
        path = f"/v1/subscriptions/{id}"
        answer = await self.once("PUT", path, definition.resource())
        if answer is None:
            answer = await self.request("GET", path)  # did it happen?
            self.resolved += 1
            if answer[0] == 404 or answer[1]["version"] == self.known(id):
                return
        status, resource = answer
        assert status in (200, 201), answer
        detail = resource["config"]["subscriptionDetail"]
        assert detail == definition.resource()["config"]["subscriptionDetail"]
        assert resource["version"] > self.known(id)
        self.history[id].append(Changed(resource["version"], definition))

    async def move(self, id: str) -> None:
        """Move a subscription that matches nothing: no answer tells when exactly it moved."""
        history = self.history.setdefault(id, [])
        if not history:
            await self.put(id, Definition(SUBSCRIBERS[0], (NOBODY,), *self.region()))
            return
        seq, before = history[-1]
        assert before is not None
        moved = Definition(before.subscriber, before.words, *self.region())
        body = {"subscriptionId": id, "region": area(*moved[2:])}
        answer = await self.once("POST", "/v1/moves", body)
        if answer is None:
            self.resolved += 1
            _, resource = await self.request("GET", f"/v1/subscriptions/{id}")
            if resource["config"]["subscriptionDetail"]["region"] != body["region"]:
                return
        assert answer is None or answer[1]["moved"] == 1, answer
        history[-1] = Changed(seq, moved)

    async def delete(self, id: str, current: Definition) -> None:
        """Delete a subscription; when exactly, its last event will tell."""
        path = f"/v1/subscriptions/{id}"
        answer = await self.once("DELETE", path)
        if answer is None:
            self.resolved += 1
            answer = await self.request("GET", path)
            if answer[0] == 200:
                return
            assert answer[0] == 404, answer
        else:
            assert answer[0] == 204, answer
        self.deletions.append((id, current, self.known(id)))
        self.history[id].append(Changed(0, None))

    # --- streams ---------------------------------------------------------------------------------

    async def listen(self, subscriber: str, number: int) -> None:
        """Receive events until the end, resuming after the last id."""
        received = self.streams.setdefault((subscriber, number), [])
        last = ""
        while True:
            try:
                last = await self.receive(subscriber, received, last)
            except (aiohttp.ClientError, TimeoutError, ConnectionError):
                await asyncio.sleep(RETRY_S)
            self.resumptions += 1

    async def receive(self, subscriber: str, received: list[Event], last: str) -> str:
        """Receive events after an id until the connection ends; return the last id."""
        url = f"{self.url_file.read_text()}/v1/events?subscriber={subscriber}&cursor=earliest"
        headers = {"Last-Event-ID": last} if last else {}
        limit = self.rng.randrange(5, 200)  # clients leave, too
        try:
            async with self.session.get(url, headers=headers) as answer:
                if answer.status != 200:
                    assert answer.status == 503, await answer.text()
                    return last
                frame: dict[bytes, bytes] = {}
                async for line in answer.content:
                    name, _, value = line.rstrip(b"\n").partition(b": ")
                    if name:
                        frame[name] = value
                        continue
                    last = frame.get(b"id", last.encode()).decode()
                    if b"data" in frame:
                        await self.take(received, last, frame)
                        limit -= 1
                        if received[-1].position == self.last:
                            return last
                    frame = {}
                    if not limit:
                        break
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            await asyncio.sleep(RETRY_S)
        return last

    async def take(self, received: list[Event], id: str, frame: dict[bytes, bytes]) -> None:
        """Take note of an event, which has to be after all others."""
        event = Event(id, frame[b"event"].decode(), frame[b"data"])
        assert event.type != "gap", event
        assert json.loads(event.data)["id"] == id
        assert not received or received[-1].position < event.position, (received[-1], event)
        async with self.arrived:
            received.append(event)
            self.arrived.notify_all()

    # --- the end ---------------------------------------------------------------------------------

    async def end(self) -> None:
        """Publish something that everybody gets, and wait until everybody has it."""
        for subscriber in SUBSCRIBERS:
            definition = Definition(subscriber, (END,), -180, -90, 180, 90)
            self.history[f"end-{subscriber}"] = []
            await self.put(f"end-{subscriber}", definition)
            while not self.history[f"end-{subscriber}"]:
                await self.put(f"end-{subscriber}", definition)
        last = await self.publish_once("end", [{"id": "end", "text": END, "lon": 0, "lat": 0}])
        self.last = last, 0

        def complete() -> bool:
            return all(got and got[-1].position >= self.last for got in self.streams.values())

        async with self.arrived, asyncio.timeout(PATIENCE_S):
            await self.arrived.wait_for(complete)

    def date_deletions(self) -> None:
        """Find out from the last event of each deleted subscription when it was deleted."""
        ended: dict[str, list[int]] = {}
        for subscriber in SUBSCRIBERS:
            for event in self.streams[subscriber, 0]:
                if event.type == "subscription-ended":
                    data = json.loads(event.data)["data"]
                    assert data["terminationReason"] == "SUBSCRIPTION_DELETED"
                    ended.setdefault(data["subscriptionId"], []).append(event.position[0])
        deleted: dict[str, int] = {}
        for id, _, _ in self.deletions:
            deleted[id] = deleted.get(id, 0) + 1
        assert deleted == {id: len(seqs) for id, seqs in ended.items()}
        for id, seqs in ended.items():
            dates = iter(sorted(seqs))
            history = self.history[id]
            history[:] = [c if c.definition else Changed(next(dates), None) for c in history]
            assert history == sorted(history, key=lambda changed: changed.seq), id

    def expected(self, subscriber: str) -> list[tuple[int, str, Any]]:
        """Return what a subscriber has to get: by number, the type and what it is about."""
        found: list[tuple[int, str, Any]] = []
        seqs = {id: [changed.seq for changed in all] for id, all in self.history.items()}
        for seq, (_, message) in self.messages.items():
            ids = []
            for id, history in self.history.items():
                at = bisect_left(seqs[id], seq)
                now = history[at - 1].definition if at else None
                if now is not None and now.subscriber == subscriber and now.matches(message):
                    ids.append(id)
            if ids:
                found.append((seq, "match", (message, sorted(ids))))
        for id, history in self.history.items():
            for before, after in pairwise(history):
                if after.definition is None and before.definition is not None:
                    if before.definition.subscriber == subscriber:
                        found.append((after.seq, "subscription-ended", id))
        return sorted(found, key=lambda item: item[0])

    def check_streams(self) -> int:
        """Compare what streams received with what the acknowledged history implies."""
        total = 0
        everything = {subscriber: self.expected(subscriber) for subscriber in SUBSCRIBERS}
        for (subscriber, _), events in self.streams.items():
            received = []
            for event in events:
                data = json.loads(event.data)["data"]
                about: Any = data.get("subscriptionId")
                if event.type == "match":
                    about = data["message"], sorted(m["subscriptionId"] for m in data["matches"])
                    assert event.id == f"{self.messages[event.position[0]][0]}-{event.position[0]}"
                received.append((event.position[0], event.type, about))
            expected = everything[subscriber]
            assert received == expected, difference(received, expected)
            total += len(received)
        for subscriber in SUBSCRIBERS:
            first, *others = (self.streams[subscriber, number] for number in range(STREAMS))
            assert all(other == first for other in others)
        return total

    async def check_lists(self) -> None:
        """Compare lists of subscriptions and messages with what was acknowledged."""
        status, page = await self.request("GET", "/v1/subscriptions?limit=1000")
        assert status == 200
        found = {
            item["id"]: (item["version"], item["config"]["subscriptionDetail"])
            for item in page["subscriptions"]
        }
        last = {id: history[-1] for id, history in self.history.items() if history}
        assert found == {
            id: (changed.seq, changed.definition.resource()["config"]["subscriptionDetail"])
            for id, changed in last.items()
            if changed.definition is not None
        }
        listed: list[dict[str, Any]] = []
        after = "earliest"
        while True:
            _, page = await self.request("GET", f"/v1/messages?limit=1000&after={after}")
            if not page["messages"]:
                break
            listed += page["messages"]
            after = page["messages"][-1]["id"]
        known = [(f"{epoch}-{seq}", m) for seq, (epoch, m) in sorted(self.messages.items())]
        assert [(item["id"], item["message"]) for item in listed] == known
        for key in self.rng.sample([*self.answers], min(50, len(self.answers))):
            await self.publish_again(key)

    async def run(self) -> None:
        """Do what standard input says."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self.headers
        ) as self.session:
            working = [asyncio.create_task(self.publish(f"p{i}")) for i in range(PUBLISHERS)]
            working += [asyncio.create_task(self.change(f"c{i}")) for i in range(CHANGERS)]
            listening = [
                asyncio.create_task(self.listen(subscriber, number))
                for subscriber in SUBSCRIBERS
                for number in range(STREAMS)
            ]
            await self.command("finish", [*working, *listening])
            self.finishing = True
            await self.unless_failed(asyncio.gather(*working), listening)
            await self.unless_failed(self.end(), listening)
            self.date_deletions()
            total = self.check_streams()
            await self.check_lists()
            for task in listening:
                task.cancel()
            counts = f"{len(self.messages)} messages {total} events {self.resolved} resolved"
            say(f"checked {counts} {self.retries} retries {self.resumptions} resumptions")
            await self.command("compare", [])
            for subscriber in SUBSCRIBERS:
                again: list[Event] = []
                last = ""
                while not again or again[-1].position < self.last:
                    last = await self.receive(subscriber, again, last)
                assert again == self.streams[subscriber, 0]
            say("same")

    async def command(self, expected: str, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for a line of standard input; a task that fails fails everything."""
        line = await self.unless_failed(asyncio.to_thread(sys.stdin.readline), tasks)
        assert line == expected + "\n"

    async def unless_failed(self, work: Awaitable[T], tasks: list[asyncio.Task[None]]) -> T:
        """Return what a work returns, unless a task ends before it: they only end by failing."""
        main = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([main, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {main}:
            task.result()
        return await main


def say(line: str) -> None:
    """Answer a command."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def difference(received: list[Any], expected: list[Any]) -> str:
    """Return the first place in which two lists differ."""
    for at, (got, wanted) in enumerate(zip(received, expected, strict=False)):
        if got != wanted:
            return f"event {at}: got {got}, expected {wanted}"
    return f"{len(received)} events, expected {len(expected)}"


if __name__ == "__main__":
    asyncio.run(Checker(Path(sys.argv[1]), sys.argv[2], random.Random(int(sys.argv[3]))).run())
