"""Results of experiments: as JSON files, and as tables in the README."""

from __future__ import annotations

import itertools
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.paper import NOTE, PAPERS, judge, statement_table
from nearcast import indexes
from nearcast.errors import UnsupportedFile
from nearcast.plots.machine import machine_caption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["read_result", "readme_block", "rewrite_readme", "write_result"]

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def write_result(result: dict[str, Any], path: Path) -> None:
    """Write a result as JSON, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, json.dumps(result, indent=2) + "\n")


def read_result(path: Path) -> dict[str, Any]:
    """Read a result that `write_result` wrote."""
    try:
        result = json.loads(path.read_text())
    except FileNotFoundError:
        raise UnsupportedFile(f"{path}: there is no such file; run the benchmark first") from None
    except ValueError as error:
        raise UnsupportedFile(f"{path}: is not JSON: {error}") from None
    if not isinstance(result, dict) or result.get("experiment") not in _TABLES:
        known = ", ".join(_TABLES)
        raise UnsupportedFile(f"{path}: is not the result of one of the experiments {known}")
    return result


def rewrite_readme(path: Path, results: Sequence[dict[str, Any]]) -> None:
    """Put the figures of results between the two marks of a Markdown file."""
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UnsupportedFile(f"{path}: must hold {BEGIN} and, after it, {END}, once each")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    _replace(path, f"{before}{BEGIN}\n{readme_block(results)}{END}{after}")


def readme_block(results: Sequence[dict[str, Any]]) -> str:
    """Return the figures as Markdown: tables with their commands, the machine.

    There is a table for each result; but comparisons that differ only in their messages share one.
    """
    parts = []
    for _, alike in itertools.groupby(results, _what):
        first, *others = alike
        if others and first["experiment"] == "compare":
            parts.append(_comparisons([first, *others]))
        else:
            parts += [_TABLES[result["experiment"]](result) for result in [first, *others]]
    machines = dict.fromkeys(machine_caption(result["machine"]) for result in results)
    parts += [f"Measured on: {machine}." for machine in machines]
    return "\n" + "\n\n".join(parts) + "\n\n"


def _what(result: dict[str, Any]) -> tuple[Any, ...]:
    """Return what comparisons have in common that differ only in their messages."""
    names = (
        tuple(r["index"] for r in result["results"]) if result["experiment"] == "compare" else ()
    )
    keys = ("experiment", "dataset", "subscriptions", "rounds", "threads", "seed")
    return (*names, *(result.get(key) for key in keys))


def _comparisons(results: Sequence[dict[str, Any]]) -> str:
    """Return a table of the times in several groups of messages, and how often the default's."""
    first = results[0]
    of_default = {
        result["group"]: r["us_per_message"]["median"]
        for result in results
        for r in result["results"]
        if r["index"] == indexes.DEFAULT
    }
    rows = []
    for i, built in enumerate(first["results"]):
        row = [f"`{built['index']}`"]
        for result in results:
            median = result["results"][i]["us_per_message"]["median"]
            share = median / of_default.get(result["group"], median)
            row.append(f"{_figure(median)} ({_figure(share)} x)" if of_default else _figure(median))
        row += [_figure(built["examined_per_message"]), _figure(built["bytes_per_subscription"])]
        row += [f"{_figure(built['build_s'])} s", _size(built["build_peak_bytes"])]
        rows.append(row)
    header = ["index", *(f"{result['group']} µs" for result in results)]
    header += [f"examined, {first['group']}", "bytes/sub", "build", "peak of the build"]
    matches = ", ".join(_figure(r["results"][0]["matches_per_message"]) for r in results)
    title = (
        f"**{first['dataset']}**: {first['subscriptions']:,} subscriptions; µs a message, and how "
        f"many times that of `{indexes.DEFAULT}`; {matches} matches each"
    )
    spreads = [
        (r["us_per_message"]["most"] - r["us_per_message"]["least"]) / r["us_per_message"]["median"]
        for result in results
        for r in result["results"]
    ]
    note = (
        f"Medians of {first['rounds']} rounds; between the least and the most of them lie "
        f"{np.median(spreads):.0%} in half of the cases, {max(spreads):.0%} at most."
    )
    return _section(title, header, rows, _compare_command(results)) + f"\n\n{note}"


def _compare_command(results: Sequence[dict[str, Any]]) -> str:
    """Return the command that gives these results."""
    result = results[0]
    groups = ",".join(one["group"] for one in results)
    share = max(one["range_share"] for one in results)
    command = (
        f"nearcast bench compare --dataset {result['dataset']} "
        f"--subscriptions {result['subscriptions']} --messages {result['messages']} "
        f"--index {','.join(r['index'] for r in result['results'])} --group {groups} "
        f"--rounds {result['rounds']} --threads {result['threads']} --seed {result['seed']}"
    )
    return command + (f" --range-share {share:g}" if share else "")


def _comparison(result: dict[str, Any]) -> str:
    header = ["index", "µs/message", "least-most", "messages/s", "examined", "bytes/sub"]
    header += ["build", "peak memory of the build"]
    rows = [
        [
            f"`{r['index']}`",
            _figure(r["us_per_message"]["median"]),
            f"{_figure(r['us_per_message']['least'])}-{_figure(r['us_per_message']['most'])}",
            _figure(r["messages_per_second"]),
            _figure(r["examined_per_message"]),
            _figure(r["bytes_per_subscription"]),
            f"{_figure(r['build_s'])} s",
            f"{_figure(r['build_peak_bytes'] / max(1, r['index_bytes']))} x the index",
        ]
        for r in result["results"]
    ]
    title = (
        f"**{result['dataset']}**: {result['subscriptions']:,} subscriptions, "
        f"{result['group']} messages, "
        f"{_figure(result['results'][0]['matches_per_message'])} matches each"
    )
    return _section(title, header, rows, _compare_command([result]))


def _churn(result: dict[str, Any]) -> str:
    steps = [(f"{i + 1} {step['do']}", step) for i, step in enumerate(result["steps"])]
    if result["fresh"]["search"] is not None:
        steps.append(("freshly built", result["fresh"]))
    rows = [
        [
            name,
            {"insert": "inserts", "delete": "deletes", "search": "messages"}[kind],
            _figure(step[kind]["us_per_operation"]),
            _figure(step[kind]["operations_per_second"]),
            f"{_figure(step[kind]['batch_p99_ms'])} ms",
        ]
        for name, step in steps
        for kind in ("insert", "delete", "search")
        if step.get(kind)
    ]
    book = result["runbook"]
    mixed = [step["count"] for step in book["steps"] if step["do"] == "mix"]
    command = (
        f"nearcast bench churn --dataset {book['dataset']} "
        f"--subscriptions {book['steps'][0].get('count', 0)} --operations {sum(mixed)} "
        f"--batch {book['batch']} --index {result['index']} --seed {result['seed']}"
        if book["name"] == "mixed"
        else f"nearcast bench churn --runbook {book['name']}.json --index {result['index']}"
    )
    title = f"**{book['dataset']}**, changing: {result['subscriptions']:,} subscriptions"
    header = ["step", "what", "µs each", "a second", "p99 of a batch"]
    return _section(title, header, rows, command)


def _calls(result: dict[str, Any]) -> str:
    sizes = result["sizes"]
    names = list(dict.fromkeys(row["call"] for row in result["results"]))
    found = {(row["subscriptions"], row["call"]): row for row in result["results"]}
    rows = [
        [f"`{name}`"]
        + [
            f"{_figure(found[size, name]['mean_us'])} ({_figure(found[size, name]['p99_us'])})"
            for size in sizes
        ]
        for name in names
    ]
    header = ["call", *(f"{size:,} subscriptions" for size in sizes)]
    command = (
        f"nearcast bench calls --dataset {result['dataset']} "
        f"--subscriptions {','.join(map(str, sizes))} --calls {result['calls']} "
        f"--seed {result['seed']}"
    )
    return _section("**Single calls**: mean µs (p99)", header, rows, command)


def _text(result: dict[str, Any]) -> str:
    row = [
        _figure(result["us_per_message"]["median"]),
        _figure(result["tokens_per_message"]),
        _figure(result["bytes_per_message"]),
        f"{result['vocabulary']:,}",
    ]
    command = (
        f"nearcast bench text --dataset {result['dataset']} --messages {result['messages']} "
        f"--rounds {result['rounds']} --seed {result['seed']}"
    )
    header = ["µs/message", "tokens/message", "bytes/message", "vocabulary"]
    return _section("**From text to token ids**", header, [row], command)


def _start(result: dict[str, Any]) -> str:
    row = [
        f"{_figure(result['import_s']['median'])} s",
        f"{_figure(result['first_match_s']['median'])} s",
        f"{_figure(result['first_match_empty_cache_s'])} s",
    ]
    header = ["`import nearcast`", "to the first match", "the same, kernels to be compiled"]
    command = f"nearcast bench start --rounds {result['rounds']}"
    return _section("**Start of a process**", header, [row], command)


def _spark(result: dict[str, Any]) -> str:
    rows = []
    for what, key, of in (
        ("build", "build_s", "subscriptions"),
        ("match", "match_s", "messages"),
    ):
        alone = result[key]["in_process"]["median"]
        rows += [
            [
                f"{what}, {name.replace('_', ' ')}",
                f"{_figure(spent['median'])} s",
                f"{_figure(spent['least'])}-{_figure(spent['most'])} s",
                _figure(result[of] / spent["median"]),
                f"{alone / spent['median']:.2f} x",
            ]
            for name, spent in result[key].items()
        ]
    rows += [
        [
            f"prepare and count {one['read']:,}",
            f"{_figure(one['seconds'])} s",
            f"driver grew by {_figure(one['driver_growth_bytes'] / 1e6)} MB",
            _figure(one["read"] / one["seconds"]),
            "",
        ]
        for one in result["prepare"]
    ]
    command = (
        f"nearcast bench spark --dataset {result['dataset']} "
        f"--subscriptions {result['subscriptions']} --messages {result['messages']} "
        f"--shards {result['shards']} --prepared {result['prepared']} "
        f"--ids {result['ids']} --master '{result['master']}' --rounds {result['rounds']} "
        f"--seed {result['seed']}"
    )
    title = (
        f"**Spark**, {result['master']}: {result['subscriptions']:,} subscriptions of "
        f"{result['dataset']}, {result['messages']:,} messages, "
        f"{_figure(result['matches_per_message'])} matches each, {result['ids']} ids"
    )
    header = ["job", "time", "least-most", "rows a second", "one process on one thread"]
    return _section(title, header, rows, command)


def _paper(result: dict[str, Any]) -> str:
    # Judged again: statements and explanations may have been reworded since the run.
    experiment = PAPERS[result["paper"]]
    header, rows = statement_table(judge(experiment, result))
    command = (
        f"nearcast bench paper {experiment.name} --subscriptions {result['subscriptions']} "
        f"--messages {result['messages']} --rounds {result['rounds']} --seed {result['seed']}"
    )
    title = f"**{experiment.title}**: {result['subscriptions']:,} subscriptions. {NOTE}"
    return _section(title, header, rows, command, left=(0, 1, 6, 7))


_TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "compare": _comparison,
    "churn": _churn,
    "calls": _calls,
    "text": _text,
    "start": _start,
    "spark": _spark,
    **{f"paper-{name}": _paper for name in PAPERS},
}


def _section(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    command: str,
    left: Sequence[int] = (0,),
) -> str:
    rule = ["---" if column in left else "---:" for column in range(len(header))]
    lines = [header, rule, *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{title}\n\n{table}\n\n`{command}`"


def _size(count: float) -> str:
    return f"{_figure(count / 1e9)} GB" if count >= 1e9 else f"{_figure(count / 1e6)} MB"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
