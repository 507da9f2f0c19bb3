"""``nearcast bench text`` and ``nearcast bench start``."""

from nearcast.cli.bench.options import OUT, Dataset, Json, Messages, Out, Rounds, Seed
from nearcast.cli.output import (
    format_count,
    format_seconds,
    show_json,
    show_pairs,
    show_table,
    step_progress,
)
from nearcast.extras import require

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
    """Measure what a new process takes to its first answer, with and without compiled kernels."""
    from nearcast.benchmarks.report import write_result
    from nearcast.benchmarks.start import measure_start
    from nearcast.plots.machine import machine_caption

    require("server", "nearcast bench start")
    with step_progress(not as_json, "start") as step:
        result = measure_start(rounds=rounds, step=step)
    path = out / "start.json"
    write_result(result, path)
    if as_json:
        show_json(result)
        return
    show_table(
        "seconds of CPU (on the clock), from start to answer",
        ["", "nothing compiled", "compiled", "least-most"],
        [
            [
                name,
                f"{task['cold']['cpu_s']:.2f} ({task['cold']['clock_s']:.2f})",
                f"{task['warm_cpu_s']['median']:.2f} ({task['warm_clock_s']['median']:.2f})",
                f"{task['warm_cpu_s']['least']:.2f}-{task['warm_cpu_s']['most']:.2f}",
            ]
            for name, task in result["tasks"].items()
        ],
    )
    show_pairs("", {"machine": machine_caption(result["machine"]), "written to": str(path)})
