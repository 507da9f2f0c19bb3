"""The result of a run as a table: one row per figure, with the target if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HEADER", "server_command", "server_note", "server_table"]

HEADER = ["scenario", "figure", "median", "least-most", "target"]
PUBLISH_TARGET = 60_000
"""Messages a second that have to be on disk."""

_PUBLISH = {
    "messages_per_s": "messages/s, on disk",
    "matched_per_s": "messages/s, on disk and matched",
    "request_p50_ms": "p50 of a request, ms",
    "request_p99_ms": "p99 of a request, ms",
    "cpu_us_per_message": "CPU of the server, µs a message",
}
_STREAMS = {
    "messages_per_s": "messages/s",
    "events_per_s": "events/s",
    "server_cores": "CPU of the server, cores",
    "receipt_p50_ms": "p50 from publishing to receipt, ms",
    "receipt_p99_ms": "p99 from publishing to receipt, ms",
    "sync_p99_ms": "p99 of a bare fdatasync, ms",
}


def server_table(result: dict[str, Any]) -> list[list[str]]:
    """Return the rows of a table with the columns `HEADER`."""
    return [
        [name, *row]
        for name, measured in result["scenarios"].items()
        for row in _ROWS[name](measured, result)
    ]


def server_note(result: dict[str, Any]) -> str:
    """Return in one paragraph what was measured, and with which libraries."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return (
        f"{result['subscriptions']:,} subscriptions of `tweets`, {result['connections']:,} "
        f"streams; {versions}."
    )


def server_command(result: dict[str, Any]) -> str:
    """Return the command that repeats a run."""
    scenarios = ",".join(result["scenarios"])
    return (
        f"nearcast bench server --scenario {scenarios} --subscriptions {result['subscriptions']} "
        f"--connections {result['connections']} --messages-per-s {result['messages_per_s']} "
        f"--seconds {result['seconds']:g} --rounds {result['rounds']} --missed {result['missed']} "
        f"--minutes {result['minutes']:g} --seed {result['seed']}"
    )


def _publish_rows(measured: dict[str, Any], result: dict[str, Any]) -> Iterator[list[str]]:
    del result
    for name, title in _PUBLISH.items():
        target = f"{PUBLISH_TARGET:,} or more" if name == "messages_per_s" else ""
        yield [title, *_spread(measured[name]), target]


def _stream_rows(measured: dict[str, Any], result: dict[str, Any]) -> Iterator[list[str]]:
    for load, share in (("full", 1.0), ("half", 0.5)):
        one = measured[load]
        rate = result["messages_per_s"] * share
        targets = {"messages_per_s": f"{rate:,.0f}", "events_per_s": f"{4 * rate:,.0f}"}
        if load == "half":
            targets["receipt_p99_ms"] = f"{_number(one['limit_ms'])} or less"
        for name, title in _STREAMS.items():
            yield [f"{load} load: {title}", _number(one[name]), "", targets.get(name, "")]


def _restart_rows(measured: dict[str, Any], result: dict[str, Any]) -> Iterator[list[str]]:
    del result
    target = "10 or less"
    yield ["to the first answer, after a stop, s", *_spread(measured["after_stop_s"]), target]
    yield ["to the first answer, after a kill, s", *_spread(measured["after_kill_s"]), target]


_MEMORY = {
    "first_bytes": "in the first minute, MB",
    "last_bytes": "in the last minute, MB",
    "most_bytes": "most, MB",
    "first_own_bytes": "without pages of files, in the first minute, MB",
    "last_own_bytes": "without pages of files, in the last minute, MB",
}


def _memory_rows(measured: dict[str, Any], result: dict[str, Any]) -> Iterator[list[str]]:
    del result
    for name, title in _MEMORY.items():
        yield [title, _number(measured[name] / 1e6), "", ""]
    slope = measured["own_slope_bytes_per_minute"] / 1e6
    yield ["growth of that in the second half, MB a minute", f"{slope:.3g}", "", ""]


def _missed_rows(measured: dict[str, Any], result: dict[str, Any]) -> Iterator[list[str]]:
    del result
    yield ["messages, and their events", f"{measured['messages']:,}", f"{measured['events']:,}", ""]
    for name in ("cold", "warm"):
        first = {key: 1e3 * value for key, value in measured[name]["first_s"].items()}
        yield [f"{name}: to the first event, ms", *_spread(first), "100 or less"]
        one = measured[name]
        yield [f"{name}: to all {one['events']:,} events, s", _number(one["all_s"]), "", ""]


_ROWS = {
    "publish": _publish_rows,
    "streams": _stream_rows,
    "restart": _restart_rows,
    "memory": _memory_rows,
    "missed": _missed_rows,
}


def _spread(values: dict[str, float]) -> tuple[str, str]:
    return _number(values["median"]), f"{_number(values['least'])}-{_number(values['most'])}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
