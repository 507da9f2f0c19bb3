"""What the pictures of ranked subscriptions show: needed distances, and counted matches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from nearcast import indexes
from nearcast.cli import app
from nearcast.datasets import Workload
from nearcast.plots.ranking import count_matches, needed_space

if TYPE_CHECKING:
    from pathlib import Path

TENTHS = st.integers(0, 10).map(lambda tenths: tenths / 10)


@given(TENTHS, TENTHS, TENTHS, TENTHS)
def test_a_place_is_near_enough_exactly_if_the_score_reaches_the_threshold(
    share: float, threshold: float, text: float, space: float
) -> None:
    score = share * text + (1 - share) * space
    near_enough = space >= needed_space(share, threshold, text) - 1e-9
    assert near_enough == (score >= threshold - 1e-9)


def test_needed_space_at_the_edges() -> None:
    assert needed_space(1.0, 0.6, 0.5) == math.inf
    assert needed_space(1.0, 0.5, 0.5) == 0.0
    assert needed_space(0.0, 1.0, 0.0) == 1.0
    assert needed_space(0.5, 0.5, 0.0) == 1.0


@pytest.mark.parametrize("kind", ["proximity", "overlap"])
def test_counts_are_those_of_an_index(kind: str) -> None:
    workload = Workload("tweets", seed=3)
    messages = workload.messages(4, range_share=0.02)
    ranked = workload.ranked(400, kind, threshold=(0.1, 0.2))
    weights, thresholds = [0.0, 0.3, 1.0], [0.05, 0.4, 1.0]
    counts = count_matches(ranked, ranked.weigh(messages), weights, thresholds)
    for i, weight in enumerate(weights):
        for j, threshold in enumerate(thresholds):
            share = weight if kind == "proximity" else 1 - weight
            same = workload.ranked(
                400, kind, text_share=(share, share), threshold=(threshold, threshold)
            )
            found = indexes.create("scan").build(same).match(messages)
            assert counts.matches[i, j] == len(found) / 4
    assert counts.matches[0, 0] > 0


def test_the_command_draws_all_pictures(tmp_path: Path) -> None:
    sizes = ["--subscriptions", "50", "--messages", "3", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["bench", "sliders", *sizes])
    assert done.exit_code == 0, done.output
    for name in ("distance", "coverage", "matches"):
        assert (tmp_path / f"ranking-{name}.png").read_bytes()[:4] == b"\x89PNG"
