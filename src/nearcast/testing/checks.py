"""The checks that every index passes, and the runner for all of them."""

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

__all__ = ["CHECKS", "check_index"]

Check: TypeAlias = Callable[[Builder, int], None]


def assert_same(case: str, messages: Messages, got: Matches, wanted: Matches) -> None:
    """Raise with the first difference between an answer and the scan's."""
    found, expected = got.pairs(), wanted.pairs()
    missing, extra = sorted(expected - found), sorted(found - expected)
    for kind, pairs in (("missed", missing), ("made up", extra)):
        if pairs:
            message, row = pairs[0]
            raise AssertionError(
                f"{case}: {kind} {len(pairs)} of {len(expected)} matches, the first of message "
                f"{message} (box {messages.box[message].tolist()}) and subscription {row}"
            )
    assert len(got) == len(found), f"{case}: {len(got) - len(found)} matches were given twice"
    assert len(got.start) == len(messages) + 1, f"{case}: start must have one more than messages"


def agrees(builder: Builder, case: Case, wanted: Matches | None = None) -> None:
    """Check one case against the scan; candidates examined cannot be fewer than matches."""
    wanted = scanned(case) if wanted is None else wanted
    got = builder.build(case.clauses).match(case.messages)
    assert_same(case.name, case.messages, got, wanted)
    assert got.examined >= len(got), f"{case.name}: {got.examined} examined, {len(got)} matches"


def scanned(case: Case) -> Matches:
    """Return the matches of a case as the scan finds them."""
    return indexes.create("scan").build(case.clauses).match(case.messages)


@functools.lru_cache(2 * len(CASES))
def _drawn_and_scanned(name: str, seed: int) -> tuple[Case, Matches]:
    """Draw a case and scan it, once for all indexes that are checked: circles take long."""
    case = draw(name, seed)
    return case, scanned(case)


def _agrees_on(name: str) -> Check:
    def check(builder: Builder, seed: int) -> None:
        agrees(builder, *_drawn_and_scanned(name, seed))

    check.__name__ = f"agrees_on_{name}"
    check.__doc__ = f"Agree with the scan: {(CASES[name].__doc__ or '').splitlines()[0]}"
    return check


def empty_inputs(builder: Builder, seed: int) -> None:
    """No clauses, no messages, and neither, are answered with no matches."""
    case = draw("lattice", seed)
    nobody, nothing = Clauses.empty(), Messages.of([], np.empty((0, 2)))
    for clauses in (case.clauses, nobody):
        for messages in (case.messages, nothing):
            if clauses is nobody or messages is nothing:
                got = builder.build(clauses).match(messages)
                assert len(got) == 0, f"{len(got)} matches of nothing"
                assert len(got.start) == len(messages) + 1


def threads_agree(builder: Builder, seed: int) -> None:
    """Any number of threads gives the same matches, also more threads than messages."""
    case = draw("alternatives", seed)
    index = builder.build(case.clauses)
    wanted = index.match(case.messages)
    for threads in (2, 3, len(case.messages) + 1):
        got = index.match(case.messages, threads=threads)
        assert_same(f"{threads} threads", case.messages, got, wanted)


def batches_agree(builder: Builder, seed: int) -> None:
    """Message by message gives what the whole batch gives."""
    case = draw("crowd", seed)
    index = builder.build(case.clauses)
    parts = [index.match(case.messages.take(np.array([m]))) for m in range(len(case.messages))]
    assert_same("batches", case.messages, Matches.concatenate(parts), index.match(case.messages))


def survives_storage(builder: Builder, seed: int) -> None:
    """Answer the same after being saved and opened, by class and by name, and pickled."""
    case = draw("alternatives", seed)
    index = builder.build(case.clauses)
    wanted = index.match(case.messages)
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        loaded = [type(index).load(Path(folder) / "index")]
        if index.name in indexes.names():
            loaded.append(indexes.load(Path(folder) / "index"))
        for again in loaded:
            assert_same("loaded", case.messages, again.match(case.messages), wanted)
            assert again.options == index.options
            assert again.nbytes == index.nbytes
    again = pickle.loads(pickle.dumps(index))
    assert_same("pickled", case.messages, again.match(case.messages), wanted)


def counts_bytes(builder: Builder, seed: int) -> None:
    """Say how many bytes the index takes."""
    assert builder.build(draw("lattice", seed).clauses).nbytes > 0


def updates_agree(builder: Builder, seed: int) -> None:
    """Any sequence of inserts and deletes leaves what a scan of the rest finds.

    Only for indexes that change in place.
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
            gone = rng.choice(sorted(alive), min(deletes, len(alive)), replace=False)
            index.delete(gone)
            alive -= set(gone.tolist())
        kept = np.array(sorted(alive), np.int64)
        wanted = indexes.create("scan").build(case.clauses.take(kept)).match(case.messages)
        moved = Matches(wanted.start, kept[wanted.subscription].astype(np.int32), wanted.examined)
        assert_same("updates", case.messages, index.match(case.messages), moved)


CHECKS: tuple[Check, ...] = (
    *(_agrees_on(name) for name in CASES),
    empty_inputs,
    threads_agree,
    batches_agree,
    survives_storage,
    counts_bytes,
    updates_agree,
)
"""Every check: a function of a builder and a seed."""


def check_index(index: str | Builder, *, seed: int = 0, rounds: int = 3) -> None:
    """Run every check over an index, with several seeds.

    Parameters
    ----------
    index
        A name of the registry, or a builder (``nearcast.indexes.create(name, **options)``, or
        ``Builder(YourIndex, YourOptions())`` for one of your own).
    seed, rounds
        The first seed, and how many are tried.

    Raises
    ------
    AssertionError
        With the check, the seed and the first difference.
    """
    builder = indexes.create(index) if isinstance(index, str) else index
    for number in range(seed, seed + rounds):
        for check in CHECKS:
            try:
                check(builder, number)
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} with seed {number}: {error}") from error
            except Exception as error:
                error.add_note(f"in the check {check.__name__} with seed {number}")
                raise
