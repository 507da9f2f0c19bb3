"""Write results of experiments as JSON files and as tables in the documentation."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.benchmarks.compare import DEFAULT_SAMPLE
from nearcast.benchmarks.moving.compared import moving_table
from nearcast.benchmarks.paper import (
    MOVING_PAPERS,
    NOTE,
    PAPERS,
    find_paper,
    judge,
    statement_table,
    summary_table,
)
from nearcast.benchmarks.ranking import default_index
from nearcast.benchmarks.server_tables import HEADER, server_command, server_note, server_table
from nearcast.errors import UnsupportedFile
from nearcast.plots.machine import machine_caption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = [
    "compare_command",
    "describe_checks",
    "describe_ranking",
    "fewer_messages",
    "read_result",
    "rewrite_tables",
    "tables_block",
    "write_result",
]

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def write_result(result: dict[str, Any], path: Path) -> None:
    """Write a result as a JSON file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_atomically(path, json.dumps(result, indent=2) + "\n")


def read_result(path: Path) -> dict[str, Any]:
    """Read a result written by `write_result`."""
    try:
        result = json.loads(path.read_text())
    except FileNotFoundError:
        raise UnsupportedFile(f"{path}: there is no such file; run the benchmark first") from None
    except ValueError as error:
        raise UnsupportedFile(f"{path}: is not JSON: {error}") from None
    if not isinstance(result, dict) or result.get("experiment") not in _TABLES:
        known = ", ".join(_TABLES)
        raise UnsupportedFile(f"{path}: is not a result of the experiments {known}")
    return result


def rewrite_tables(path: Path, results: Sequence[dict[str, Any]]) -> None:
    """Replace the text between the two markers of a Markdown file by tables of results."""
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UnsupportedFile(f"{path}: must contain {BEGIN} and, after it, {END}, once each")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    _write_atomically(path, f"{before}{BEGIN}\n{tables_block(results)}{END}{after}")


def tables_block(results: Sequence[dict[str, Any]]) -> str:
    """Return tables in Markdown, each with a heading and its command, and the machine.

    There is one table per result. Comparisons that differ only in their messages share one.
    """
    parts = []
    for _, group in itertools.groupby(results, _comparison_key):
        first, *others = group
        if others and first["experiment"] == "compare":
            parts.append(_comparisons([first, *others]))
        else:
            parts += [_TABLES[result["experiment"]](result) for result in [first, *others]]
    parts = _with_own_headings(parts)
    machines = dict.fromkeys(machine_caption(result["machine"]) for result in results)
    parts += [f"Measured on: {machine}." for machine in machines]
    return "\n" + "\n\n".join(parts) + "\n\n"


def _with_own_headings(parts: Sequence[str]) -> list[str]:
    """Return sections whose headings differ.

    Examples
    --------
    >>> _with_own_headings(["## Spark", "## Spark"])
    ['## Spark', '## Spark, continued']
    """
    seen: set[str] = set()
    sections = []
    for part in parts:
        heading, line, rest = part.partition("\n")
        while heading in seen:
            heading += ", continued"
        seen.add(heading)
        sections.append(f"{heading}{line}{rest}")
    return sections


def _comparison_key(result: dict[str, Any]) -> tuple[Any, ...]:
    """Return a key that is equal for comparisons that differ only in their messages."""
    names = (
        tuple(r["index"] for r in result["results"]) if result["experiment"] == "compare" else ()
    )
    keys = ("experiment", "kind", "dataset", "subscriptions", "rounds", "threads", "seed")
    return (*names, json.dumps(result.get("ranking")), *(result.get(key) for key in keys))


def describe_ranking(result: dict[str, Any]) -> str:
    """Return the kind of the subscriptions of a comparison, with their ranges if ranked.

    Examples
    --------
    >>> describe_ranking({"kind": "overlap", "ranking": {"alpha": [0, 1], "theta": [0.5, 0.5]}})
    'overlap subscriptions (alpha 0-1, theta 0.5)'
    """
    ranking = result.get("ranking")
    if ranking is None:
        return "subscriptions"
    values = [
        f"{name.removesuffix('_m').replace('_', ' ')} {_format_range(name, value)}"
        if isinstance(value, list)
        else str(value)
        for name, value in ranking.items()
    ]
    return f"{result['kind']} subscriptions ({', '.join(values)})"


def fewer_messages(result: dict[str, Any], measured: dict[str, Any]) -> str:
    """Return how many messages a slow index got; an empty text if it got all of them.

    Examples
    --------
    >>> fewer_messages({"messages": 200}, {"messages": 26})
    '26 of 200 messages'
    """
    every, some = result["messages"], measured.get("messages", result["messages"])
    return f"{some:,} of {every:,} messages" if some < every else ""


def describe_checks(result: dict[str, Any]) -> str:
    """Return how many matches of each index of a comparison were compared with the scan's.

    Examples
    --------
    >>> describe_checks({"results": [{"verified_matches": 104, "verified_messages": 640}]})
    'checked against the scan: 104 matches of 640 messages'
    """
    checks: dict[str, list[str]] = {}
    for r in result["results"]:
        if "verified_matches" in r:
            check = f"{r['verified_matches']:,} matches of {r['verified_messages']:,} messages"
            checks.setdefault(check, []).append(r.get("index", ""))
    if not checks:
        return ""
    if len(checks) > 1:
        checks = {f"{check} ({', '.join(names)})": names for check, names in checks.items()}
    return f"checked against the scan: {'; '.join(checks)}"


def _format_range(name: str, ends: list[float]) -> str:
    least, most = (end / 1000 if name == "max_distance_m" else end for end in ends)
    text = f"{least:g}" if least == most else f"{least:g}-{most:g}"
    return f"{text} km" if name == "max_distance_m" else text


def _comparisons(results: Sequence[dict[str, Any]]) -> str:
    """Return a table of times for several groups of messages, relative to the default index."""
    first = results[0]
    default, ranked = default_index(first.get("kind", "boolean")), first.get("ranking") is not None
    default_us = {
        result["group"]: r["us_per_message"]["median"]
        for result in results
        for r in result["results"]
        if r["index"] == default
    }
    rows = []
    for i, built in enumerate(first["results"]):
        row = [f"`{built['index']}`"]
        for result in results:
            measured = result["results"][i]
            median = measured["us_per_message"]["median"]
            ratio = median / default_us.get(result["group"], median)
            notes = [f"{_format_number(ratio)} x"] if default_us else []
            notes += [few] if (few := fewer_messages(result, measured)) else []
            row.append(_format_number(median) + (f" ({'; '.join(notes)})" if notes else ""))
            if ranked:
                row.append(_format_ns(measured["ns_per_match"]))
        row += [
            _format_number(built["examined_per_message"]),
            _format_number(built["bytes_per_subscription"]),
        ]
        row += [f"{_format_number(built['build_s'])} s", _format_size(built["build_peak_bytes"])]
        rows.append(row)
    header = ["index"]
    for result in results:
        header += [f"{result['group']} µs", *(["ns/match"] if ranked else [])]
    header += [f"examined, {first['group']}", "bytes/sub", "build", "peak of the build"]
    matches = ", ".join(_format_number(r["results"][0]["matches_per_message"]) for r in results)
    note = (
        f"{_describe_ranges(first)}µs per message (relative to `{default}`); "
        f"{matches} matches per message."
    )
    spreads = [
        (r["us_per_message"]["most"] - r["us_per_message"]["least"]) / r["us_per_message"]["median"]
        for result in results
        for r in result["results"]
    ]
    spread = (
        f"Medians of {first['rounds']} rounds. The fastest and the slowest round differ by "
        f"{np.median(spreads):.0%} of the median or less in half of the cases, by "
        f"{max(spreads):.0%} at most."
    )
    section = _section(_heading(first), note, header, rows, compare_command(results))
    return f"{section}\n\n{spread}"


def _heading(result: dict[str, Any]) -> str:
    """Return the heading of a comparison."""
    kind = "" if result.get("ranking") is None else f"{result['kind']} "
    return f"`{result['dataset']}`, {result['subscriptions']:,} {kind}subscriptions"


def _describe_ranges(result: dict[str, Any]) -> str:
    """Return the ranges of ranked subscriptions, and a separator; nothing for boolean ones."""
    ranges = describe_ranking(result)
    return "" if result.get("ranking") is None else f"{ranges[0].upper()}{ranges[1:]}; "


def compare_command(results: Sequence[dict[str, Any]]) -> str:
    """Return the command that produced these results of a comparison."""
    result = results[0]
    if "files" in result:
        return _files_command(result)
    groups = ",".join(r["group"] for r in results)
    share = max(r["range_share"] for r in results)
    command = (
        f"nearcast bench compare --dataset {result['dataset']}{_ranked_options(result)} "
        f"--subscriptions {result['subscriptions']} --messages {result['messages']} "
        f"--index {','.join(r['index'] for r in result['results'])} --group {groups} "
        f"--rounds {result['rounds']} --threads {result['threads']} --seed {result['seed']}"
    )
    return command + (f" --range-share {share:g}" if share else "") + _sample_option(result)


def _sample_option(result: dict[str, Any]) -> str:
    """Return the size of the checked sample, if it is not the default."""
    sample = result.get("sample", DEFAULT_SAMPLE)
    return "" if sample == DEFAULT_SAMPLE else f" --sample {sample}"


def _files_command(result: dict[str, Any]) -> str:
    names = result["files"]["names"]
    scoring = "".join(f" --{name} {value}" for name, value in (result["ranking"] or {}).items())
    options = "".join(f" {shlex.quote(word)}" for word in result["files"].get("options", ()))
    return (
        f"nearcast bench compare --subscriptions-file {names['subscriptions']} "
        f"--messages-file {names['messages']}{options}{scoring} "
        f"--subscriptions {result['subscriptions']} --messages {result['messages']} "
        f"--index {','.join(r['index'] for r in result['results'])} "
        f"--rounds {result['rounds']} --threads {result['threads']}{_sample_option(result)}"
    )


def _ranked_options(result: dict[str, Any]) -> str:
    """Return the options of ranked subscriptions, with a space before them."""
    if result.get("ranking") is None:
        return ""
    options = [f" --kind {result['kind']}"]
    for name, value in result["ranking"].items():
        text = "-".join(f"{end:g}" for end in value) if isinstance(value, list) else value
        options.append(f" --{name.replace('_', '-')} {text}")
    return "".join(options)


def _comparison(result: dict[str, Any]) -> str:
    ranked = result.get("ranking") is not None
    header = ["index", "µs/message", "least-most", *(["ns/match"] if ranked else [])]
    header += ["messages/s", "examined", "bytes/sub"]
    header += ["build", "peak memory of the build"]
    rows = [
        [
            f"`{r['index']}`",
            _format_number(r["us_per_message"]["median"])
            + (f" ({few})" if (few := fewer_messages(result, r)) else ""),
            f"{_format_number(r['us_per_message']['least'])}-{_format_number(r['us_per_message']['most'])}",
            *([_format_ns(r["ns_per_match"])] if ranked else []),
            _format_number(r["messages_per_second"]),
            _format_number(r["examined_per_message"]),
            _format_number(r["bytes_per_subscription"]),
            f"{_format_number(r['build_s'])} s",
            f"{_format_number(r['build_peak_bytes'] / max(1, r['index_bytes']))} x the index",
        ]
        for r in result["results"]
    ]
    heading = f"{_heading(result)}, {result['group']} messages"
    matches = _format_number(result["results"][0]["matches_per_message"])
    note = f"{_describe_ranges(result)}{matches} matches per message."
    return _section(heading, note, header, rows, compare_command([result]))


def _churn(result: dict[str, Any]) -> str:
    steps = [(f"{i + 1} {step['do']}", step) for i, step in enumerate(result["steps"])]
    if result["fresh"]["search"] is not None:
        steps.append(("freshly built", result["fresh"]))
    rows = [
        [
            name,
            {"insert": "inserts", "delete": "deletes", "search": "messages"}[kind],
            _format_number(step[kind]["us_per_operation"]),
            _format_number(step[kind]["operations_per_second"]),
            f"{_format_number(step[kind]['batch_p99_ms'])} ms",
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
    heading = f"`{book['dataset']}`, {result['subscriptions']:,} subscriptions that change"
    header = ["step", "what", "µs each", "a second", "p99 of a batch"]
    return _section(heading, "", header, rows, command)


def _calls(result: dict[str, Any]) -> str:
    sizes = result["sizes"]
    names = list(dict.fromkeys(row["call"] for row in result["results"]))
    found = {(row["subscriptions"], row["call"]): row for row in result["results"]}
    rows = [
        [f"`{name}`"]
        + [
            f"{_format_number(found[size, name]['mean_us'])} "
            f"({_format_number(found[size, name]['p99_us'])})"
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
    return _section("Single calls", "Mean µs (p99).", header, rows, command)


def _moving(result: dict[str, Any]) -> str:
    load, first = result["load"], result["results"][0]
    header, rows = moving_table(result)
    rows = [[f"`{row[0]}`", *row[1:]] for row in rows]
    note = (
        f"{load['subscriptions']:,} subscriptions, {load['messages']:,} "
        f"living messages; in a tick {load['arrivals']:,} messages arrive, as many expire, and "
        f"{first['moves_per_tick']:,.0f} subscriptions move; "
        f"{_format_number(first['updates_per_move'])} updates a move, "
        f"{_format_number(first['matches_per_message'])} matches a message."
    )
    least, most = load["box_share"]
    command = (
        f"nearcast bench moving --subscriptions {load['subscriptions']} "
        f"--messages {load['messages']} --ticks {result['ticks']} --dataset {load['dataset']} "
        f"--velocity {load['velocity']:g} --mobility {load['mobility']:g} "
        f"--range {least:g}-{most:g} --seed {load['seed']}"
    )
    section = _section("Moving subscriptions", note, header, rows, command)
    if result["engine"] is not None:
        section += f"\n\n{_moving_calls(result['engine'])}"
    return section


def _moving_calls(engine: dict[str, Any]) -> str:
    """Return a sentence about the calls of an engine."""
    table, message, expired = (
        engine[name]["median"]
        for name in ("us_per_table_move", "us_per_published_message", "us_per_advanced_message")
    )
    return (
        f"Whole calls of an engine: `move_table` with integer ids {_format_number(1e6 / table)} "
        f"moves a second, `publish_table` {_format_number(message)} µs a living message, `advance` "
        f"{_format_number(expired)} µs an expired one, `move` of one "
        f"{_format_number(engine['single_move_us']['median'])} µs."
    )


def _text(result: dict[str, Any]) -> str:
    row = [
        _format_number(result["us_per_message"]["median"]),
        _format_number(result["tokens_per_message"]),
        _format_number(result["bytes_per_message"]),
        f"{result['vocabulary']:,}",
    ]
    command = (
        f"nearcast bench text --dataset {result['dataset']} --messages {result['messages']} "
        f"--rounds {result['rounds']} --seed {result['seed']}"
    )
    header = ["µs/message", "tokens/message", "bytes/message", "vocabulary"]
    return _section("From text to token ids", "", header, [row], command)


def _start(result: dict[str, Any]) -> str:
    rows = [
        [
            f"`{name}`" if name.startswith("-") else name,
            f"{task['cold']['cpu_s']:.2f} s",
            f"{task['warm_cpu_s']['median']:.2f} s",
            f"{task['warm_cpu_s']['least']:.2f}-{task['warm_cpu_s']['most']:.2f} s",
        ]
        for name, task in result["tasks"].items()
    ]
    header = ["CPU to the first answer", "nothing compiled", "compiled", "least-most"]
    command = f"nearcast bench start --rounds {result['rounds']}"
    return _section("Start of a process", "", header, rows, command)


def _spark(result: dict[str, Any]) -> str:
    rows = []
    for job, key, rows_key in (
        ("build", "build_s", "subscriptions"),
        ("match", "match_s", "messages"),
    ):
        in_process = result[key]["in_process"]["median"]
        rows += [
            [
                f"{job}, {name.replace('_', ' ')}",
                f"{_format_number(spent['median'])} s",
                f"{_format_number(spent['least'])}-{_format_number(spent['most'])} s",
                _format_number(result[rows_key] / spent["median"]),
                f"{in_process / spent['median']:.2f} x",
            ]
            for name, spent in result[key].items()
        ]
    rows += [
        [
            f"prepare and count {one['read']:,}",
            f"{_format_number(one['seconds'])} s",
            f"driver grew by {_format_number(one['driver_growth_bytes'] / 1e6)} MB",
            _format_number(one["read"] / one["seconds"]),
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
    note = (
        f"{result['subscriptions']:,} subscriptions of "
        f"`{result['dataset']}`, {result['messages']:,} messages, "
        f"{_format_number(result['matches_per_message'])} matches each, {result['ids']} ids."
    )
    header = ["job", "time", "least-most", "rows a second", "one process on one thread"]
    return _section(f"Spark, {result['master']}", note, header, rows, command)


def _paper(result: dict[str, Any]) -> str:
    # Judge again: statements and explanations may have changed since the run.
    whole = find_paper(result["paper"])
    names = [figure.name for figure in whole.figures]
    measured = [name for name in result.get("figures", names) if name in names]
    experiment = whole if measured == names else whole.only(measured)
    header, rows = statement_table(judge(experiment, result))
    chosen = "" if experiment is whole else f" --figure {','.join(measured)}"
    options = result.get("options") or (
        f"--subscriptions {result['subscriptions']} --messages {result['messages']} "
        f"--rounds {result['rounds']} --seed {result['seed']}"
    )
    command = f"nearcast bench paper {experiment.name} {options}{chosen}"
    note = f"{experiment.note}. {NOTE}" if experiment.note else NOTE
    heading = f"{experiment.title}, {result['subscriptions']:,} subscriptions"
    section = _section(heading, note, header, rows, command, left=(0, 1, 6, 7))
    header, rows = summary_table(experiment, result)
    return f"{section}\n\n{_table(header, rows)}" if rows else section


def _server(result: dict[str, Any]) -> str:
    heading = f"Live server, {result['subscriptions']:,} subscriptions"
    rows, command = server_table(result), server_command(result)
    return _section(heading, server_note(result), HEADER, rows, command, left=(0, 1))


_TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "compare": _comparison,
    "churn": _churn,
    "calls": _calls,
    "moving": _moving,
    "text": _text,
    "start": _start,
    "spark": _spark,
    "server": _server,
    **{f"paper-{name}": _paper for name in (*PAPERS, *MOVING_PAPERS)},
}


def _section(
    heading: str,
    note: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    command: str,
    left: Sequence[int] = (0,),
) -> str:
    parts = [f"## {heading}", note, _table(header, rows, left), f"`{command}`"]
    return "\n\n".join(part for part in parts if part)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    rule = ["---" if column in left else "---:" for column in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *rows])


def _format_ns(value: float | None) -> str:
    return "-" if value is None else _format_number(value)


def _format_size(count: float) -> str:
    return (
        f"{_format_number(count / 1e9)} GB" if count >= 1e9 else f"{_format_number(count / 1e6)} MB"
    )


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
