"""Runs the server that is attacked, and a process that watches it."""

from __future__ import annotations

import multiprocessing
import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from attack.judging import KEPT_MB, Measured
from attack.sending import JSON, Attack, Effort, Tally
from crafted_tables import stream_of
from tested_server import Client, LiveServer, box, subscription

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["Target", "Watcher", "measure"]

_EVERY_S = 0.02
_SETTLE_S = 10.0
_ANSWER_S = 60.0
_WARM = 200
_ASK = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class Target:
    """A server that is attacked, and clients of it.

    Attributes
    ----------
    admin, publisher, limited
        An administrator, a tenant with all roles, and one that may send two requests a second.
    """

    def __init__(self, folder: Path, attack: Attack | None = None) -> None:
        arguments, seams = (attack.arguments, attack.seams) if attack else ((), {})
        self.live = LiveServer(folder, *arguments, **seams)
        self.admin = self.live.start()
        self.publisher = self.tenant("publisher")
        self.limited = self.tenant("limited", requestsPerS=2)
        self._warm_up()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.admin.address

    def tenant(self, name: str, **limits: float) -> Client:
        """Return a client of a new tenant that has all roles."""
        made = self.admin.request("POST", "/v1/tenants", {"name": name})
        assert made.status in (201, 409), made
        set_ = self.admin.request("PUT", f"/v1/tenants/{name}/limits", limits)
        assert set_.status == 200, set_
        roles = ["publish", "subscribe", "admin"]
        key = self.admin.request("POST", "/v1/keys", {"roles": roles, "tenant": name}).json["key"]
        return self.live.client(key)

    def wait_until_matched(self) -> None:
        """Return when everything that was published has been matched."""
        give_up_s = time.monotonic() + _ANSWER_S
        while time.monotonic() < give_up_s:
            text = self.admin.request("GET", "/metrics").body.decode()
            seqs = re.findall(r"^nearcast_(?:matched|log_last)_seq (.*)$", text, re.MULTILINE)
            if len(set(seqs)) == 1:
                return
            time.sleep(0.1)
        raise AssertionError("what was published was not matched")

    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        process = self.live.process
        return process is None or process.poll() is not None

    def resident_mb(self) -> float:
        """Return the memory that it has."""
        return 0.0 if self.has_ended() else self.live.resident_bytes() / (1 << 20)

    def _warm_up(self) -> None:
        """Use what is loaded when it is used first: its memory is no attack's.

        A server that has worked also keeps its last messages, and room to match large groups.
        """
        client = self.publisher
        client.put("warm", subscription("warm", ["tea"], box(0, 0, 1, 1)))
        message = {"text": "tea", "lon": 0.5, "lat": 0.5}
        body = stream_of(pa.table({name: [value] * _WARM for name, value in message.items()}))
        arrow = {"Content-Type": "application/vnd.apache.arrow.stream"}
        assert client.request("POST", "/v1/messages", body, arrow).status == 200
        client.publish(*[message] * _WARM)
        client.wait_for_events("warm", _WARM)
        large = [{**message, "text": "milk and sugar " * 1_500}] * 200
        for _ in range(4):
            client.publish(*large)
        self.wait_until_matched()
        preview = {"subscription": subscription("warm", ["tea"], box(0, 0, 1, 1))}
        assert client.request("POST", "/v1/preview", preview, JSON).status == 200
        assert client.request("GET", "/openapi.json").status == 200

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.live.kill()


class Seen(NamedTuple):
    """What a watcher saw: the slowest answer, the most memory, and answers that did not come.

    ``own_ms`` is the slowest one without the time in which threads of the server, or the watcher,
    could have run and the machine had no processor for them.
    """

    health_ms: float
    own_ms: float
    most_mb: float
    asked: int
    missing: int


class Watcher:
    """A process that asks ``/healthz`` and notes the memory until the end of the block.

    It is no thread: that would wait for the attack's own Python.
    """

    def __init__(self, address: tuple[str, int], pid: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_watch, args=(address, pid, theirs), daemon=True)
        self._process.start()
        self._ours.recv()

    def stop(self) -> Seen:
        """Return what was seen."""
        self._ours.send(None)
        seen: Seen = self._ours.recv()
        self._process.join()
        self._ours.close()
        return seen


def _watch(address: tuple[str, int], pid: int, pipe: Connection) -> None:
    worst, own, most, asked, missing = 0.0, 0.0, 0.0, 0, 0
    pipe.send(None)
    while not pipe.poll(_EVERY_S):
        waits, begin = _waits(pid), time.perf_counter()
        missing += not _answers(address)
        took = time.perf_counter() - begin
        worst, own = max(worst, took), max(own, took - _waited_s(waits, _waits(pid), pid))
        asked += 1
        most = max(most, _resident_mb(pid))
    pipe.send(Seen(worst * 1e3, own * 1e3, most, asked, missing))


def _answers(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=_ANSWER_S) as connection:
            connection.sendall(_ASK)
            return connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def _waits(pid: int) -> dict[str, int]:
    """Return how many ns each thread of the server, and the watcher, waited for a processor."""
    found = {}
    for path in [Path("/proc/self/schedstat"), *Path(f"/proc/{pid}/task").glob("*/schedstat")]:
        with suppress(OSError, IndexError, ValueError):  # a thread that has ended, or no Linux
            found[path.parent.name] = int(path.read_text().split()[1])
    return found


def _waited_s(before: dict[str, int], after: dict[str, int], pid: int) -> float:
    """Return for how long an answer waited for processors.

    That are the waits of the watcher and of the thread of the event loop, one after the other, and
    the longest one of another thread, which may have held the lock of the interpreter.
    """
    more = {name: ns - before.get(name, ns) for name, ns in after.items()}
    one_by_one = more.pop("self", 0) + more.pop(str(pid), 0)
    return (one_by_one + max(more.values(), default=0)) / 1e9


def _resident_mb(pid: int) -> float:
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def measure(attack: Attack, target: Target, effort: Effort) -> Measured:
    """Run an attack, and return what it did."""
    process = target.live.process
    assert process is not None
    tally, before = Tally(), target.resident_mb()
    watcher = Watcher(target.address, process.pid)
    try:
        attack.run(target, effort, tally)
    finally:
        seen = watcher.stop()
    wrong = list(tally.wrong)
    if seen.missing and not target.has_ended():
        wrong.append(f"{seen.missing} of {seen.asked} requests to /healthz were not answered")
    return Measured(
        tally.requests,
        dict(tally.statuses),
        seen.health_ms,
        max(seen.own_ms, 0.0),
        before,
        max(seen.most_mb, before),
        _settled_mb(target, before + KEPT_MB),
        target.has_ended(),
        tuple(tally.notes),
        tuple(wrong),
    )


def _settled_mb(target: Target, enough_mb: float) -> float:
    """Return the memory of a server that had some seconds to give it back."""
    give_up_s = time.monotonic() + _SETTLE_S
    while (now := target.resident_mb()) > enough_mb and time.monotonic() < give_up_s:
        time.sleep(0.5)
    return now
