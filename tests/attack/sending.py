"""Sends what no client would send, and counts what comes back."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tested_server import Answer, Client, subscription

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator

    from attack.measuring import Target

__all__ = [
    "JSON",
    "Attack",
    "Effort",
    "Tally",
    "at_once",
    "exchange",
    "head",
    "repeated_up_to",
    "resource",
    "statuses_of",
    "timed",
]

T = TypeVar("T")

JSON = {"Content-Type": "application/json"}
_WAIT_S = 30.0
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)


class Tally:
    """Counts requests and answers, from any thread, and keeps what is worth telling."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self.requests = 0
        self.statuses: Counter[int] = Counter()
        self.notes: list[str] = []
        self.wrong: list[str] = []

    def count(self, statuses: Iterable[int], requests: int = 1) -> None:
        """Count requests, and the statuses of their answers."""
        with self._counting:
            self.requests += requests
            self.statuses.update(statuses)

    def ask(self, client: Client, method: str, path: str, *given: Any) -> Answer | None:
        """Send a request, count it and return the answer; None if the connection was closed."""
        try:
            answer = client.request(method, path, *given)
        except OSError:
            self.count(())
            return None
        self.count([answer.status])
        return answer

    def note_worst(self, what: str, seconds: Iterable[float]) -> None:
        """Note the longest of some times."""
        times = sorted(seconds)
        median, worst = times[len(times) // 2] * 1e3, times[-1] * 1e3
        self.notes.append(f"{what}: {worst:.0f} ms at worst, {median:.0f} ms mostly")


@dataclass(frozen=True)
class Effort:
    """How much is sent."""

    long: bool
    chance: random.Random

    def repeated(self, short: int, long: int) -> int:
        """Return how often to do something."""
        return long if self.long else short


@dataclass(frozen=True)
class Attack:
    """An attack, and the server that it needs.

    Parameters
    ----------
    name, what
        How it is called, and what it does.
    run
        Sends the requests and counts them.
    arguments, seams
        What the server gets (see `LiveServer`). One with either is started for this attack.
    alone
        Whether the server must not be used by others afterwards.
    """

    name: str
    what: str
    run: Callable[[Target, Effort, Tally], None]
    arguments: tuple[str, ...] = ()
    seams: dict[str, Any] = field(default_factory=dict)
    alone: bool = False

    @property
    def has_own_server(self) -> bool:
        """Whether a server is started for this attack."""
        return bool(self.alone or self.arguments or self.seams)


def head(method: str, path: str, *headers: str, key: str | None = None) -> bytes:
    """Return the header of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    lines += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([*lines, "", ""]).encode()


def repeated_up_to(piece: bytes, size: int, first: bytes = b"") -> Iterator[bytes]:
    """Return pieces of about a megabyte that together have a size."""
    yield first
    block = piece * max(1, (1 << 20) // len(piece))
    for _ in range(-(-size // len(block))):
        yield block


def exchange(
    address: tuple[str, int], pieces: Iterable[bytes], wait_s: float = _WAIT_S, end: bool = False
) -> bytes:
    """Send bytes until the server closes the connection; return what it says until then.

    Parameters
    ----------
    address
        Where the server is.
    pieces
        What is sent.
    wait_s
        How long the server may say nothing.
    end
        Whether the server is told that nothing more comes.
    """
    received = b""
    with socket.create_connection(address, timeout=wait_s) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            if end:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was refused meanwhile
        try:
            while more := connection.recv(1 << 16):
                received += more
                if not end and _is_whole(received):
                    break
        except OSError:
            pass
    return received


def _is_whole(answer: bytes) -> bool:
    """Return whether the first answer is there, as far as its length is known."""
    start, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", start, re.IGNORECASE)
    return length is not None and len(body) >= int(length[1])


def statuses_of(answer: bytes) -> list[int]:
    """Return the statuses of all answers on a connection."""
    return [int(status) for status in _STATUS.findall(answer)]


def at_once(work: Callable[[T], object], items: Iterable[T], threads: int) -> None:
    """Do something with all items, some of them at once."""
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()


def resource(**detail: Any) -> dict[str, Any]:
    """Return a subscription, of which some details are given."""
    region = {"areaType": "BOX", "west": 0, "south": 0, "east": 1, "north": 1}
    made = subscription("attacked", ["tea"], region)
    made["config"]["subscriptionDetail"] |= detail
    if "expression" in detail:
        del made["config"]["subscriptionDetail"]["keywords"]
    return made


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds something takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
