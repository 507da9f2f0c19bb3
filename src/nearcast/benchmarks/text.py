"""The cost of converting text to token ids: batches of messages, a large vocabulary."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nearcast.benchmarks.compare import spread
from nearcast.datasets.tables import message_table
from nearcast.datasets.workloads import Workload
from nearcast.plots.machine import describe_machine
from nearcast.text import Vocabulary, tokenize_column, words

if TYPE_CHECKING:
    from nearcast.benchmarks.compare import Step

__all__ = ["measure_text"]


def measure_text(
    dataset: str = "tweets",
    messages: int = 100_000,
    *,
    rounds: int = 5,
    seed: int = 0,
    step: Step = lambda name, done, total: None,
) -> dict[str, Any]:
    """Tokenize and look up the texts of messages several times; return the measurements.

    The vocabulary has all words of the data set: a million for ``tweets``.
    """
    total = rounds + 2
    step("drawing messages", 0, total)
    # Without topics: their words would soon be in the cache.
    workload = Workload(dataset, seed, **({"topic_share": 0.0} if dataset == "tweets" else {}))
    drawn = workload.messages(messages)
    text = message_table(workload, drawn)["text"]
    step("filling the vocabulary", 1, total)
    began = time.perf_counter()
    vocabulary = Vocabulary(workload.words().to_pylist())
    fill_s = time.perf_counter() - began
    began = time.perf_counter()
    tokenize_column(text.slice(0, 1), words, vocabulary, add=False)
    compile_s = time.perf_counter() - began
    taken = []
    for turn in range(rounds):
        step(f"round {turn + 1}", 2 + turn, total)
        began = time.perf_counter()
        column = tokenize_column(text, words, vocabulary, add=False)
        taken.append((time.perf_counter() - began) / messages * 1e6)
    return {
        "experiment": "text",
        "dataset": dataset,
        "messages": messages,
        "seed": seed,
        "rounds": rounds,
        "vocabulary": len(vocabulary),
        "tokens_per_message": len(column.token) / messages,
        "bytes_per_message": text.nbytes / messages,
        "fill_vocabulary_s": fill_s,
        "compile_s": compile_s,
        "us_per_message": spread(taken),
        "rounds_us": taken,
        "machine": describe_machine(),
    }
