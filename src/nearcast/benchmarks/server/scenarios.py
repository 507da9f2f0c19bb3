"""What is measured: publishing, streams, resuming, restarts and memory.

The server is a process of its own; load comes from others, over the loopback interface only. Every
scenario also counts: messages that were acknowledged and events that were received must agree, or
the benchmark ends with an error.
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from nearcast.benchmarks.compare import spread
from nearcast.benchmarks.server.data import (
    STREAMS_PER_TAG,
    prepare_folder,
    publish_missed,
    request_bodies,
    tag_of,
)
from nearcast.benchmarks.server.load import (
    Catching,
    CatchResult,
    Publishing,
    PublishResult,
    Streaming,
    StreamResult,
    catch_up,
    publish,
    stream,
)
from nearcast.benchmarks.server.process import Sampler, ServerProcess, SyncProbe, forget_pages
from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from nearcast.benchmarks.compare import Step
    from nearcast.benchmarks.server.data import Prepared

__all__ = ["SCENARIOS", "Sizes", "measure_server"]

SCENARIOS = ("publish", "streams", "restart", "memory", "missed")
"""The names of the scenarios, in the order in which they run."""

_LIBRARIES = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "msgspec", "pyarrow")
_PUBLISHERS = 16
_BATCH = 100
_STREAM_BATCH = 50
_LIMIT_MS = 100.0
_SYNCS = 10
_RETURNS = 20
_BYTES_PER_MISSED = 400
_READY_S = 300.0
_MORE_S = 300.0


@dataclass(frozen=True)
class Sizes:
    """How large a run is.

    Parameters
    ----------
    subscriptions
        Of the data set ``tweets``.
    connections
        The number of streams; each tag has four.
    messages_per_s
        How many messages are published while streams are connected.
    seconds, rounds
        How long publishing is measured, and how often.
    missed
        The number of messages that a subscriber has missed.
    minutes
        How long memory is measured.
    seed
        That of the data set.
    """

    subscriptions: int = 1_000_000
    connections: int = 1_000
    messages_per_s: int = 5_000
    seconds: float = 20.0
    rounds: int = 3
    missed: int = 18_000_000
    minutes: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.connections % STREAMS_PER_TAG or self.connections < STREAMS_PER_TAG:
            problem = f"must be a multiple of {STREAMS_PER_TAG}, the streams of a tag"
            raise InvalidInput("connections", self.connections, problem)

    @property
    def tags(self) -> int:
        """The number of tags."""
        return self.connections // STREAMS_PER_TAG


def measure_server(
    sizes: Sizes, folder: Path, scenarios: Sequence[str] = SCENARIOS, *, step: Step
) -> dict[str, Any]:
    """Run scenarios, and return what was measured.

    Parameters
    ----------
    sizes
        How large they are.
    folder
        A new folder for the server's data; it is removed at the end.
    scenarios
        Which of `SCENARIOS` to run.
    step
        Hears what is being done.

    Raises
    ------
    NearcastError
        When a message or an event was lost or came twice, or there is too little disk space.
    """
    for name in scenarios:
        if name not in SCENARIOS:
            raise UnknownName("scenario", name, SCENARIOS)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if "missed" in scenarios:
        _check_space(folder.parent, sizes.missed * _BYTES_PER_MISSED)
    _allow_files(4 * sizes.connections + 1_000)
    results: dict[str, Any] = {}
    began = time.monotonic()
    try:
        prepared = prepare_folder(folder, sizes.subscriptions, sizes.connections, sizes.seed, step)
        load_s = time.monotonic() - began
        for number, name in enumerate([name for name in SCENARIOS if name in scenarios]):
            step(name, number, len(scenarios))
            results[name] = _MEASURES[name](prepared, sizes, step)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "experiment": "server",
        **asdict(sizes),
        "load_s": load_s,
        "scenarios": results,
        "versions": {name: version(name) for name in _LIBRARIES},
        "machine": describe_machine(),
    }


# --- publish -------------------------------------------------------------------------------------


def _publish(prepared: Prepared, sizes: Sizes, step: Step) -> dict[str, Any]:
    """As many messages as the server takes; each is acknowledged when it is on disk."""
    rounds = []
    with ServerProcess(prepared.folder, prepared.key) as server:
        warm_up = min(2.0, sizes.seconds)
        _publish_round(server, sizes, warm_up)
        for number in range(sizes.rounds):
            step("publish", number, sizes.rounds)
            rounds.append(_publish_round(server, sizes, sizes.seconds))
    return {
        "publishers": _PUBLISHERS,
        "batch": _BATCH,
        "rounds": rounds,
        **{name: spread([one[name] for one in rounds]) for name in rounds[0] if name != "messages"},
    }


def _publish_round(server: ServerProcess, sizes: Sizes, seconds: float) -> dict[str, float]:
    bodies = request_bodies(_BATCH, 0, sizes.seed)
    job = Publishing(server.port, server.key, _PUBLISHERS, bodies, _BATCH, 0, seconds)
    cpu_s = server.cpu_s()
    with _generator(publish, job) as talk:
        began = time.monotonic()
        talk.send("go")
        result: PublishResult = talk.receive(seconds + _MORE_S)
        _check_published(result)
        _wait_until_matched(server, result.last_seq)
        matched_s = time.monotonic() - began
    return {
        "messages": result.messages,
        "messages_per_s": result.messages / result.seconds,
        "matched_per_s": result.messages / matched_s,
        "request_p50_ms": result.p50_ms,
        "request_p99_ms": result.p99_ms,
        "cpu_us_per_message": (server.cpu_s() - cpu_s) / result.messages * 1e6,
    }


def _check_published(result: PublishResult) -> None:
    if result.refused:
        raise NearcastError(f"the server refused {result.refused:,} requests")
    written = result.last_seq - result.first_seq + 1
    if written != result.messages:
        problem = f"{result.messages:,} messages were acknowledged, but {written:,} were written"
        raise NearcastError(problem)


def _wait_until_matched(server: ServerProcess, seq: int) -> None:
    """Wait until the events of a record can be read."""
    deadline = time.monotonic() + _MORE_S
    while time.monotonic() < deadline:
        listed = msgspec.json.decode(server.get("/v1/messages?after=now&limit=1"))["messages"]
        if not listed:  # `now` is after everything that was matched
            return
        time.sleep(0.01)
    raise NearcastError(f"record {seq} was not matched within {_MORE_S:.0f} s")


# --- streams -------------------------------------------------------------------------------------


def _streams(prepared: Prepared, sizes: Sizes, step: Step) -> dict[str, Any]:
    """Streams that receive events while messages are published, at full and at half load."""
    results = {}
    with ServerProcess(prepared.folder, prepared.key) as server:
        _stream_round(server, prepared, sizes, sizes.messages_per_s / 4, min(2.0, sizes.seconds))
        for number, (name, share) in enumerate({"full": 1.0, "half": 0.5}.items()):
            step(f"streams, {name} load", number, 2)
            rate = sizes.messages_per_s * share
            results[name] = _stream_round(server, prepared, sizes, rate, sizes.seconds)
    return {"connections": sizes.connections, "batch": _STREAM_BATCH, **results}


def _stream_round(
    server: ServerProcess, prepared: Prepared, sizes: Sizes, rate: float, seconds: float
) -> dict[str, Any]:
    streaming = Streaming(server.port, server.key, sizes.connections)
    publishing = Publishing(
        server.port,
        server.key,
        _PUBLISHERS,
        request_bodies(_STREAM_BATCH, sizes.tags, sizes.seed),
        _STREAM_BATCH,
        sizes.tags,
        seconds,
        rate,
    )
    with _generator(stream, streaming) as streams, _generator(publish, publishing) as publishers:
        with SyncProbe(prepared.folder) as probe:
            cpu_s, began = server.cpu_s(), time.monotonic()
            publishers.send("go")
            published: PublishResult = publishers.receive(seconds + _MORE_S)
            _check_published(published)
            used, took_s = server.cpu_s() - cpu_s, time.monotonic() - began
        expected = [published.by_tag[tag_of(number)] for number in range(sizes.connections)]
        streams.send(expected)
        received: StreamResult = streams.receive(_MORE_S)
    _check_received(received, expected)
    sync_p99_ms = float(np.quantile(probe.seconds, 0.99)) * 1e3
    return {
        "messages": published.messages,
        "messages_per_s": published.messages / published.seconds,
        "events": sum(received.received),
        "events_per_s": sum(received.received) / published.seconds,
        "server_cores": used / took_s,
        "receipt_p50_ms": received.p50_ms,
        "receipt_p99_ms": received.p99_ms,
        "request_p50_ms": published.p50_ms,
        "request_p99_ms": published.p99_ms,
        "late_batches": published.late,
        "sync_p50_ms": float(np.median(probe.seconds)) * 1e3,
        "sync_p99_ms": sync_p99_ms,
        "limit_ms": max(_LIMIT_MS, _SYNCS * sync_p99_ms),
    }


def _check_received(result: StreamResult, expected: Sequence[int]) -> None:
    if result.lost_connections:
        raise NearcastError(f"{result.lost_connections:,} streams did not stay open")
    wrong = sum(a != b for a, b in zip(result.received, expected, strict=True))
    if wrong or result.disordered:
        raise NearcastError(
            f"{wrong:,} streams received another number of events than were published for them "
            f"({sum(result.received):,} instead of {sum(expected):,} in all), and "
            f"{result.disordered:,} events came twice or too late"
        )


# --- restart, memory, missed ---------------------------------------------------------------------


def _restart(prepared: Prepared, sizes: Sizes, step: Step) -> dict[str, Any]:
    """Time from starting the process to the first answer, after a stop and after a kill."""
    stopped, killed = [], []
    for number in range(sizes.rounds):
        step("restart", number, sizes.rounds)
        with ServerProcess(prepared.folder, prepared.key) as server:
            stopped.append(server.start_s)
            _publish_round(server, sizes, min(2.0, sizes.seconds))
            server.kill()
        with ServerProcess(prepared.folder, prepared.key) as server:
            killed.append(server.start_s)
    return {"after_stop_s": spread(stopped), "after_kill_s": spread(killed)}


def _memory(prepared: Prepared, sizes: Sizes, step: Step) -> dict[str, Any]:
    """Sample the memory of the server over a longer time at full load."""
    del step
    rate, seconds = sizes.messages_per_s, sizes.minutes * 60
    with ServerProcess(prepared.folder, prepared.key) as server:
        every_s = min(1.0, seconds / 10)
        with Sampler(server, every_s) as sampler:
            load = _stream_round(server, prepared, sizes, rate, seconds)
    at_s = np.array([sample.at_s for sample in sampler.samples])
    rss = np.array([sample.rss_bytes for sample in sampler.samples], np.float64)
    own = np.array([sample.own_bytes for sample in sampler.samples], np.float64)
    part_s = min(60.0, seconds / 3)
    first, last, late = at_s <= part_s, at_s >= at_s[-1] - part_s, at_s >= at_s[-1] / 2
    return {
        "minutes": sizes.minutes,
        "load": load,
        "first_bytes": float(np.median(rss[first])),
        "last_bytes": float(np.median(rss[last])),
        "most_bytes": float(rss.max()),
        "first_own_bytes": float(np.median(own[first])),
        "last_own_bytes": float(np.median(own[last])),
        "own_slope_bytes_per_minute": float(np.polyfit(at_s[late], own[late], 1)[0]) * 60,
        "rss_bytes": rss.tolist(),
        "own_bytes": own.tolist(),
    }


def _missed(prepared: Prepared, sizes: Sizes, step: Step) -> dict[str, Any]:
    """Time to the first event for subscribers that come back with an old cursor."""
    began = time.monotonic()
    cursor, counts = publish_missed(prepared.folder, sizes.missed, sizes.tags, sizes.seed, step)
    publish_s = time.monotonic() - began
    size = sum(path.stat().st_size for path in prepared.folder.rglob("*") if path.is_file())
    chosen = np.linspace(0, sizes.connections - 1, min(_RETURNS, sizes.connections), dtype=int)
    numbers: list[int] = chosen.tolist()
    expected = counts[tag_of(numbers[-1])]
    forget_pages(prepared.folder)
    results = {}
    with ServerProcess(prepared.folder, prepared.key) as server:
        job = Catching(server.port, server.key, cursor, numbers, expected)
        for name in ("cold", "warm"):
            with _generator(catch_up, job) as talk:
                caught: CatchResult = talk.receive(_MORE_S)
            if caught.received != expected or caught.disordered:
                raise NearcastError(
                    f"a subscriber missed {expected:,} events and received {caught.received:,}; "
                    f"{caught.disordered:,} came twice or too late"
                )
            results[name] = {
                "first_s": spread(caught.first_s),
                "all_s": caught.all_s,
                "events": caught.received,
            }
    return {
        "messages": sizes.missed,
        "events": sum(counts) * STREAMS_PER_TAG,
        "folder_bytes": size,
        "publish_s": publish_s,
        **results,
    }


_MEASURES: dict[str, Callable[[Prepared, Sizes, Step], dict[str, Any]]] = {
    "publish": _publish,
    "streams": _streams,
    "restart": _restart,
    "memory": _memory,
    "missed": _missed,
}


# --- processes -----------------------------------------------------------------------------------


class _Talk:
    """What is said to a load generator, and what it says."""

    def __init__(self, connection: Any, process: Any) -> None:
        self._connection, self._process = connection, process

    def send(self, value: object) -> None:
        """Say something to it."""
        self._connection.send(value)

    def receive(self, seconds: float) -> Any:
        """Return what it says next, within a time."""
        if not self._connection.poll(seconds):
            raise NearcastError(f"a load generator did not answer within {seconds:.0f} s")
        try:
            result = self._connection.recv()
        except EOFError:
            raise NearcastError("a load generator ended without a result") from None
        if isinstance(result, Exception):
            raise result
        return result


@contextmanager
def _generator(run: Callable[..., None], job: object) -> Iterator[_Talk]:
    """Run a load generator in a process of its own; those that wait say when they are ready."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run, args=(job, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        talk = _Talk(ours, process)
        if run is not catch_up:
            talk.receive(_READY_S)
        yield talk
    finally:
        process.join(1)
        process.terminate()
        process.join()
        ours.close()


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < 2 * needed:
        raise NearcastError(
            f"{folder}: has {free / 1e9:.1f} GB free, but the scenario missed writes about "
            f"{needed / 1e9:.1f} GB; choose another --out or a smaller --missed"
        )


def _allow_files(count: int) -> None:
    """Raise the soft limit of open files, for this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
