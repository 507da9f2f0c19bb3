"""The checks that every index must pass, and `check_index`, which runs them."""

from __future__ import annotations

import functools
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from nearcast import indexes
from nearcast.columns import Clauses, Matches, Messages
from nearcast.indexes import Builder, UpdatableIndex
from nearcast.testing.cases import CASES, Case, draw
from nearcast.testing.ranked_checks import RANKED_CHECKS

__all__ = ["CHECKS", "check_index"]

Check: TypeAlias = Callable[[Builder, int], None]


def assert_same(case: str, messages: Messages, got: Matches, expected: Matches) -> None:
    """Raise `AssertionError` with the first difference between two sets of matches."""
    got_pairs, expected_pairs = got.pairs(), expected.pairs()
    missing = sorted(expected_pairs - got_pairs)
    wrong = sorted(got_pairs - expected_pairs)
    for problem, pairs in (("missing", missing), ("wrong", wrong)):
        if pairs:
            message, row = pairs[0]
            raise AssertionError(
                f"{case}: {len(pairs)} {problem} matches, {len(expected_pairs)} expected; "
                f"first: message {message} (box {messages.box[message].tolist()}), "
                f"subscription {row}"
            )
    assert len(got) == len(got_pairs), f"{case}: {len(got) - len(got_pairs)} duplicate matches"
    assert len(got.start) == len(messages) + 1, f"{case}: start must be one longer than messages"


def check_case(builder: Builder, case: Case, expected: Matches | None = None) -> None:
    """Compare the matches of one case with the scan's; ``examined`` must cover all matches."""
    expected = scan_case(case) if expected is None else expected
    got = builder.build(case.clauses).match(case.messages)
    assert_same(case.name, case.messages, got, expected)
    assert got.examined >= len(got), f"{case.name}: {got.examined} examined, {len(got)} matches"


def scan_case(case: Case) -> Matches:
    """Return the matches of a case as the scan finds them."""
    return indexes.create("scan").build(case.clauses).match(case.messages)


@functools.lru_cache(2 * len(CASES))
def _draw_and_scan(name: str, seed: int) -> tuple[Case, Matches]:
    """Draw a case and scan it, once for all indexes that are checked: circles take long."""
    case = draw(name, seed)
    return case, scan_case(case)


def _check_named_case(name: str) -> Check:
    def check(builder: Builder, seed: int) -> None:
        check_case(builder, *_draw_and_scan(name, seed))

    check.__name__ = f"agrees_on_{name}"
    check.__doc__ = f"Compare with the scan: {(CASES[name].__doc__ or '').splitlines()[0]}"
    return check


def empty_inputs(builder: Builder, seed: int) -> None:
    """Without clauses, without messages, or without both, there are no matches."""
    case = draw("lattice", seed)
    no_clauses, no_messages = Clauses.empty(), Messages.of([], np.empty((0, 2)))
    for clauses in (case.clauses, no_clauses):
        for messages in (case.messages, no_messages):
            if clauses is no_clauses or messages is no_messages:
                got = builder.build(clauses).match(messages)
                assert len(got) == 0, f"{len(got)} matches, expected none"
                assert len(got.start) == len(messages) + 1


def threads_agree(builder: Builder, seed: int) -> None:
    """Any number of threads gives the same matches, even more threads than messages."""
    case = draw("alternatives", seed)
    index = builder.build(case.clauses)
    expected = index.match(case.messages)
    for threads in (2, 3, len(case.messages) + 1):
        got = index.match(case.messages, threads=threads)
        assert_same(f"{threads} threads", case.messages, got, expected)


def batches_agree(builder: Builder, seed: int) -> None:
    """Match one message at a time; expect the same matches as for one batch."""
    case = draw("crowd", seed)
    index = builder.build(case.clauses)
    parts = [index.match(case.messages.take(np.array([m]))) for m in range(len(case.messages))]
    assert_same("batches", case.messages, Matches.concatenate(parts), index.match(case.messages))


def save_and_load(builder: Builder, seed: int) -> None:
    """Save and load the index, and pickle it; expect the same matches."""
    case = draw("alternatives", seed)
    index = builder.build(case.clauses)
    expected = index.match(case.messages)
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        loaded = [type(index).load(Path(folder) / "index")]
        if index.name in indexes.names():
            loaded.append(indexes.load(Path(folder) / "index"))
        for copy in loaded:
            assert_same("loaded", case.messages, copy.match(case.messages), expected)
            assert copy.options == index.options
            assert copy.nbytes == index.nbytes
    copy = pickle.loads(pickle.dumps(index))
    assert_same("pickled", case.messages, copy.match(case.messages), expected)


def reports_bytes(builder: Builder, seed: int) -> None:
    """Check that the index reports its size in bytes."""
    nbytes = builder.build(draw("lattice", seed).clauses).nbytes
    assert nbytes > 0, f"nbytes must be above 0, got {nbytes}: does arrays() return all arrays?"


def updates_agree(builder: Builder, seed: int) -> None:
    """After inserts and deletes, the matches are those of a scan of the remaining rows.

    Applies to indexes that can be changed in place.
    """
    case = draw("crowd", seed)
    rng = np.random.default_rng(seed)
    rows = np.arange(case.clauses.subscriptions)
    inserts, deletes = len(rows) // 20, len(rows) // 40
    inserted = 2 * inserts
    index = builder.build(case.clauses.take(rows[:inserted]))
    if not isinstance(index, UpdatableIndex):
        return
    alive = set(range(inserted))
    for _ in range(12):
        if rng.random() < 0.5:
            index.insert(case.clauses.take(rows[inserted : inserted + inserts]))
            alive |= set(range(inserted, inserted + inserts))
            inserted += inserts
        else:
            deleted = rng.choice(sorted(alive), min(deletes, len(alive)), replace=False)
            index.delete(deleted)
            alive -= set(deleted.tolist())
        remaining = np.array(sorted(alive), np.int64)
        expected = indexes.create("scan").build(case.clauses.take(remaining)).match(case.messages)
        subscription = remaining[expected.subscription].astype(np.int32)
        renumbered = Matches(expected.start, subscription, expected.examined)
        assert_same("updates", case.messages, index.match(case.messages), renumbered)


CHECKS: tuple[Check, ...] = (
    *(_check_named_case(name) for name in CASES),
    empty_inputs,
    threads_agree,
    batches_agree,
    save_and_load,
    reports_bytes,
    updates_agree,
)
"""All checks. Each is a function of a builder and a seed."""


def checks_of(builder: Builder) -> tuple[Check, ...]:
    """Return the checks of the kinds of subscriptions that the index of a builder takes."""
    boolean, ranked = "boolean" in builder.kinds, set(builder.kinds) - {"boolean"}
    return (*(CHECKS if boolean else ()), *(RANKED_CHECKS if ranked else ()))


def check_index(index: str | Builder, *, seed: int = 0, rounds: int = 3) -> None:
    """Run all checks on an index, with several seeds.

    Parameters
    ----------
    index
        The name of a registered index, or a builder: ``nearcast.indexes.create(name, **options)``,
        or ``Builder(YourIndex, YourOptions())`` for an index of your own.
    seed, rounds
        The first seed, and the number of seeds.

    Raises
    ------
    AssertionError
        If a check fails. The message has the check, the seed and the first difference.

    Examples
    --------
    >>> check_index("scan", rounds=1)
    """
    builder = indexes.create(index) if isinstance(index, str) else index
    for number in range(seed, seed + rounds):
        for check in checks_of(builder):
            try:
                check(builder, number)
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} with seed {number}: {error}") from error
            except Exception as error:
                error.add_note(f"in the check {check.__name__} with seed {number}")
                raise
