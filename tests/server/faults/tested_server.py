"""A server in a process of its own, which tests talk to, kill and start again."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Answer", "Client", "LiveServer", "Stream", "box", "subscription"]

_PROCESS = Path(__file__).with_name("server_process.py")
_ANSWER_S = 30
_START_S = 400  # the first start on a machine compiles kernels
_STOP_S = 60


class Answer(NamedTuple):
    """What a request led to."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def problem(self) -> dict[str, Any]:
        """Return the problem document, without what differs between equal requests."""
        assert self.headers["content-type"] == "application/problem+json", self
        document = self.json
        assert document["status"] == self.status
        assert document.pop("instance").removeprefix("urn:correlator:") in self.headers.values()
        assert document["code"]
        assert document["detail"]
        return dict(document)


class Client:
    """Sends requests with a key, each on a connection of its own."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url, self.key = url, key
        self.address = urlsplit(url).hostname or "", urlsplit(url).port or 0

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; a body that is no bytes is sent as JSON."""
        sent = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(*self.address, timeout=_ANSWER_S)
        try:
            connection.request(method, path, body, sent | dict(headers or {}))
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, names, answer.read())
        finally:
            connection.close()

    def publish(self, *messages: dict[str, Any], key: str | None = None) -> Any:
        """Publish messages, and return the answer, which has to be a success."""
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self.request("POST", "/v1/messages", list(messages), headers)
        assert answer.status == 200, answer
        assert answer.json["accepted"] == len(messages), answer
        return answer.json

    def put(self, id: str, definition: dict[str, Any]) -> Any:
        """Create or replace a subscription, and return it."""
        answer = self.request("PUT", f"/v1/subscriptions/{id}", definition)
        assert answer.status in (200, 201), answer
        return answer.json

    def events(self, subscriber: str, cursor: str = "earliest") -> list[dict[str, Any]]:
        """Return all events of a subscriber that are there, a gap among them."""
        found: list[dict[str, Any]] = []
        while True:
            path = f"/v1/events?poll=1&limit=1000&subscriber={subscriber}&cursor={cursor}"
            answer = self.patient(path)
            assert answer.status == 200, answer
            page = answer.json
            if "gap" in page:
                found.append({"gap": page["gap"]})
            if not page["events"]:
                return found
            found += page["events"]
            cursor = page["cursor"]

    def patient(self, path: str) -> Answer:
        """Return the answer to a GET, when what it reads is there again."""
        while True:
            answer = self.request("GET", path)
            if answer.status != 503 or b"computed again" not in answer.body:
                return answer
            time.sleep(0.05)

    def wait_for_events(self, subscriber: str, count: int) -> list[dict[str, Any]]:
        """Return the events of a subscriber when there are this many."""
        found: list[dict[str, Any]] = []
        cursor = "earliest"
        while len(found) < count:
            path = f"/v1/events?poll=1&waitS=30&subscriber={subscriber}&cursor={cursor}"
            page = self.request("GET", path).json
            assert page["events"], (len(found), count)
            found += page["events"]
            cursor = page["cursor"]
        return found


class Stream:
    """The events of a subscriber as they come, read by a thread of its own."""

    def __init__(self, client: Client, subscriber: str, cursor: str = "earliest") -> None:
        self.events: list[dict[str, Any]] = []
        self.gaps: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._connection = http.client.HTTPConnection(*client.address, timeout=_ANSWER_S)
        path = f"/v1/events?subscriber={subscriber}&cursor={cursor}"
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {client.key}"})
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        self._thread = threading.Thread(target=self._read, args=(answer,), daemon=True)
        self._thread.start()

    def _read(self, answer: http.client.HTTPResponse) -> None:
        name = ""
        with suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
            while line := answer.readline():
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    with self._changed:
                        (self.gaps if name == "gap" else self.events).append(json.loads(line[6:]))
                        self._changed.notify_all()

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """Return the events when there are this many."""
        with self._changed:
            done = self._changed.wait_for(lambda: len(self.events) >= count, _ANSWER_S)
        assert done, (len(self.events), count)
        return self.events

    def close(self) -> None:
        """Close the connection."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()


class LiveServer:
    """A server process and its folder.

    Parameters
    ----------
    folder
        Where it keeps its data.
    seams
        What `server_process` changes; without, the process is ``nearcast serve``.
    arguments
        More arguments for ``nearcast serve``.
    """

    def __init__(self, folder: Path, *arguments: str, **seams: Any) -> None:
        self.folder, self.arguments, self.seams = folder, arguments, seams
        self.key: str | None = None
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self.output: list[str] = []
        self._draining: threading.Thread | None = None

    def command(self) -> list[str]:
        """Return how the process is started."""
        program = [str(_PROCESS), json.dumps(self.seams)] if self.seams else ["-m", "nearcast.cli"]
        serve = ["serve", str(self.folder), "--port", "0", *self.arguments]
        return [sys.executable, *program, *serve]

    def launch(self) -> None:
        """Start the process, and do not wait until it listens."""
        assert self.process is None
        self.output = []
        self.process = subprocess.Popen(
            self.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def start(self) -> Client:
        """Start the process, and return when it listens."""
        self.launch()
        return self.wait_until_ready()

    def wait_until_ready(self) -> Client:
        """Return when the process listens."""
        assert self.process is not None
        assert self.process.stdout is not None
        timer = threading.Timer(_START_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                self.output.append(line)
                if made := re.match("Admin key, .*: (nc_.*)", line):
                    self.key = made[1]
                if listening := re.match("Nearcast is listening on (http://[^ ]*) ", line):
                    self.url = listening[1]
                    break
            else:
                code = self._end(self.process)
                raise AssertionError(f"it ended with {code}: {''.join(self.output)}")
        finally:
            timer.cancel()
        self._draining = threading.Thread(target=self._drain, args=(self.process.stdout,))
        self._draining.start()
        return self.client()

    def _drain(self, lines: IO[str]) -> None:
        self.output += lines

    def _end(self, process: subprocess.Popen[str]) -> int:
        """Return the exit code, when everything that the process said was read."""
        code = process.wait(_STOP_S)
        self.process = None
        if self._draining is not None:
            self._draining.join()
            self._draining = None
        assert process.stdout is not None
        process.stdout.close()
        return code

    def client(self, key: str | None = None) -> Client:
        """Return a client, with the admin key unless another is given."""
        return Client(self.url, key or self.key)

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self._end(self.process)

    def stop(self) -> None:
        """Stop the process, and let it finish."""
        assert self.process is not None
        self.process.terminate()
        code = self._end(self.process)
        assert code in (0, -15), self.output

    def wait(self) -> int:
        """Return the exit code when the process has ended by itself."""
        assert self.process is not None
        return self._end(self.process)

    def fails_to_start(self) -> tuple[int, str]:
        """Start the process, which has to end by itself; return its exit code and what it said."""
        done = subprocess.run(
            self.command(), capture_output=True, text=True, timeout=_START_S, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def make_key(self, tenant: str, *roles: str) -> str:
        """Return a key of a tenant, made while the server is not running."""
        assert self.process is None
        command = [sys.executable, "-m", "nearcast.cli", "keys", "create", str(self.folder)]
        for role in roles or ("publish", "subscribe"):
            command += ["--role", role]
        done = subprocess.run(
            [*command, "--tenant", tenant], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def resident_bytes(self) -> int:
        """Return the memory that the process has."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def box(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    """Return a region."""
    return {"areaType": "BOX", "west": west, "south": south, "east": east, "north": north}


def subscription(
    subscriber: str, keywords: list[str], region: dict[str, Any], *types: str, **config: Any
) -> dict[str, Any]:
    """Return the resource of a subscription; it wants matches unless types are given."""
    detail = {"subscriber": subscriber, "keywords": keywords, "region": region}
    return {
        "types": [f"org.nearcast.{name}" for name in types or ("match",)],
        "config": {"subscriptionDetail": detail, **config},
    }
