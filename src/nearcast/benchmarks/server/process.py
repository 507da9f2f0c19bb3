"""A server as a process of its own, and what is watched while it runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from nearcast.errors import NearcastError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Sampler", "ServerProcess", "SyncProbe", "forget_pages"]

_LISTENING = re.compile(r"listening on (http://127\.0\.0\.1:(\d+))")
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)
_STOP_S = 300
_PROBE_BYTES = 4_096
_PROBE_S = 0.05


class ServerProcess:
    """A running ``nearcast serve``; use it in a ``with`` statement, which stops it.

    Attributes
    ----------
    port
        The port of 127.0.0.1 that it listens on.
    start_s
        How long it took from starting the process until it answered a request.
    """

    def __init__(self, folder: Path, key: str) -> None:
        began = time.monotonic()
        command = [sys.executable, "-m", "nearcast.cli", "serve", str(folder), "--port", "0"]
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.key = key
        self._watched = psutil.Process(self._process.pid)
        try:
            self._url, self.port = self._wait_until_it_listens()
            self.get("/v1/messages?after=now&limit=1")
        except BaseException:
            self.kill()
            raise
        self.start_s = time.monotonic() - began

    def get(self, path: str) -> bytes:
        """Return the body of the answer to a request."""
        request = Request(self._url + path, headers={"Authorization": f"Bearer {self.key}"})
        with build_opener(ProxyHandler({})).open(request, timeout=60) as answer:
            body: bytes = answer.read()
            return body

    def cpu_s(self) -> float:
        """Return how many seconds of CPU time it has used."""
        times = self._watched.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> tuple[int, int]:
        """Return how many bytes of memory it has, and how many of them are not pages of files.

        The engine and old events are mapped files: their pages come and go as the system likes.
        """
        rss = int(self._watched.memory_info().rss)
        status = Path(f"/proc/{self._watched.pid}/status")
        found = _ANONYMOUS.search(status.read_text()) if status.exists() else None
        return rss, rss if found is None else int(found[1]) * 1024

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def stop(self) -> None:
        """Stop it as Ctrl-C does, and wait for it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        self.kill()

    def _wait_until_it_listens(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = _LISTENING.search(line)
            if found:
                return found[1], int(found[2])
        raise NearcastError("the server did not start; run nearcast serve to see why")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Periodic:
    """Does something again and again in a thread, within a ``with`` statement."""

    def __init__(self, every_s: float, work: Callable[[], None]) -> None:
        self._every_s, self._work = every_s, work
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._done.wait(self._every_s):
            self._work()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()


class SyncProbe(_Periodic):
    """Writes 4 KiB and calls fdatasync, 20 times a second: what the disk alone costs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(_PROBE_S, self._sync)
        self.seconds: list[float] = []
        self._path = folder / "sync-probe"

    def __enter__(self) -> Self:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._sync()
        self.seconds.clear()  # the first one also allocates
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._sync()
        os.close(self._file)
        self._path.unlink()

    def _sync(self) -> None:
        began = time.monotonic()
        os.pwrite(self._file, b"x" * _PROBE_BYTES, 0)
        os.fdatasync(self._file)
        self.seconds.append(time.monotonic() - began)


class Sample(NamedTuple):
    """The memory of the server at a moment: all of it, and without pages of files."""

    at_s: float
    rss_bytes: int
    own_bytes: int


class Sampler(_Periodic):
    """Samples the memory of a server every second."""

    def __init__(self, server: ServerProcess, every_s: float = 1.0) -> None:
        super().__init__(every_s, self._sample)
        self._server = server
        self.samples: list[Sample] = []

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._sample()
        return super().__enter__()

    def _sample(self) -> None:
        self.samples.append(Sample(time.monotonic() - self._began, *self._server.memory()))


def forget_pages(folder: Path) -> None:
    """Let the operating system drop what it has cached of the files of a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
