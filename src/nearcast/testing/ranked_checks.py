"""The checks that every index for ranked subscriptions must pass."""

from __future__ import annotations

import functools
import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nearcast import indexes
from nearcast.columns import Matches, Messages
from nearcast.indexes import Builder, UpdatableIndex
from nearcast.testing.ranked_cases import RANKED_CASES, SCORINGS, RankedCase, draw_ranked

if TYPE_CHECKING:
    from nearcast.columns import Scoring

__all__ = ["RANKED_CHECKS"]

Check: TypeAlias = Callable[[Builder, int], None]

SCORE_MARGIN = 1e-11
"""The largest difference between two evaluations of a score."""


def assert_same_scores(case: str, messages: Messages, got: Matches, expected: Matches) -> None:
    """Raise `AssertionError` with the first difference between two sets of scored matches."""
    assert len(got.start) == len(messages) + 1, f"{case}: start must be one longer than messages"
    assert got.score is not None, f"{case}: matches have no scores"
    assert expected.score is not None
    found = dict(
        zip(
            zip(got.message.tolist(), got.subscription.tolist(), strict=True),
            got.score.tolist(),
            strict=True,
        )
    )
    wanted = dict(
        zip(
            zip(expected.message.tolist(), expected.subscription.tolist(), strict=True),
            expected.score.tolist(),
            strict=True,
        )
    )
    for problem, pairs in (
        ("missing", wanted.keys() - found.keys()),
        ("wrong", found.keys() - wanted.keys()),
    ):
        if pairs:
            message, row = min(pairs)
            score = wanted.get((message, row), found.get((message, row)))
            raise AssertionError(
                f"{case}: {len(pairs)} {problem} matches, {len(wanted)} expected; first: message "
                f"{message} (box {messages.box[message].tolist()}), subscription {row}, {score}"
            )
    assert len(got) == len(found), f"{case}: {len(got) - len(found)} duplicate matches"
    for pair, score in wanted.items():
        same = abs(found[pair] - score) <= SCORE_MARGIN
        assert same, f"{case}: {pair} has the score {found[pair]!r}, expected {score!r}"


def scan_ranked(case: RankedCase) -> Matches:
    """Return the matches of a case as the scan finds them."""
    return indexes.create("scan").build(case.ranked).match(case.messages)


@functools.lru_cache(8 * len(RANKED_CASES) * len(SCORINGS))
def _draw_and_scan(name: str, kind: str, scoring: Scoring, seed: int) -> tuple[RankedCase, Matches]:
    """Draw a case and scan it, once for all indexes that are checked."""
    case = draw_ranked(name, kind, scoring, seed)
    return case, scan_ranked(case)


def check_ranked_case(
    builder: Builder, case: RankedCase, expected: Matches | None = None
) -> Matches:
    """Compare the matches of one case with the scan's; ``examined`` must cover all matches."""
    expected = scan_ranked(case) if expected is None else expected
    got = builder.build(case.ranked).match(case.messages)
    scoring = case.ranked.scoring
    label = f"{case.name} ({case.ranked.kind}, {scoring.similarity}, {scoring.distance})"
    assert_same_scores(label, case.messages, got, expected)
    assert got.examined >= len(got), f"{label}: {got.examined} examined, {len(got)} matches"
    return got


def _kinds(builder: Builder) -> list[str]:
    """Return the ranked kinds that the index of a builder takes."""
    return [kind for kind in builder.kinds if kind != "boolean"]


def _scorings(case: str, seed: int) -> Sequence[Scoring]:
    """Return a third of the scorings: three seeds in a row, or three cases, have all of them."""
    return SCORINGS[(list(RANKED_CASES).index(case) + seed) % 3 :: 3]


def _check_named_case(name: str) -> Check:
    def check(builder: Builder, seed: int) -> None:
        for kind in _kinds(builder):
            for scoring in _scorings(name, seed):
                check_ranked_case(builder, *_draw_and_scan(name, kind, scoring, seed))

    check.__name__ = f"agrees_on_ranked_{name}"
    check.__doc__ = f"Compare with the scan: {(RANKED_CASES[name].__doc__ or '').splitlines()[0]}"
    return check


def ranked_empty_inputs(builder: Builder, seed: int) -> None:
    """Without subscriptions, without messages, or without both, there are no matches."""
    for kind in _kinds(builder):
        case = draw_ranked("lattice", kind, seed=seed)
        nobody, no_messages = case.ranked.take(np.empty(0, np.int64)), Messages.of([], [])
        for ranked in (case.ranked, nobody):
            for messages in (case.messages, no_messages):
                if ranked is nobody or messages is no_messages:
                    if ranked is nobody and kind == "overlap":
                        continue  # an empty set counts as proximity
                    got = builder.build(ranked).match(messages)
                    assert len(got) == 0, f"{len(got)} matches, expected none"
                    assert len(got.start) == len(messages) + 1


def ranked_threads_agree(builder: Builder, seed: int) -> None:
    """Any number of threads gives the same matches and the same bits of their scores."""
    for kind in _kinds(builder):
        case = draw_ranked("ranges", kind, seed=seed)
        index = builder.build(case.ranked)
        expected = _scores(index.match(case.messages))
        for threads in (2, 3, len(case.messages) + 1):
            assert _scores(index.match(case.messages, threads=threads)) == expected


def ranked_batches_agree(builder: Builder, seed: int) -> None:
    """Match one message at a time; expect the same bits as for one batch."""
    for kind in _kinds(builder):
        case = draw_ranked("crowd", kind, seed=seed)
        index = builder.build(case.ranked)
        single = [index.match(case.messages.take(np.array([m]))) for m in range(len(case.messages))]
        assert _scores(Matches.concatenate(single)) == _scores(index.match(case.messages))


def same_bits_as_linear(builder: Builder, seed: int) -> None:
    """Scores have the bits that the small form of an index gives them: merging changes none."""
    if builder.index.name == "scan":
        return
    for kind in _kinds(builder):
        for name in ("near", "ranges", "crowd", "long_messages"):
            for scoring in _scorings(name, seed):
                case = draw_ranked(name, kind, scoring, seed)
                small = builder.build_small(case.ranked).match(case.messages)
                assert _scores(builder.build(case.ranked).match(case.messages)) == _scores(small)


def ranked_save_and_load(builder: Builder, seed: int) -> None:
    """Save and load the index, and pickle it; expect the same bits."""
    for kind in _kinds(builder):
        case = draw_ranked("conditions", kind, SCORINGS[2], seed)
        index = builder.build(case.ranked)
        expected = _scores(index.match(case.messages))
        with tempfile.TemporaryDirectory() as folder:
            index.save(Path(folder) / "index")
            loaded = [type(index).load(Path(folder) / "index")]
            if index.name in indexes.names():
                loaded.append(indexes.load(Path(folder) / "index"))
            for copy in loaded:
                assert _scores(copy.match(case.messages)) == expected
                assert copy.options == index.options
                assert copy.nbytes == index.nbytes
        copy = pickle.loads(pickle.dumps(index))
        assert _scores(copy.match(case.messages)) == expected


def ranked_updates_agree(builder: Builder, seed: int) -> None:
    """After inserts and deletes, the matches are those of a scan of the remaining rows.

    Applies to indexes that can be changed in place.
    """
    for kind in _kinds(builder):
        for scoring in (SCORINGS[seed % len(SCORINGS)], SCORINGS[2]):
            _check_updates(builder, draw_ranked("crowd", kind, scoring, seed), seed)


def _check_updates(builder: Builder, case: RankedCase, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.arange(len(case.ranked))
    inserted = 2 * len(rows) // 20
    index = builder.build(case.ranked.take(rows[:inserted]))
    if not isinstance(index, UpdatableIndex):
        return
    alive = set(range(inserted))
    scan = indexes.create("scan").build(case.ranked)
    whole = scan.match(case.messages)
    for _ in range(12):
        if rng.random() < 0.5:
            last = min(inserted + len(rows) // 20, len(rows))
            index.insert(case.ranked.take(rows[inserted:last]))
            alive |= set(range(inserted, last))
            inserted = last
        else:
            deleted = rng.choice(sorted(alive), min(len(rows) // 40, len(alive)), replace=False)
            index.delete(deleted)
            alive -= set(deleted.tolist())
        position = np.flatnonzero(np.isin(whole.subscription, sorted(alive)))
        start = np.searchsorted(position, whole.start)
        expected = whole.keep(start, position)
        assert_same_scores("updates", case.messages, index.match(case.messages), expected)


def _scores(matches: Matches) -> dict[tuple[int, int], float]:
    assert matches.score is not None
    pairs = zip(matches.message.tolist(), matches.subscription.tolist(), strict=True)
    return dict(zip(pairs, matches.score.tolist(), strict=True))


RANKED_CHECKS: tuple[Check, ...] = (
    *(_check_named_case(name) for name in RANKED_CASES),
    ranked_empty_inputs,
    ranked_threads_agree,
    ranked_batches_agree,
    same_bits_as_linear,
    ranked_save_and_load,
    ranked_updates_agree,
)
"""All checks of ranked indexes. Each is a function of a builder and a seed."""
