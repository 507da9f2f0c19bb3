"""`make attack`: a cheap attack runs, and the judge fails what it must; the others run there."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from attack.__main__ import ATTACKS
from attack.generated import changed, valid_requests
from attack.judging import HEALTH_MS, KEPT_MB, Measured, is_slow, judged, table
from attack.measuring import Target, measure
from attack.sending import Effort

if TYPE_CHECKING:
    from pathlib import Path

FINE = Measured(1_000, {200: 10, 400: 987, 503: 3}, 212.0, 12.0, 300.0, 340.0, 310.0)
SLOW = replace(FINE, own_ms=HEALTH_MS + 1)


def test_cheap_attacks_are_measured(tmp_path: Path) -> None:
    with Target(tmp_path / "server") as target:
        for name in ("ambiguous", "odd-values", "limits-at-once"):
            seen = measure(ATTACKS[name], target, Effort(False, random.Random(0)))
            assert seen.requests >= sum(seen.statuses.values()) > 5
            assert (seen.wrong, seen.ended, seen.server_errors) == ((), False, 0)
            assert 0 < seen.before_mb <= seen.most_mb


def test_an_attack_that_ends_the_server_is_noticed(tmp_path: Path) -> None:
    def end(target: Target, *_: object) -> None:
        target.live.kill()

    attack = replace(ATTACKS["ambiguous"], run=end)
    with Target(tmp_path / "server") as target:
        seen = measure(attack, target, Effort(False, random.Random(0)))
    assert seen.ended
    assert judged("end", [seen]).faults == ("the server has ended",)


def test_a_server_that_survives() -> None:
    verdict = judged("fine", [FINE])
    assert verdict.faults == ()
    assert [line.split() for line in table([verdict])[1:]] == [
        ["fine", "1,000", "3", "212.0", "12.0", "300", "340", "310"]
    ]


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (replace(FINE, statuses={200: 1, 500: 2}), "2 answers were 500"),
        (replace(FINE, statuses={502: 1}), "1 answers were 502"),
        (replace(FINE, ended=True, after_mb=0.0), "the server has ended"),
        (replace(FINE, after_mb=FINE.before_mb + KEPT_MB + 1), "51 MB were kept"),
        (replace(FINE, wrong=("it gave way",)), "it gave way"),
    ],
)
def test_what_a_server_must_not_do(seen: Measured, fault: str) -> None:
    verdict = judged("bad", [seen])
    assert [found.partition(";")[0] for found in verdict.faults] == [fault]
    assert any(fault in line for line in table([verdict]))


def test_the_median_of_three_tries_says_whether_a_server_is_slow() -> None:
    assert is_slow(SLOW)
    assert not is_slow(FINE)
    assert not is_slow(replace(SLOW, ended=True))
    assert judged("noise", [SLOW, FINE, FINE]).faults == ()
    [fault] = judged("slow", [SLOW, SLOW, FINE]).faults
    assert fault.startswith("/healthz took 101, 101, 12 ms at worst")


def test_changed_requests_are_different_and_the_same_for_a_seed() -> None:
    requests = valid_requests("nc_key")

    def drawn() -> list[bytes]:
        chance = random.Random(1)
        return [changed(chance.choice(requests), chance) for _ in range(500)]

    found = drawn()
    assert found == drawn()
    assert len(set(found) - set(requests)) > 450
