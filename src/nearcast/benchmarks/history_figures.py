"""The figures that the history keeps for each commit; a script that measures one checkout.

`nearcast.benchmarks.history` runs this file in a new process, with the sources of the checkout to
measure on the path. An older checkout has another ``nearcast``, so names of the library are
imported where a figure needs them. A figure that a checkout cannot give is skipped, with the
reason.

Times are CPU times. Before and after each measurement the script times a reference, which sorts
numbers with NumPy and uses no code of this library: the ratio of both depends less on the machine
and on other programs that run on it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FIGURES", "Figure", "Run", "measure", "quartiles"]

MESSAGES = 20_000
LIVE_MESSAGES = 2_000
CALLS = 500
TEXTS = 20_000
MOVES = 20_000

_IMPORT = """
import time
began = time.process_time()
from nearcast import Engine, Message, Subscription
print(time.process_time() - began)
"""


class Run(NamedTuple):
    """A prepared measurement: a call that returns CPU seconds, and how many operations it times."""

    seconds: Callable[[], float]
    operations: int


class Figure(NamedTuple):
    """What is measured: its name, what prepares it, and the unit of one operation in seconds."""

    name: str
    prepare: Callable[[int], Run]
    unit: str
    unit_s: float = 1e-6


def measure(subscriptions: int, rounds: int) -> dict[str, Any]:
    """Measure all figures in rotation; return values and ratios to the reference by name.

    A ratio is the value, in its unit, divided by the seconds of the reference.
    """
    known = {figure.name: figure for figure in FIGURES}
    runs: dict[str, Run] = {}
    skipped: dict[str, str] = {}
    sizes: dict[str, Any] = {}
    for figure in FIGURES:
        try:
            runs[figure.name] = figure.prepare(subscriptions)
            runs[figure.name].seconds()  # compiles kernels
        except _CANNOT as error:
            runs.pop(figure.name, None)
            skipped[figure.name] = _one_line(error)
    try:
        sizes["index size"] = {"unit": "bytes/subscription", "value": _index_bytes(subscriptions)}
    except _CANNOT as error:
        skipped["index size"] = _one_line(error)
    values: dict[str, list[float]] = {name: [] for name in runs}
    ratios: dict[str, list[float]] = {name: [] for name in runs}
    references = []
    reference = _Reference()
    names = list(runs)
    for turn in range(rounds):
        for i in range(len(names)):
            name = names[(turn + i) % len(names)]
            before = reference.seconds()
            seconds = runs[name].seconds()
            around = (before + reference.seconds()) / 2
            references.append(around)
            each = seconds / runs[name].operations
            value = each / known[name].unit_s
            values[name].append(value)
            ratios[name].append(value / around)
    figures = {
        name: {
            "unit": known[name].unit,
            "value": quartiles(values[name]),
            "ratio": quartiles(ratios[name]),
        }
        for name in names
    }
    return {
        "figures": figures | sizes,
        "skipped": skipped,
        "reference_ms": quartiles([seconds * 1e3 for seconds in references]),
    }


class _Reference:
    """Sorts the same numbers and gathers them in random order."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._numbers = rng.integers(0, 2**62, 200_000)
        self._order = rng.permutation(len(self._numbers))

    def seconds(self) -> float:
        began = time.process_time()
        np.sort(self._numbers, kind="stable")[self._order].cumsum()
        return time.process_time() - began


def _timed(call: Callable[[], object], operations: int) -> Run:
    def seconds() -> float:
        began = time.process_time()
        call()
        return time.process_time() - began

    return Run(seconds, operations)


def _boolean_index(subscriptions: int) -> tuple[Any, Any, Any]:
    from nearcast import indexes
    from nearcast.datasets import Workload

    workload = Workload("tweets", 0)
    clauses = workload.subscriptions(subscriptions)
    return indexes.create("trie-pyramid"), clauses, workload.messages(MESSAGES)


def _prepare_match(subscriptions: int) -> Run:
    builder, clauses, messages = _boolean_index(subscriptions)
    index = builder.build(clauses)
    return _timed(lambda: index.match(messages, threads=1), len(messages))


def _prepare_build(subscriptions: int) -> Run:
    builder, clauses, _ = _boolean_index(subscriptions)
    return _timed(lambda: builder.build(clauses), subscriptions)


def _index_bytes(subscriptions: int) -> float:
    builder, clauses, _ = _boolean_index(subscriptions)
    return float(builder.build(clauses).nbytes / subscriptions)


def _prepare_ranked_match(subscriptions: int) -> Run:
    from nearcast import indexes
    from nearcast.datasets import Workload

    workload = Workload("tweets", 0)
    ranked = workload.ranked(
        subscriptions,
        "proximity",
        text_share=(0.0, 1.0),
        threshold=(0.5, 1.0),
        max_distance_m=(100_000.0, 100_000.0),
    )
    index = indexes.create("ranked-pyramid").for_kind("proximity").build(ranked)
    messages = ranked.weigh(workload.messages(MESSAGES // 10))
    return _timed(lambda: index.match(messages, threads=1), len(messages))


def _prepare_moves(subscriptions: int) -> Run:
    from nearcast.datasets import Workload
    from nearcast.indexes.moving import registry

    workload = Workload("tweets", 0)
    clauses = workload.subscriptions(subscriptions)
    index = registry.create("twin-lists").build(clauses)
    index.publish(workload.messages(LIVE_MESSAGES))
    rows = np.random.default_rng(0).permutation(subscriptions)[:MOVES].astype(np.int32)
    home = np.asarray(clauses.box)[rows]
    width = home[:, 2] - home[:, 0]
    # Half a width to the west, as far as the world goes, then back.
    step = np.minimum(width // 2, home[:, 0] - home[:, 0].min())
    away = home.copy()
    away[:, 0] -= step
    away[:, 2] -= step

    def there_and_back() -> None:
        index.move(rows, away)
        index.move(rows, home)

    return _timed(there_and_back, 2 * len(rows))


def _engine(subscriptions: int) -> tuple[Any, Any]:
    from nearcast.datasets import Workload, subscription_table
    from nearcast.engine import Engine

    workload = Workload("tweets", 0)
    engine = Engine()
    table = subscription_table(workload, workload.subscriptions(subscriptions))
    engine.subscribe_table(table.set_column(0, "id", [np.arange(subscriptions)]))
    engine.settle()
    return engine, workload


def _prepare_publish(subscriptions: int) -> Run:
    from nearcast.datasets import message_table
    from nearcast.model import Message

    engine, workload = _engine(subscriptions)
    rows = message_table(workload, workload.messages(CALLS)).to_pylist()
    messages = [Message(row["id"], (row["lon"], row["lat"]), row["text"]) for row in rows]

    def publish() -> None:
        for message in messages:
            engine.publish(message)

    return _timed(publish, len(messages))


def _prepare_subscribe(subscriptions: int) -> Run:
    from nearcast.datasets import subscription_table
    from nearcast.model import Rect, Subscription

    engine, workload = _engine(subscriptions)
    new = subscription_table(workload, workload.subscriptions(CALLS, first=subscriptions + 1))
    added = [
        Subscription(
            subscriptions + number,
            Rect(row["west"], row["south"], row["east"], row["north"]),
            row["keywords"],
        )
        for number, row in enumerate(new.to_pylist())
    ]

    def seconds() -> float:
        began = time.process_time()
        for subscription in added:
            engine.subscribe(subscription)
        spent = time.process_time() - began
        for subscription in added:
            engine.unsubscribe(subscription.id)
        engine.settle()
        return spent

    return Run(seconds, len(added))


def _prepare_text(subscriptions: int) -> Run:
    from nearcast.datasets import Workload, message_table
    from nearcast.text import Vocabulary, tokenize_column, words

    workload = Workload("tweets", 0, topic_share=0.0)
    count = min(TEXTS, subscriptions)
    text = message_table(workload, workload.messages(count))["text"]
    vocabulary = Vocabulary(workload.words().to_pylist())
    return _timed(lambda: tokenize_column(text, words, vocabulary, add=False), count)


def _prepare_import(subscriptions: int) -> Run:
    del subscriptions

    def seconds() -> float:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _IMPORT], capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    return Run(seconds, 1)


FIGURES = (
    Figure("trie-pyramid match", _prepare_match, "µs/message"),
    Figure("trie-pyramid build", _prepare_build, "µs/subscription"),
    Figure("ranked-pyramid match", _prepare_ranked_match, "µs/message"),
    Figure("twin-lists move", _prepare_moves, "µs/move"),
    Figure("engine publish", _prepare_publish, "µs/call"),
    Figure("engine subscribe", _prepare_subscribe, "µs/call"),
    Figure("text to tokens", _prepare_text, "µs/message"),
    Figure("import nearcast", _prepare_import, "ms", 1e-3),
)
"""All timed figures. The size of the index is measured once and needs no reference."""

_CANNOT = (ImportError, AttributeError, TypeError, ValueError, LookupError)
"""What an older checkout raises where it lacks something. Unknown names are lookup errors."""


def quartiles(values: list[float]) -> dict[str, float]:
    """Return the median and the quartiles of measurements.

    Examples
    --------
    >>> quartiles([5.0, 1.0, 2.0, 3.0, 4.0])
    {'median': 3.0, 'low': 2.0, 'high': 4.0}
    """
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": float(median), "low": float(low), "high": float(high)}


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def main(source: str, subscriptions: str, rounds: str) -> None:
    """Measure the sources in a folder, and print the figures as JSON."""
    import nearcast

    if not nearcast.__file__.startswith(source):
        raise SystemExit(f"imported {nearcast.__file__} instead of {source}")
    sys.stdout.write(json.dumps(measure(int(subscriptions), int(rounds))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
