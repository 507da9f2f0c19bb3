"""``nearcast bench server``: a tiny run of every scenario, and the parts that count."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from nearcast.benchmarks.server import load, scenarios
from nearcast.benchmarks.server.load import Latencies, PublishResult, StreamResult
from nearcast.benchmarks.server.scenarios import SCENARIOS, Sizes
from nearcast.cli import app
from nearcast.errors import InvalidInput, NearcastError

if TYPE_CHECKING:
    from pathlib import Path

TINY = (
    "--subscriptions 1000 --connections 20 --messages-per-s 500 --seconds 1 --rounds 1 "
    "--missed 20000 --minutes 0.02"
).split()


def test_publishing_is_measured(tmp_path: Path) -> None:
    command = ["bench", "server", *TINY, "--scenario", "publish", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    [publishing] = json.loads(done.stdout)["scenarios"]["publish"]["rounds"]
    assert publishing["messages"] > 0


@pytest.mark.long
def test_every_scenario_runs_and_nothing_is_lost(tmp_path: Path) -> None:
    command = ["bench", "server", *TINY, "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert json.loads((tmp_path / "server.json").read_text()) == result
    assert [path.name for path in tmp_path.iterdir()] == ["server.json"]
    measured = result["scenarios"]
    assert list(measured) == list(SCENARIOS)

    [publishing] = measured["publish"]["rounds"]
    assert publishing["messages"] > 0
    assert measured["publish"]["messages_per_s"]["median"] == publishing["messages_per_s"]

    # Each message has one of five tags, and each tag has four subscribers. The run itself fails if
    # one of them receives another number of events, or one twice.
    loads = [measured["streams"]["full"], measured["streams"]["half"], measured["memory"]["load"]]
    assert [one["messages"] for one in loads] == [500, 250, 600]
    assert all(one["events"] == 4 * one["messages"] for one in loads)
    assert all(0 < one["receipt_p50_ms"] <= one["receipt_p99_ms"] for one in loads)

    assert measured["restart"]["after_stop_s"]["least"] > 0
    assert measured["restart"]["after_kill_s"]["least"] > 0
    assert measured["memory"]["most_bytes"] >= measured["memory"]["first_bytes"] > 0

    assert measured["missed"]["events"] == 80_000
    for name in ("cold", "warm"):
        assert measured["missed"][name]["events"] == 4_000
        assert 0 < measured["missed"][name]["first_s"]["least"] < measured["missed"][name]["all_s"]

    page = tmp_path / "page.md"
    page.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
    tables = ["bench", "tables", str(tmp_path / "server.json"), "--file", str(page)]
    done = CliRunner().invoke(app, tables)
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "| publish | messages/s, on disk | " in text
    assert "nearcast bench server --scenario publish,streams,restart,memory,missed" in text


def test_unknown_scenarios_and_odd_sizes_are_refused(tmp_path: Path) -> None:
    command = ["bench", "server", "--scenario", "publish,tea", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "unknown scenario 'tea'" in done.stderr
    with pytest.raises(InvalidInput, match="multiple of 4"):
        Sizes(connections=10)


def test_lost_and_repeated_events_are_errors() -> None:
    def received(*counts: int, disordered: int = 0, lost: int = 0) -> StreamResult:
        return StreamResult([*counts], disordered, lost, 1.0, 1.0, 0)

    scenarios._check_received(received(2, 3), [2, 3])
    for wrong in (received(2, 2), received(2, 4), received(2, 3, disordered=1)):
        with pytest.raises(NearcastError, match="came twice or too late"):
            scenarios._check_received(wrong, [2, 3])
    with pytest.raises(NearcastError, match="did not stay open"):
        scenarios._check_received(received(2, 3, lost=1), [2, 3])


def test_messages_that_were_not_written_are_errors() -> None:
    result = PublishResult(100, [100], 1.0, 1.0, 1.0, 1, 100, 0, 0)
    scenarios._check_published(result)
    with pytest.raises(NearcastError, match="200 were written"):
        scenarios._check_published(result._replace(last_seq=200))
    with pytest.raises(NearcastError, match="refused 3 requests"):
        scenarios._check_published(result._replace(refused=3))


def _frame(seq: int, due_ns: int) -> bytes:
    body = b'{"id":"7-%d","data":{"message":{"text":"tea","properties":{"t":%d}}}}' % (seq, due_ns)
    event = b"id: 7-%d\nevent: match\ndata: %s\n\n" % (seq, body)
    return b"%x\r\n%s\r\n" % (len(event), event)


@given(st.lists(st.integers(1, 6), max_size=20), st.lists(st.integers(0, 2_000), max_size=30))
def test_streams_count_events_however_they_arrive(seqs: list[int], cuts: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\n: open\n\n\r\n"
    sent = head + b"".join(_frame(seq, 1_000) for seq in seqs) + b"a\r\nid: 7-99\n\n\r\n"
    latencies = Latencies()
    stream = load._Stream(latencies)
    edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    for begin, end in pairwise(edges):
        stream.data_received(sent[begin:end])
    assert stream.open
    assert stream.received == len(seqs)
    repeated = sum(b <= a for a, b in pairwise(seqs))
    assert stream.disordered == repeated


def test_quantiles_are_those_of_the_values() -> None:
    latencies = Latencies()
    for ms in range(1, 101):
        latencies.add(ms * 1_000_000 - 1)
    assert latencies.quantile_ms(0.5) == pytest.approx(50.0)
    assert latencies.quantile_ms(0.99) == pytest.approx(99.0)
    assert Latencies().quantile_ms(0.5) == 0.0
