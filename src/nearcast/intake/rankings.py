"""The rankings of subscriptions, from the columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import (
    BOOLEAN,
    CENTIMETERS,
    OVERLAP,
    PROXIMITY,
    SHARE_UNITS,
    Clauses,
    Rankings,
)
from nearcast.intake.arrow_columns import no_rows, read_numbers
from nearcast.model.rankings import (
    DISTANCE_PROBLEM,
    FIELDS,
    MIXED_PROBLEM,
    SHARE_PROBLEM,
    Overlap,
    Proximity,
    missing_problem,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.intake.arrow_columns import Numbers
    from nearcast.intake.rejects import RowErrors

__all__ = ["RankingColumns"]


class RankingColumns:
    """The columns ``delta, tau, max_distance_m, alpha, theta`` of a table.

    ``kind`` has the kind of every row; a row without any of the columns is boolean.
    """

    def __init__(self, table: pa.Table, errors: RowErrors) -> None:
        self._column = {name: read_numbers(table, name, errors) for name in FIELDS}
        count = table.num_rows
        by_distance, by_area = self._any(count, Proximity), self._any(count, Overlap)
        for row in np.flatnonzero(by_distance & by_area & errors.valid).tolist():
            given = [n for n, c in self._column.items() if c.given[row] and FIELDS[n] is Overlap]
            wrong = no_rows(count)
            wrong[row] = True
            errors.add(wrong, given[0], MIXED_PROBLEM)
        self.kind = np.full(count, BOOLEAN, np.uint8)
        self.kind[by_area] = OVERLAP
        self.kind[by_distance] = PROXIMITY
        for name, column in self._column.items():
            owner = FIELDS[name]
            mine = self.kind == owner.kind
            errors.add(mine & ~column.given, name, missing_problem(owner))
            self._check(name, column, mine, errors)

    @property
    def ranked(self) -> NDArray[np.bool_]:
        """Which rows are ranked."""
        ranked: NDArray[np.bool_] = self.kind != BOOLEAN
        return ranked

    def rankings(self, rows: NDArray[np.int64], condition: Clauses | None) -> Rankings | None:
        """Return the rankings of these rows, all of them valid; None if all are boolean."""
        kind = self.kind[rows]
        if not kind.any():
            return None
        by_distance, by_area = kind == PROXIMITY, kind == OVERLAP
        share, threshold = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int32)
        distance_cm = np.zeros(len(rows), np.uint32)
        share[by_distance] = self._units("delta", rows[by_distance], SHARE_UNITS)
        threshold[by_distance] = self._units("tau", rows[by_distance], SHARE_UNITS)
        distance_cm[by_distance] = self._units("max_distance_m", rows[by_distance], CENTIMETERS)
        share[by_area] = SHARE_UNITS - self._units("alpha", rows[by_area], SHARE_UNITS)
        threshold[by_area] = self._units("theta", rows[by_area], SHARE_UNITS)
        return Rankings(
            kind=kind,
            text_share=share,
            threshold=threshold,
            max_distance_cm=distance_cm,
            condition=condition,
        )

    def _any(self, count: int, owner: Any) -> NDArray[np.bool_]:
        given = [column.given for name, column in self._column.items() if FIELDS[name] is owner]
        some: NDArray[np.bool_] = np.logical_or.reduce([no_rows(count), *given])
        return some

    def _check(
        self, name: str, column: Numbers, rows: NDArray[np.bool_], errors: RowErrors
    ) -> None:
        """Reject values that are out of range, with the reason that the model gives."""
        value = column.value
        if name == "max_distance_m":
            in_range, problem = (value >= 0.005) & (value < 42_949_672.955), DISTANCE_PROBLEM
        else:
            in_range, problem = (value >= 0.0) & (value <= 1.0), SHARE_PROBLEM

        def check(row: int) -> None:
            own = {n: 0.5 for n, owner in FIELDS.items() if owner is FIELDS[name]}
            FIELDS[name](**{**own, name: float(value[row])})

        errors.add_checked(rows & column.given & ~in_range, name, check, problem)

    def _units(self, name: str, rows: NDArray[np.int64], scale: int) -> NDArray[np.int64]:
        scaled: NDArray[np.float64] = np.rint(self._column[name].value[rows] * scale)
        return scaled.astype(np.int64)
