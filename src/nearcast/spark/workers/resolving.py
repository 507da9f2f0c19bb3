"""Resolve changes against the registered subscriptions: new rows, deleted ids and rejects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import BOOLEAN, NEVER, Ids, Subscriptions, starts
from nearcast.intake import Rejects, read_subscriptions
from nearcast.intake.arrow_columns import read_texts
from nearcast.intake.ids import read_ids
from nearcast.intake.rejects import RowErrors, cell_value, record_json
from nearcast.intake.times import read_times
from nearcast.model.json_form import POINT, RANKED
from nearcast.segments.parts import Part, unite
from nearcast.spark.workers.effects import (
    OPERATIONS,
    Effects,
    Places,
    net_effects,
    with_places,
)
from nearcast.text import IdTable, Vocabulary, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from nearcast.text import Tokenizer

__all__ = ["Found", "Numbered", "Resolved", "number_ids", "read_operations", "resolve"]

_CONDITION = ("keywords", "expression", "owner", "expires_at", "scope", *RANKED)
_BY_DISTANCE = {"delta": 0.5, "tau": 0.5, "max_distance_m": 1.0}
_BY_AREA = {"alpha": 0.5, "theta": 0.5}


@dataclass(frozen=True, eq=False)
class Numbered:
    """The ids of a table of changes, numbered in the order of their first rows.

    ``number`` is -1 for rows without a valid id.
    """

    ids: Ids
    number: NDArray[np.int32]
    table: IdTable
    errors: RowErrors


class Found(NamedTuple):
    """Registered subscriptions that a change names, with the numbers of their ids."""

    part: Part
    number: NDArray[np.int32]


class Resolved(NamedTuple):
    """The result of changes: subscriptions to add, ids to delete, invalid rows, and counts."""

    part: Part
    dead: Ids
    rejects: Rejects
    taken: dict[str, int]


def number_ids(table: pa.Table) -> Numbered:
    """Return the ids of a table of changes with their numbers."""
    errors = RowErrors(table.num_rows)
    ids = read_ids(table, "id", errors)
    valid = np.flatnonzero(errors.valid)
    known = IdTable()
    number = np.full(len(ids), -1, np.int32)
    number[valid] = known.add(ids.take(valid))
    return Numbered(ids, number, known, errors)


def resolve(table: pa.Table, found: Sequence[Found], tokenizer: Tokenizer = words) -> Resolved:
    """Apply the changes of a table in the order of their times and rows.

    Parameters
    ----------
    table
        ``op`` (insert, delete or move), ``id``, and the columns that the operation needs: those of
        a subscription, none, or a place; optionally ``time``.
    found
        The registered subscriptions of each shard; a subscription may be in several.
    tokenizer
        What makes tokens of keywords.

    Raises
    ------
    UnsupportedFile
        When there are inserts or moves but no columns for places.
    """
    numbered = number_ids(table)
    operation = read_operations(table, numbered.errors)
    time = read_times(table, "time", numbered.errors)
    vocabulary = Vocabulary()
    inserts = _Read.of(table, operation == 0, numbered.errors, vocabulary, tokenizer=tokenizer)
    inserted = np.full(table.num_rows, BOOLEAN, np.uint8)
    inserted[inserts.position >= 0] = _kinds(inserts.subscriptions)
    existed = np.zeros(numbered.table.handles, np.bool_)
    registered = np.full(len(existed), BOOLEAN, np.uint8)
    for one in found:
        existed[one.number] = True
        registered[one.number] = _kinds(one.part.subscriptions)
    kinds = {BOOLEAN, *inserted.tolist(), *registered.tolist()}
    moves = _Moves.of(table, operation == 2, numbered.errors, kinds)
    valid = numbered.errors.valid.copy()
    valid[inserts.rejects.row] = False
    rows = np.flatnonzero(valid)
    at = np.where(time.given, time.us, NEVER)[rows]
    order = np.argsort(at, kind="stable")
    moved = np.array([read.position[rows] >= 0 for read in moves])
    places = Places(registered, inserted[rows], moved)
    effects = net_effects(numbered.number[rows], operation[rows], order, existed, places)
    part = _new_subscriptions(effects, rows, inserts, moves, found, vocabulary)
    for reason in set(effects.rejected.values()):
        mask = np.zeros(table.num_rows, np.bool_)
        mask[rows[[row for row, why in effects.rejected.items() if why == reason]]] = True
        numbered.errors.add(mask, "id", reason)
    rejects = Rejects.concatenate(
        [numbered.errors.rejects(table), inserts.rejects, *moves.rejects(rows, effects.misplaced)]
    ).in_order()
    row_of = np.zeros(len(existed), np.int64)
    named = np.flatnonzero(numbered.number >= 0)
    row_of[numbered.number[named]] = named
    dead = numbered.ids.take(row_of[existed & effects.changed])
    return Resolved(part, dead, rejects, effects.taken)


@dataclass(frozen=True, eq=False)
class _Read:
    """The subscriptions of some rows; ``position`` has the index of each row's, or -1."""

    subscriptions: Subscriptions
    position: NDArray[np.int64]
    rejects: Rejects

    @classmethod
    def of(
        cls,
        table: pa.Table,
        wanted: NDArray[np.bool_],
        errors: RowErrors,
        vocabulary: Vocabulary,
        without: Sequence[str] = (),
        more: Mapping[str, float | None] | None = None,
        tokenizer: Tokenizer = words,
    ) -> _Read:
        """Read the rows that are valid so far, without some columns and with others in addition."""
        position = np.full(table.num_rows, -1, np.int64)
        rows = np.flatnonzero(wanted & errors.valid)
        if not len(rows):
            return cls(Subscriptions.empty(), position, Rejects.empty())
        kept = [name for name in table.column_names if name not in (*without, "op", "time")]
        chosen = table.select(kept).take(pa.array(rows))
        for name, value in (more or {}).items():
            chosen = chosen.append_column(name, pa.array([value] * len(rows), pa.float64()))
        read, rejects = read_subscriptions(chosen, vocabulary, tokenizer, unique=False)
        number = rows[rejects.row]
        records = tuple(_record(table, row) for row in number.tolist())
        rejects = replace(rejects, row=number, record=records)
        taken = np.setdiff1d(rows, rejects.row, assume_unique=True)
        position[taken] = np.arange(len(taken))
        return cls(read, position, rejects)


class _Moves(NamedTuple):
    """The places of moves, read for each kind: which one counts depends on what moves."""

    boolean: _Read
    proximity: _Read
    overlap: _Read

    @classmethod
    def of(
        cls, table: pa.Table, wanted: NDArray[np.bool_], errors: RowErrors, kinds: set[int]
    ) -> _Moves:
        """Read the places for these kinds."""
        # Moves of points need no column for a radius.
        lacking = {*POINT} <= {*table.column_names} and "radius_m" not in table.column_names
        radius: dict[str, float | None] = {"radius_m": None} if lacking else {}
        columns: list[Mapping[str, float | None]]
        columns = [radius, _BY_DISTANCE, {**radius, **_BY_AREA}]
        reads = []
        for kind, more in enumerate(columns):
            some = wanted if kind in kinds else np.zeros(len(wanted), np.bool_)
            reads.append(_Read.of(table, some, errors, Vocabulary(), _CONDITION, more))
        return cls(*reads)

    def subscriptions(self, row: NDArray[np.int64], kind: NDArray[np.uint8]) -> Subscriptions:
        """Return the places of these rows of the table, read for their kinds."""
        every = [read.subscriptions for read in self]
        first = starts(np.array([len(one) for one in every]))
        position = np.array([read.position[row] for read in self])[kind, np.arange(len(row))]
        return Subscriptions.concatenate(every).take(first[kind] + position)

    def rejects(self, rows: NDArray[np.int64], misplaced: Mapping[int, int]) -> list[Rejects]:
        """Return why moves are invalid, for each kind."""
        found = []
        for kind, read in enumerate(self):
            wrong = {int(rows[row]) for row, its_kind in misplaced.items() if its_kind == kind}
            every = zip(read.rejects.row.tolist(), *_reasons(read.rejects), strict=True)
            found.append(Rejects.of([one for one in every if one[0] in wrong]))
        return found


def _reasons(rejects: Rejects) -> tuple[tuple[str, ...], ...]:
    return rejects.field, rejects.reason, rejects.record


def _kinds(subscriptions: Subscriptions) -> NDArray[np.uint8] | int:
    rankings = subscriptions.rankings
    return BOOLEAN if rankings is None else rankings.kind


def _record(table: pa.Table, row: int) -> str:
    """Return an input row with all its columns."""
    return record_json({name: cell_value(table, name, row) for name in table.column_names})


def read_operations(table: pa.Table, errors: RowErrors) -> NDArray[np.int8]:
    """Return the operation of each row, by its position in `OPERATIONS`; -1 if it has none."""
    text = pc.utf8_lower(pc.utf8_trim_whitespace(read_texts(table, "op", errors)))
    position = pc.fill_null(pc.index_in(text, pa.array(OPERATIONS, text.type)), -1)
    operation: NDArray[np.int8] = position.to_numpy(zero_copy_only=False).astype(np.int8)
    errors.add(operation < 0, "op", f"must be one of {', '.join(OPERATIONS)}")
    return operation


def _new_subscriptions(
    effects: Effects,
    rows: NDArray[np.int64],
    inserts: _Read,
    moves: _Moves,
    found: Sequence[Found],
    vocabulary: Vocabulary,
) -> Part:
    """Return the subscriptions that are new or differ from before."""
    new = effects.changed & effects.exists
    condition, place = effects.condition, effects.place
    own = inserts.position[rows[condition[new & (condition >= 0) & (place == condition)]]]
    parts = [Part(inserts.subscriptions.take(own), vocabulary)]
    moved = new & (condition >= 0) & (place != condition)
    if moved.any():
        inserted = inserts.subscriptions.take(inserts.position[rows[condition[moved]]])
        places = moves.subscriptions(rows[place[moved]], effects.kind[moved])
        parts.append(Part(with_places(inserted, places), vocabulary))
    moved = new & (condition < 0)
    if moved.any():
        base = unite([one.part for one in found])
        position = np.full(len(new), -1, np.int64)
        number = np.concatenate([one.number for one in found])
        position[number] = np.arange(len(number))
        registered = base.subscriptions.take(position[moved])
        places = moves.subscriptions(rows[place[moved]], effects.kind[moved])
        parts.append(Part(with_places(registered, places), base.vocabulary))
    return unite(parts)
