"""``nearcast bench text`` and ``nearcast bench start``."""

from nearcast.cli.bench.options import OUT, Dataset, Json, Messages, Out, Rounds, Seed
from nearcast.cli.output import format_count, format_seconds, show_json, show_pairs, step_progress

__all__ = ["start", "text"]


def text(
    dataset: Dataset = "tweets",
    messages: Messages = 100_000,
    rounds: Rounds = 5,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Measure how fast texts are split into words and looked up, in batches of short messages."""
    from nearcast.benchmarks.report import write_result
    from nearcast.benchmarks.text import measure_text
    from nearcast.plots.machine import machine_caption

    with step_progress(not as_json, "text") as step:
        result = measure_text(dataset, messages, rounds=rounds, seed=seed, step=step)
    path = out / f"text-{dataset}.json"
    write_result(result, path)
    if as_json:
        show_json(result)
        return
    timing = result["us_per_message"]
    show_pairs(
        "from text to token ids",
        {
            "µs/message": format_count(timing["median"]),
            "least-most": f"{format_count(timing['least'])}-{format_count(timing['most'])}",
            "tokens/message": format_count(result["tokens_per_message"]),
            "bytes/message": format_count(result["bytes_per_message"]),
            "vocabulary": format_count(result["vocabulary"]),
            "compiling or loading kernels": format_seconds(result["compile_s"]),
            "machine": machine_caption(result["machine"]),
            "written to": str(path),
        },
    )


def start(rounds: Rounds = 3, out: Out = OUT, as_json: Json = False) -> None:
    """Measure the start of a process: the import, and the first match with and without a cache."""
    from nearcast.benchmarks.report import write_result
    from nearcast.benchmarks.start import measure_start
    from nearcast.plots.machine import machine_caption

    with step_progress(not as_json, "start") as step:
        result = measure_start(rounds=rounds, step=step)
    path = out / "start.json"
    write_result(result, path)
    if as_json:
        show_json(result)
        return
    show_pairs(
        "start",
        {
            "import nearcast": format_seconds(result["import_s"]["median"]),
            "first match, with compilation of kernels": format_seconds(
                result["first_match_empty_cache_s"]
            ),
            "first match, with cached kernels": format_seconds(result["first_match_s"]["median"]),
            "machine": machine_caption(result["machine"]),
            "written to": str(path),
        },
    )
