"""``nearcast bench compare``: compare indexes on one workload."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.bench.options import DATA, MEASURING, OUT, Dataset, Json, Kind, Out, Rounds, Seed
from nearcast.cli.commands import FILES, NUMBER
from nearcast.cli.options import misuse, parse_index_options, parse_names
from nearcast.cli.output import (
    format_count,
    format_seconds,
    format_size,
    show_json,
    show_table,
    step_progress,
)
from nearcast.cli.ranked_options import (
    Alpha,
    Delta,
    Distance,
    MaxDistance,
    Similarity,
    Tau,
    Theta,
    parse_ranges,
)
from nearcast.cli.reading_options import (
    Columns,
    Delimiters,
    Encodings,
    Formats,
    MadeIds,
    ReadingOptions,
)

if TYPE_CHECKING:
    from nearcast.benchmarks.compare import Comparison
    from nearcast.benchmarks.ranking import Ranking
    from nearcast.indexes import Builder

__all__ = ["compare"]


def compare(
    context: typer.Context,
    dataset: Dataset = "tweets",
    kind: Annotated[
        Kind,
        typer.Option(
            metavar="boolean|proximity|overlap",
            rich_help_panel=DATA,
            help="Kind of subscriptions: boolean, or ranked by proximity or by overlap.",
        ),
    ] = Kind.BOOLEAN,
    subscriptions: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=DATA,
            show_default="100,000; all rows of a file",
            help="Number of subscriptions.",
        ),
    ] = None,
    messages: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=DATA,
            show_default="10,000; all rows of a file",
            help="Number of messages.",
        ),
    ] = None,
    subscriptions_file: Annotated[
        Path | None,
        typer.Option(
            metavar=FILES,
            rich_help_panel=DATA,
            help="Your own subscriptions instead of generated ones: any file that nearcast match "
            "reads.",
        ),
    ] = None,
    messages_file: Annotated[
        Path | None,
        typer.Option(
            metavar=FILES,
            rich_help_panel=DATA,
            help="Your own messages; needs --subscriptions-file, too.",
        ),
    ] = None,
    index: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            rich_help_panel=MEASURING,
            show_default="all of the kind, except scans",
            help="Indexes to compare. NAME:OPTION=VALUE sets an option; MODULE:CLASS is an index "
            "of your own.",
        ),
    ] = "",
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            rich_help_panel=DATA,
            show_default="short-point; mean-12 if ranked",
            help="Groups of messages to generate: number of words (short, long, mean-12 or "
            "mean-41), then -point or -range (rectangles); or all for those of the kind.",
        ),
    ] = "",
    range_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            rich_help_panel=DATA,
            show_default="0.0001; 0.01 for overlap",
            help="Largest area of a message in groups with -range, as a share of the world.",
        ),
    ] = None,
    rounds: Rounds = 5,
    sample: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=MEASURING,
            help="Number of messages for which each index must agree with an exhaustive scan; "
            "more if they have fewer than 100 matches.",
        ),
    ] = 20,
    threads: Annotated[
        int,
        typer.Option(metavar=NUMBER, min=1, rich_help_panel=MEASURING, help="Number of threads."),
    ] = 1,
    delta: Delta = None,
    tau: Tau = None,
    max_distance_m: MaxDistance = None,
    alpha: Alpha = None,
    theta: Theta = None,
    similarity: Similarity = "containment",
    distance: Distance = "geodesic",
    column: Columns = None,
    id: MadeIds = None,
    encoding: Encodings = None,
    delimiter: Delimiters = None,
    format: Formats = None,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Compare the speed and the size of indexes, on generated data or on your own files.

    Each index is checked first: its matches for a sample must be those of an exhaustive scan, and
    all indexes must find the same number of matches. Writes a JSON file and a plot for each group
    of messages.
    """
    from nearcast.benchmarks.compare import compare as run
    from nearcast.benchmarks.plot_compare import plot_comparison
    from nearcast.benchmarks.report import compare_command, write_result

    measured = {"rounds": rounds, "sample": sample, "threads": threads}
    reading = ReadingOptions(column, id, encoding, delimiter, format)
    ranges = {
        "delta": delta,
        "tau": tau,
        "max_distance_m": max_distance_m,
        "alpha": alpha,
        "theta": theta,
    }
    if subscriptions_file is None and messages_file is None:
        if reading.to_arguments():
            raise misuse(reading.to_arguments()[0], "is for files, not for generated data")
        ranking = _ranking(kind.value, (similarity, distance), **ranges)
        counts = subscriptions or 100_000, messages or 10_000
        builders = _builders(index, kind.value)
        plan = _drawn(
            dataset,
            counts,
            builders,
            (kind.value, ranking, group, range_share),
            seed=seed,
            **measured,
        )
    else:
        if _is_given(context, "kind"):
            raise misuse("--kind", "is read from --subscriptions-file; leave it out")
        drawing = {name: _is_given(context, name) or None for name in ("dataset", "seed")}
        _refuse_with_files(group=group or None, range_share=range_share, **drawing, **ranges)
        paths, maxima = (subscriptions_file, messages_file), (subscriptions, messages)
        plan = _of_files(paths, maxima, (similarity, distance), index, reading, **measured)
    with step_progress(not as_json, "comparing") as step:
        results = run(plan, step)
    for result in results:
        first = result["group"] == "short-point"
        prefix = "compare-" if plan.kind == "boolean" else f"compare-{plan.kind}-"
        name = f"{prefix}{plan.dataset}-{plan.subscriptions}"
        name += "" if first else f"-{result['group']}"
        result["command"] = compare_command([result])
        write_result(result, out / f"{name}.json")
        plot_comparison(result, out / f"{name}.png")
        if not as_json:
            _show(result, out / name)
    if as_json:
        show_json(results if len(results) > 1 else results[0])


def _drawn(
    dataset: str,
    counts: tuple[int, int],
    builders: "dict[str, Builder]",
    load: "tuple[str, Ranking | None, str, float | None]",
    **more: Any,
) -> "Comparison":
    """Return a comparison on a data set that is drawn."""
    from nearcast.benchmarks.compare import GROUPS_OF_KIND, RANGE_SHARES, Comparison

    kind, ranking, group, range_share = load
    groups = GROUPS_OF_KIND[kind]
    return Comparison(
        dataset,
        *counts,
        builders,
        groups=groups if group == "all" else tuple(parse_names(group)) or groups[:1],
        range_share=RANGE_SHARES[kind] if range_share is None else range_share,
        ranking=ranking,
        **more,
    )


def _of_files(
    paths: tuple[Path | None, Path | None],
    counts: tuple[int | None, int | None],
    scoring: tuple[str, str],
    index: str,
    reading: ReadingOptions,
    **more: int,
) -> "Comparison":
    """Return a comparison on files; the kind of the subscriptions is theirs."""
    from nearcast.benchmarks.compare import Comparison
    from nearcast.benchmarks.own_files import OwnFiles
    from nearcast.columns import Scoring

    subscriptions, messages = paths
    if subscriptions is None or messages is None:
        missing = "--subscriptions-file" if subscriptions is None else "--messages-file"
        raise misuse(missing, "is missing; give both --subscriptions-file and --messages-file")
    files = OwnFiles(
        subscriptions,
        messages,
        *counts,
        Scoring(*scoring),
        reading.readings({"subscriptions": subscriptions, "messages": messages}),
        reading.to_arguments(),
    )
    loaded = files.load()
    return Comparison.of_files(files.name, loaded, _builders(index, loaded.kind), **more)


def _is_given(context: typer.Context, name: str) -> bool:
    """Return whether an option was written on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _refuse_with_files(**options: object) -> None:
    """Raise an error if an option was given that says how data is drawn."""
    for name, value in options.items():
        if value is not None:
            problem = "is for generated data, not for files"
            raise misuse(f"--{name.replace('_', '-')}", problem)


def _builders(names: str, kind: str) -> "dict[str, Builder]":
    """Parse ``a,b:option=value``; each whole item is also the name in the report."""
    from nearcast import indexes
    from nearcast.benchmarks.ranking import compared_names
    from nearcast.indexes.registry import option_classes

    builders = {}
    for label in parse_names(names) or compared_names(kind):
        name, *options = label.split(":")
        if name not in indexes.names() and options and "=" not in options[0]:
            name = f"{name}:{options.pop(0)}"  # one's own, as module:Class
        form = "NAME:OPTION=VALUE"
        values = parse_index_options(options, option_classes(name), "--index", form)
        builders[label] = indexes.create(name, **values)
    return builders


def _ranking(kind: str, scoring: tuple[str, str], **texts: str | None) -> "Ranking | None":
    """Return the ranges of ranked subscriptions; None for boolean ones."""
    from nearcast.benchmarks.ranking import RANKED_KINDS, Ranking
    from nearcast.columns import Scoring

    kinds = (kind,) if kind in RANKED_KINDS else ()
    ranges = parse_ranges(kinds, "--kind", **texts)
    return Ranking(kind, **ranges[kind], scoring=Scoring(*scoring)) if kinds else None


def _show(result: dict[str, Any], stem: Path) -> None:
    from nearcast.benchmarks.report import describe_checks, describe_ranking, fewer_messages
    from nearcast.plots.machine import machine_caption

    ranked = result["ranking"] is not None
    header = [
        "index",
        "µs/message",
        "least-most",
        "messages/s",
        *(["ns/match"] if ranked else []),
        "matches/msg",
        "examined/msg",
        "visited/msg",
        "bytes/sub",
        "build",
        "peak",
        "compile",
    ]
    rows = [
        [
            r["index"] + (f" ({few})" if (few := fewer_messages(result, r)) else ""),
            format_count(r["us_per_message"]["median"]),
            f"{format_count(r['us_per_message']['least'])}-{format_count(r['us_per_message']['most'])}",
            format_count(round(r["messages_per_second"])),
            *([format_count(r["ns_per_match"]) if r["ns_per_match"] else "-"] if ranked else []),
            format_count(r["matches_per_message"]),
            format_count(r["examined_per_message"]),
            format_count(r["visited_per_message"]),
            format_count(r["bytes_per_subscription"]),
            format_seconds(r["build_s"]),
            format_size(r["build_peak_bytes"]),
            format_seconds(r["compile_s"]),
        ]
        for r in result["results"]
    ]
    rounds = "1 round" if result["rounds"] == 1 else f"{result['rounds']:,} rounds"
    title = (
        f"{result['dataset']}, {result['subscriptions']:,} {describe_ranking(result)}, "
        f"{result['messages']:,} {result['group']} messages, {rounds}"
    )
    caption = f"{describe_checks(result)}\n{machine_caption(result['machine'])}"
    caption += f"\n{stem}.json, {stem}.png"
    rejected = result.get("files", {}).get("rejected", {})
    if any(rejected.values()):
        rows_of = ", ".join(f"{count:,} {name}" for name, count in rejected.items() if count)
        caption += f"\ninvalid rows that were skipped: {rows_of}; nearcast match shows the reasons"
    show_table(title, header, rows, caption)
