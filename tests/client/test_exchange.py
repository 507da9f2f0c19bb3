"""When requests are sent again, without a network and without waiting."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client.errors import ConnectionFailed, EventsLost, InvalidAnswer, ProblemError
from nearcast.client.events import Event, Gap
from nearcast.client.exchange import (
    FIRST_CONTACT_S,
    Answer,
    Attempt,
    Failure,
    Request,
    Sleep,
    delay_s,
    document,
    json_body,
    path,
    problem_of,
    retry_after_s,
    retrying,
)
from nearcast.client.publishing import Batcher

if TYPE_CHECKING:
    from collections.abc import Iterable

REQUEST = Request("GET", "/v1/x", repeatable=True)
OK = Answer(200, {}, b"{}")


def run(
    request: Request,
    outcomes: Iterable[Answer | Failure],
    retry_s: float = 60.0,
    *,
    reached: bool = True,
) -> tuple[Answer, list[float]]:
    """Run a request with a clock that only `Sleep` moves; return the answer and the waits."""
    now = 0.0
    waits: list[float] = []
    coming = iter(outcomes)
    flow = retrying(request, retry_s, lambda: now, reached=reached)
    outcome = None
    while True:
        try:
            command = flow.send(outcome)
        except StopIteration as done:
            answer: Answer = done.value
            return answer, waits
        outcome = None
        if isinstance(command, Attempt):
            outcome = next(coming)
        elif isinstance(command, Sleep):
            now += command.seconds
            waits.append(command.seconds)


@given(st.lists(st.sampled_from([408, 429, 502, 503, 504, None]), max_size=6))
def test_a_repeatable_request_is_sent_until_it_is_answered(kinds: list[int | None]) -> None:
    outcomes = [Failure("gone", sent=True) if k is None else Answer(k, {}, b"") for k in kinds]
    answer, waits = run(REQUEST, [*outcomes, OK])
    assert answer == OK
    assert len(waits) == len(kinds)
    assert all(0.1 * 2**n <= wait <= 0.2 * 2**n for n, wait in enumerate(waits))


@given(st.sampled_from([408, 500, 502, 503, 504, None]))
def test_a_request_that_may_have_been_acted_on_is_not_repeated(kind: int | None) -> None:
    outcome = Failure("gone", sent=True) if kind is None else Answer(kind, {}, b"{}")
    with pytest.raises((ProblemError, ConnectionFailed)):
        run(Request("POST", "/v1/x"), [outcome, OK])


def test_a_request_that_nobody_has_got_is_repeated() -> None:
    outcomes: list[Answer | Failure] = [Failure("refused", sent=False), Answer(429, {}, b""), OK]
    assert run(Request("POST", "/v1/x"), outcomes)[0] == OK


def test_the_server_says_how_long_to_wait() -> None:
    busy = Answer(429, {"retry-after": "7"}, b"")
    assert run(REQUEST, [busy, OK])[1] == [7.0]
    with pytest.raises(ProblemError, match="429"):
        run(REQUEST, [busy, OK], retry_s=5)


def test_it_gives_up_in_time() -> None:
    with pytest.raises(ConnectionFailed, match="GET /v1/x: gone"):
        run(REQUEST, iter(lambda: Failure("gone", sent=True), None), retry_s=30)


def test_a_server_that_never_answered_is_given_up_soon() -> None:
    refused = Failure("connection refused", sent=False)
    outcomes = [refused] * 7 + [OK]
    assert sum(run(REQUEST, outcomes)[1]) > FIRST_CONTACT_S
    with pytest.raises(ConnectionFailed, match="refused"):
        run(REQUEST, outcomes, reached=False)
    busy = Answer(503, {"retry-after": "7"}, b"")
    assert run(REQUEST, [refused, busy, refused, OK], reached=False)[0] == OK


def test_times_to_wait_are_seconds_or_dates() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert retry_after_s(Answer(503, {"retry-after": later}, b"")) == pytest.approx(100, abs=5)
    earlier = format_datetime(datetime.now(UTC) - timedelta(days=1))
    assert retry_after_s(Answer(503, {"retry-after": earlier}, b"")) == 0
    assert retry_after_s(Answer(503, {"retry-after": "9" * 30}, b"")) == 86_400
    for unreadable in ("", "soon", "-1", "1.5", "²"):
        assert retry_after_s(Answer(503, {"retry-after": unreadable}, b"")) is None


def test_waits_grow_to_a_limit() -> None:
    assert all(5 <= delay_s(attempt) <= 10 for attempt in (6, 50, 10_000))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'"x"', b"\xff"])
def test_problems_that_are_no_documents_are_shown(body: bytes) -> None:
    error = problem_of(Answer(502, {}, body))
    assert (error.status, error.code) == (502, "UNKNOWN")
    with pytest.raises(InvalidAnswer, match="JSON object"):
        document(Answer(200, {}, body))


@given(st.text(), st.text())
def test_paths_have_one_segment_for_each_part(first: str, second: str) -> None:
    encodable = all(not 0xD800 <= ord(c) < 0xE000 for c in first + second)
    if encodable:
        assert path(first, second).count("/") == 3


def test_numbers_of_numpy_and_times_can_be_sent() -> None:
    given = {"lon": np.float32(0.5), "id": np.int64(7), "time": datetime(2026, 1, 31)}
    sent = {"lon": 0.5, "id": 7, "time": "2026-01-31T00:00:00+00:00"}
    assert json.loads(json_body(given)) == sent


@given(st.lists(st.binary(max_size=30), max_size=50), st.integers(1, 9), st.integers(1, 60))
def test_batches_keep_all_lines_in_order_within_the_limits(
    lines: list[bytes], max_lines: int, max_bytes: int
) -> None:
    batcher = Batcher(max_lines, max_bytes)
    made = [batcher.add(index, line) for index, line in enumerate(lines)]
    batches = [batch for batch in [*made, batcher.end()] if batch is not None]
    assert [line for batch in batches for line in batch.lines] == lines
    assert [index for batch in batches for index in batch.indexes] == [*range(len(lines))]
    for batch in batches:
        size = sum(len(line) + 1 for line in batch.lines)
        assert len(batch.lines) <= max_lines
        assert size <= max_bytes or len(batch.lines) == 1


def test_errors_can_be_pickled_and_say_what_is_wrong() -> None:
    gap = Gap(id="", type="gap", after="7-1", to="9-5", lost=1234)
    assert isinstance(gap, Event)
    for error in (ProblemError(404, "X", "no", [{"field": "f"}]), EventsLost(gap)):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert "1,234 events after 7-1" in str(EventsLost(gap))
