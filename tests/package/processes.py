"""Processes that run until Ctrl-C, and the API of the server that such a process is."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import urllib.request
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .environments import user_variables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse
    from pathlib import Path

    from .environments import Environment

__all__ = ["Api", "Process", "check_delivery", "serving"]

WAIT_S = 600
REQUEST_S = 120
BERLIN = {"areaType": "CIRCLE", "center": {"latitude": 52.5, "longitude": 13.4}, "radius": 2000}

# A proxy for the internet is no way to this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Process:
    """A process in a group of its own, as a terminal starts it; its lines are read as they come.

    Parameters
    ----------
    command
        The command and its arguments.
    folder
        Where it runs.
    """

    def __init__(self, *command: str | Path, folder: Path) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env=user_variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._coming: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._is_over = False
        self.lines: list[str] = []

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._coming.put(line)
        self._coming.put(None)

    def _next_line(self) -> str | None:
        """Wait for the next line; return None at the end."""
        line = None if self._is_over else self._coming.get(timeout=WAIT_S)
        self._is_over = line is None
        self.lines += [] if line is None else [line]
        return line

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match of a pattern in a line that is still to come."""
        while (line := self._next_line()) is not None:
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it ended without {pattern}:\n{''.join(self.lines)}")

    def ended(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and all that it printed."""
        while self._next_line() is not None:
            pass
        return self._process.wait(WAIT_S), "".join(self.lines)

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C; return the exit code and what it still printed."""
        before = len(self.lines)
        os.killpg(self._process.pid, signal.SIGINT)
        code, _ = self.ended()
        return code, "".join(self.lines[before:])

    def is_gone(self) -> bool:
        """Return whether nothing is left of it, nor of what it has started."""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def kill(self) -> None:
        """End whatever is left of it."""
        if not self.is_gone():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)


class Api(NamedTuple):
    """Plain HTTP requests to a server, with a key."""

    url: str
    key: str = ""

    def open(self, path: str, body: object = None) -> HTTPResponse:
        """Send a request, a POST if it has a body, and return the answer."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        data = None if body is None else json.dumps(body).encode()
        headers |= {"Content-Type": "application/json"} if data else {}
        request = urllib.request.Request(self.url + path, data, headers)
        answer: HTTPResponse = _opener.open(request, timeout=REQUEST_S)
        return answer

    def json(self, path: str, body: object = None) -> Any:
        """Send a request, and return the JSON of the answer."""
        with self.open(path, body) as answer:
            return json.load(answer)


class Server(NamedTuple):
    """A process that is a server, its API, and its folder."""

    process: Process
    api: Api
    folder: Path


@contextmanager
def serving(environment: Environment, folder: Path, *options: str) -> Iterator[Server]:
    """Run ``nearcast serve`` on a free port until the end of the block."""
    words = ("serve", "data", "--port", "0", *options)
    process = Process(environment.command, *words, folder=folder)
    try:
        key = process.wait_for(r"Admin key, shown only this once: (nc_\S+)")[1]
        url = process.wait_for(r"listening on (http://\S+) with its data in data\.")[1]
        process.wait_for("^(Sign in with a browser|The demo: open) ")
        yield Server(process, Api(url, key), folder / "data")
    finally:
        process.kill()


def check_delivery(api: Api) -> None:
    """Subscribe, listen, publish, and receive what was published as a server-sent event."""
    detail = {"subscriber": "ann", "expression": "coffee NOT decaf", "region": BERLIN}
    made = api.json("/v1/subscriptions", {"config": {"subscriptionDetail": detail}})
    with closing(api.open("/v1/events?subscriber=ann&cursor=earliest")) as stream:
        message = {"text": "Fresh coffee", "lon": 13.4, "lat": 52.51}
        assert api.json("/v1/messages", message)["accepted"] == 1
        event = _first_event(stream, "match")
    assert event["data"]["message"]["text"] == "Fresh coffee"
    assert [match["subscriptionId"] for match in event["data"]["matches"]] == [made["id"]]


def _first_event(stream: HTTPResponse, kind: str) -> Any:
    """Return the data of the first event of a kind."""
    current = ""
    for line in stream:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            current = value
        elif name == "data" and current == kind:
            return json.loads(value)
    raise AssertionError("the stream has ended")
