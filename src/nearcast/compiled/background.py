"""A child process that compiles kernels into the cache while plain Python answers.

There is one for all processes that share a cache: whoever has the lock ``background.lock`` has the
child, and the others look into the cache again after a second. It runs at the lowest priority,
prints nothing, ends after a few seconds without work, and dies with its parent: its standard input
ends then.

It is told a kernel and the types of its arguments, as a pickle on standard input. After each it
writes a line. It saves what it compiles, so there is nothing to send back.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO, TYPE_CHECKING, Any

from nearcast.compiled.cache import lasting_folder
from nearcast.locks import LOCKS, lock_file

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Waiting", "compile_kernel", "serve"]

IDLE_S = 5.0
"""How long the child waits for more work."""

LOOK_AGAIN_S = 1.0
"""How long until a process looks again into a cache that another process's child fills."""

_PROGRAM = (
    "from nearcast.compiled import background, deferred; deferred.load_numba(); background.serve()"
)
_LENGTH = struct.Struct("<Q")


class Waiting:
    """A kernel that is being compiled: by this process's child (``here``), or by another's."""

    def __init__(self, here: bool) -> None:
        self.here = here
        self.done = False
        self._until = time.monotonic() + LOOK_AGAIN_S

    def __call__(self) -> bool:
        """Whether to wait longer."""
        return not self.done and (self.here or time.monotonic() < self._until)


class _Child:
    """The child of this process, from its first kernel until it has been idle for a while."""

    def __init__(self, lock: IO[bytes]) -> None:
        self._lock = lock
        self._requests: deque[Waiting] = deque()
        self._alive = True
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._listener = threading.Thread(
            target=self._listen, name="nearcast-compiling", daemon=True
        )
        self._listener.start()

    def send(self, request: bytes) -> Waiting | None:
        """Ask for a kernel; None if the child has ended."""
        waiting = Waiting(here=True)
        self._requests.append(waiting)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(_LENGTH.pack(len(request)) + request)
            self._process.stdin.flush()
        except (OSError, ValueError):
            self._alive = False
        return waiting if self._alive else None

    def _listen(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            self._requests.popleft().done = True
        self._alive = False
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._lock):
            with contextlib.suppress(OSError):
                file.close()
        while self._requests:  # what it has not compiled is compiled here
            self._requests.popleft().done = True

    def end(self) -> None:
        """End the child, and let another process have one."""
        self._process.kill()
        self._listener.join(timeout=1.0)


_starting = threading.Lock()
_child: _Child | None = None


def compile_kernel(function: Callable[..., Any], signature: tuple[Any, ...]) -> Waiting | None:
    """Let a child process compile a kernel into the cache; None if there can be no child."""
    global _child
    try:
        request = pickle.dumps((function.__module__, function.__name__, signature))
    except Exception:  # types of one's own that no other process knows
        return None
    with _starting:
        if _child is not None and (waiting := _child.send(request)) is not None:
            return waiting
        if not LOCKS or not sys.executable:
            return None
        try:
            lock = open(lasting_folder("kernels") / "background.lock", "ab")
            if not lock_file(lock):
                lock.close()
                return Waiting(here=False)
            _child = _Child(lock)
        except OSError:  # no cache that lasts, no locks, or no processes
            return None
        return _child.send(request)


def _forget() -> None:
    """Leave the child to the parent of a forked process."""
    global _child, _starting
    _child, _starting = None, threading.Lock()


def _end() -> None:
    if _child is not None:
        _child.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
atexit.register(_end)


def serve() -> None:
    """Compile what standard input asks for, as the child; never return if that ends."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(19)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever a kernel's module prints
    with contextlib.suppress(queue.Empty):
        while True:
            request = requests.get(timeout=IDLE_S)
            with contextlib.suppress(Exception):  # then the parent compiles it, and shows the error
                module, name, signature = pickle.loads(request)
                getattr(importlib.import_module(module), name).compile(signature)
            os.write(out, b"\n")
    os._exit(0)


def _read(stream: IO[bytes], requests: queue.SimpleQueue[bytes]) -> None:
    while len(header := stream.read(_LENGTH.size)) == _LENGTH.size:
        requests.put(stream.read(_LENGTH.unpack(header)[0]))
    os._exit(0)
