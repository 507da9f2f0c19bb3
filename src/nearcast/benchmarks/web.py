"""``nearcast bench web``: the page in Chromium, against a server of its own.

Chromium draws without a graphics card here (SwiftShader), on the processor that the server uses
too; with a graphics card all times are shorter. Measured are:

- the shell: from the start of the navigation to the first contentful paint, with an empty cache;
- the bundle: bytes as sent, gzipped, of what the page needs and of what it loads when idle;
- events: messages arrive at a rate and are shown; the longest task of the main thread, from a
  trace, and whether every event has arrived;
- the heap, after a garbage collection, over some minutes of the same stream.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.request import ProxyHandler, Request, build_opener

from nearcast.extras import require

require("server", "nearcast bench web")

import numpy as np

from nearcast.benchmarks.server.data import prepare_folder
from nearcast.benchmarks.server.process import ServerProcess
from nearcast.errors import MissingExtra, NearcastError
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

    from nearcast.benchmarks.compare import Step

__all__ = ["HEADER", "LongestTask", "WebSizes", "longest_task", "measure_web", "web_table"]

FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
HEADER = ("what", "measured", "goal")
_IDLE = ("50m", "terra-draw", "uplot", "licenses")
_TAGS = 8
_BATCHES_PER_S = 10
_TRACE_S = 10.0
_SETTLE_S = 15.0
_SAMPLE_S = 15.0


@dataclass(frozen=True)
class WebSizes:
    """How much is measured: subscriptions on the server, events a second, and for how long."""

    subscriptions: int = 1_000
    events_per_s: int = 200
    seconds: float = 60.0
    minutes: float = 10.0
    rounds: int = 3
    seed: int = 0


def measure_web(sizes: WebSizes, folder: Path, *, step: Step) -> dict[str, Any]:
    """Measure the page, and return the result.

    Parameters
    ----------
    sizes
        How much is measured.
    folder
        A new folder for the server's data; it is removed at the end.
    step
        Hears what is being done.

    Raises
    ------
    NearcastError
        When there is no Chromium or no built page, or when an event did not arrive.
    """
    path = _chromium()
    from playwright.sync_api import sync_playwright

    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        prepared = prepare_folder(folder, sizes.subscriptions, 0, sizes.seed, step)
        with (
            ServerProcess(prepared.folder, prepared.key) as server,
            sync_playwright() as playwright,
        ):
            url = f"http://127.0.0.1:{server.port}"
            _subscribe(url, server.key)
            browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
            step("shell", 0, 3)
            shell = [_shell(browser, url, server.key) for _ in range(sizes.rounds)]
            step("events", 1, 3)
            streamed = _stream(browser, url, server.key, sizes, step)
            version = browser.version
            browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "experiment": "web",
        **asdict(sizes),
        "chromium": version,
        "shell_ms": float(np.median([one["paint_ms"] for one in shell])),
        "map_ms": float(np.median([one["map_ms"] for one in shell])),
        "bundle_bytes": shell[-1]["bundle_bytes"],
        "idle_bytes": shell[-1]["idle_bytes"],
        **streamed,
        "machine": describe_machine(),
    }


def web_table(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of a result, as people read them."""
    heap = result["heap_mb"]
    return [
        ("shell painted", f"{result['shell_ms']:,.0f} ms", "1,000 ms"),
        ("map at rest", f"{result['map_ms']:,.0f} ms", ""),
        ("bundle, gzipped", f"{result['bundle_bytes'] / 1e3:,.0f} KB", "700 KB"),
        ("loaded when idle", f"{result['idle_bytes'] / 1e3:,.0f} KB", ""),
        (
            f"longest task at {result['events_per_s']:,} events/s",
            f"{result['longest_task_ms']:,.0f} ms",
            "100 ms",
        ),
        ("the same, of CPU time", f"{result['longest_task_cpu_ms']:,.0f} ms", ""),
        ("events shown", f"{result['shown']:,} of {result['published']:,}", "all"),
        (f"heap over {result['minutes']:g} min", f"{heap[0]:.1f} to {heap[-1]:.1f} MB", "flat"),
    ]


class LongestTask(NamedTuple):
    """The longest task of the main thread by the clock, and the one with the most CPU time."""

    wall_ms: float
    cpu_ms: float


def longest_task(trace: bytes) -> LongestTask:
    """Return the longest tasks of the page's main thread in a trace of Chromium.

    By the clock, a task also waits while others have the processor: drawing without a graphics
    card, the server, and whatever else runs. Its CPU time is what the page itself does.

    Examples
    --------
    >>> names = [{"ph": "M", "name": "thread_name", "pid": 7, "tid": 1,
    ...           "args": {"name": "CrRendererMain"}}]
    >>> tasks = [{"ph": "X", "name": "ThreadControllerImpl::RunTask", "pid": pid, "tid": 1,
    ...           "dur": us, "tdur": 5_000} for pid, us in ((7, 4_000), (7, 61_000), (9, 900_000))]
    >>> longest_task(json.dumps({"traceEvents": names + tasks}).encode())
    LongestTask(wall_ms=61.0, cpu_ms=5.0)
    """
    events = json.loads(trace)["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        event
        for event in events
        if event.get("ph") == "X"
        and event["name"].endswith("RunTask")
        and (event["pid"], event["tid"]) in main
    ]
    wall, cpu = ([task.get(name, 0) for task in tasks] for name in ("dur", "tdur"))
    return LongestTask(max(wall, default=0) / 1e3, max(cpu, default=0) / 1e3)


# --- the server's side -----------------------------------------------------------------------


def _chromium() -> str:
    if find_spec("playwright") is None:
        raise MissingExtra("nearcast bench web", "playwright", "dev")
    path = shutil.which("chromium")
    if path is None:
        raise NearcastError("there is no Chromium; on Debian: apt-get install chromium")
    from nearcast.server import http

    if not (Path(http.__file__).parent / "web" / "index.html").is_file():
        raise NearcastError("the page is not built: make web, which needs Node.js")
    return path


def _post(url: str, key: str, body: object) -> None:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = Request(url, json.dumps(body).encode(), headers)
    with build_opener(ProxyHandler({})).open(request, timeout=60) as answer:
        answer.read()


def _subscribe(url: str, key: str) -> None:
    """Make a subscription to each tag, worldwide: every message arrives."""
    world = {"areaType": "BOX", "west": -180.0, "south": -90.0, "east": 180.0, "north": 90.0}
    for tag in range(_TAGS):
        detail = {"keywords": [f"tag{tag}"], "region": world}
        _post(f"{url}/v1/subscriptions", key, {"config": {"subscriptionDetail": detail}})


class _Publisher:
    """Publishes at a rate in a thread, within a ``with`` statement."""

    def __init__(self, url: str, key: str, per_s: int, seed: int) -> None:
        self.published = 0
        self._url, self._key = url, key
        self._batch = max(1, per_s // _BATCHES_PER_S)
        self._every_s = self._batch / per_s
        self._random = random.Random(seed)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._done.wait(max(0.0, due - time.monotonic())):
            _post(
                f"{self._url}/v1/messages", self._key, [self._message() for _ in range(self._batch)]
            )
            self.published += self._batch
            due += self._every_s

    def _message(self) -> dict[str, Any]:
        tag = self._random.randrange(_TAGS)
        lon, lat = self._random.uniform(-170, 170), self._random.uniform(-60, 75)
        return {"text": f"tag{tag} message {self.published}", "lon": lon, "lat": lat}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()


# --- the browser's side ----------------------------------------------------------------------


def _profile(browser: Browser, key: str) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    session = json.dumps(json.dumps({"credential": key}))
    context.add_init_script(
        "if (location.protocol === 'http:') {"
        f" localStorage.setItem('nearcast.session', {session});"
        " localStorage.setItem('nearcast.introduced', 'yes'); }"
    )
    return context


def _shell(browser: Browser, url: str, key: str) -> dict[str, float]:
    """Load the page with an empty cache."""
    context = _profile(browser, key)
    page = context.new_page()
    page.goto(url)
    page.locator(".map[data-coasts=fine]").wait_for(timeout=60_000)
    now_ms = page.evaluate("() => performance.now()")
    paint = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
    paint_ms = page.evaluate(paint)
    sizes = page.evaluate(
        "() => [...performance.getEntriesByType('navigation'),"
        " ...performance.getEntriesByType('resource')]"
        ".filter(one => !one.name.includes('/v1/'))"
        ".map(one => [one.name, one.encodedBodySize])"
    )
    context.close()
    listed = {name.rpartition("/")[2]: size for name, size in sizes}
    # The page does not list what the map's worker loads, nor the worker itself.
    packed = {path.name.removesuffix(".gz"): path.stat().st_size for path in _packed_files()}
    idle = {name for name in packed if any(part in name for part in _IDLE)}
    return {
        "paint_ms": paint_ms,
        "map_ms": now_ms,
        "bundle_bytes": sum(size for name, size in (packed | listed).items() if name not in idle),
        "idle_bytes": sum(packed[name] for name in idle),
    }


def _packed_files() -> list[Path]:
    from nearcast.server import http

    return [*(Path(http.__file__).parent / "web" / "assets").glob("*.gz")]


def _stream(browser: Browser, url: str, key: str, sizes: WebSizes, step: Step) -> dict[str, Any]:
    """Show events at a rate: first traced, then with looks at the heap."""
    context = _profile(browser, key)
    page = context.new_page()
    page.goto(url)
    page.locator(".stream.open").wait_for(timeout=60_000)
    page.locator(".map[data-coasts=fine]").wait_for(timeout=60_000)
    devtools = context.new_cdp_session(page)
    longest: list[LongestTask] = []
    heap: list[float] = []
    with _Publisher(url, key, sizes.events_per_s, sizes.seed) as publisher:
        page.wait_for_timeout(2_000)
        ends = time.monotonic() + sizes.seconds
        while time.monotonic() < ends:
            longest.append(_traced(browser, page, min(_TRACE_S, ends - time.monotonic() + 0.1)))
            step("events", len(longest), round(sizes.seconds / _TRACE_S))
        ends = time.monotonic() + sizes.minutes * 60
        while True:
            heap.append(_heap_mb(devtools))
            step("heap", len(heap), max(1, round(sizes.minutes * 60 / _SAMPLE_S)))
            if time.monotonic() >= ends:
                break
            page.wait_for_timeout(1_000 * min(_SAMPLE_S, ends - time.monotonic() + 0.1))
    shown = _received(page, publisher.published)
    context.close()
    if shown != publisher.published:
        raise NearcastError(f"{publisher.published:,} events were published, {shown:,} arrived")
    return {
        "longest_task_ms": max(task.wall_ms for task in longest),
        "longest_task_cpu_ms": max(task.cpu_ms for task in longest),
        "heap_mb": heap,
        "published": publisher.published,
        "shown": shown,
    }


def _traced(browser: Browser, page: Page, seconds: float) -> LongestTask:
    browser.start_tracing(page=page, categories=["toplevel"])
    page.wait_for_timeout(1_000 * seconds)
    return longest_task(browser.stop_tracing())


def _heap_mb(devtools: CDPSession) -> float:
    devtools.send("HeapProfiler.collectGarbage")
    used = devtools.send("Runtime.getHeapUsage")["usedSize"]
    return float(used) / 1e6


def _received(page: Page, expected: int) -> int:
    """Return how many events the page has received, when they have all come or time is up."""
    until = time.monotonic() + _SETTLE_S
    while True:
        text = page.locator(".received").text_content() or ""
        count = int("".join(character for character in text if character.isdigit()) or 0)
        if count >= expected or time.monotonic() > until:
            return count
        page.wait_for_timeout(100)
