"""A live server in a process of its own, which can be killed, and a subscriber who listens."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import httpx
import httpx_sse
import msgspec

if TYPE_CHECKING:
    from pathlib import Path

START_S = 60.0
WAIT_S = 120.0
_PROGRAM = "from nearcast.cli import main; main()"


class Received(NamedTuple):
    """An event: its id, the message, and the subscriptions."""

    id: str
    message: str
    subscriptions: tuple[str, ...]


class LiveServer:
    """Runs ``nearcast serve`` in a folder; its key stays the same when it is started again."""

    def __init__(self, folder: Path, matches: str) -> None:
        self._command = [
            *(sys.executable, "-c", _PROGRAM, "serve", str(folder)),
            *("--port", "0", "--matches", matches),
        ]
        self._log = folder.with_suffix(".log")
        self.key = ""

    def start(self) -> None:
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        url = None
        for line in self._process.stdout:
            self.key = self.key or "".join(re.findall(r"nc_\S+", line))
            if url := re.search(r"http://\S+", line):
                break
        assert url, f"the server ended:\n{self._log.read_text()}"
        self.client = httpx.Client(
            base_url=f"{url[0]}/v1", headers={"Authorization": f"Bearer {self.key}"}, timeout=60
        )

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.client.close()
        self._process.send_signal(how)
        self._process.wait(START_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.end(signal.SIGKILL)

    def call(self, method: str, path: str, **request: Any) -> Any:
        answer = self.client.request(method, path, **request)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def publish(self, messages: list[dict[str, Any]]) -> None:
        answer = self.call("POST", "/messages", json=messages)
        assert answer["accepted"] == len(messages), answer

    def put(self, id: str, detail: dict[str, Any]) -> None:
        body = {"protocol": "HTTP", "config": {"subscriptionDetail": detail}}
        self.call("PUT", f"/subscriptions/{id}", json=body)


class Listener:
    """Receives the matches of a subscriber by SSE, from ``cursor`` on, in a thread."""

    def __init__(self, server: LiveServer, subscriber: str, cursor: str = "earliest") -> None:
        self.cursor = cursor
        self.received: list[Received] = []
        self._subscriber = subscriber
        self._changed = threading.Condition()
        self.follow(server)

    def follow(self, server: LiveServer) -> None:
        """Connect to a server that was started again, and go on after the last event."""
        self._thread = threading.Thread(target=self._listen, args=(server,), daemon=True)
        self._thread.start()

    def _listen(self, server: LiveServer) -> None:
        headers = {"Authorization": f"Bearer {server.key}", "Last-Event-ID": self.cursor}
        url = f"{server.client.base_url}events"
        query = {"subscriber": self._subscriber}
        with (
            suppress(httpx.TransportError),  # the server ended
            httpx.Client(timeout=httpx.Timeout(10, read=None)) as client,
            httpx_sse.connect_sse(client, "GET", url, params=query, headers=headers) as stream,
        ):
            for event in stream.iter_sse():
                self._take(event)

    def _take(self, event: httpx_sse.ServerSentEvent) -> None:
        self.cursor = event.id or self.cursor
        assert event.event != "gap", event.data
        if event.event != "match":
            return
        data = msgspec.json.decode(event.data)["data"]
        ids = tuple(match["subscriptionId"] for match in data["matches"])
        with self._changed:
            self.received.append(Received(event.id, data["message"]["id"], ids))
            self._changed.notify_all()

    def wait(self, pairs: int) -> None:
        """Wait until matches have come."""
        with self._changed:
            enough = self._changed.wait_for(lambda: self.pairs >= pairs, WAIT_S)
        assert enough, f"{self._subscriber}: {self.pairs} of {pairs} matches came"

    @property
    def pairs(self) -> int:
        return sum(len(event.subscriptions) for event in self.received)

    def join(self) -> None:
        """Wait until the connection has ended."""
        self._thread.join(START_S)
        assert not self._thread.is_alive()
