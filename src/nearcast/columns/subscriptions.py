"""Subscriptions as a whole: clauses, the ids that users gave, expiry and owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from nearcast.columns.clauses import Clauses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Ids", "Subscriptions"]


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids that users gave, strings or integers, to be given back as they came.

    ``text`` is None where all ids are integers; where it is not, it is null for the integers.
    """

    number: NDArray[np.int64]
    text: pa.StringArray | None = None

    def __len__(self) -> int:
        return len(self.number)

    @property
    def nbytes(self) -> int:
        """The bytes that the ids take."""
        return int(self.number.nbytes) + (self.text.nbytes if self.text is not None else 0)

    @classmethod
    def of(cls, values: Sequence[str | int]) -> Self:
        """Take ids from a list.

        Examples
        --------
        >>> Ids.of(["a", 7]).tolist()
        ['a', 7]
        """
        texts = sum(isinstance(v, str) for v in values)
        if not texts:
            return cls(np.array(values, np.int64))
        if texts == len(values):
            return cls(np.zeros(texts, np.int64), pa.array(values, pa.string()))
        numbers = np.array([0 if isinstance(v, str) else v for v in values], np.int64)
        return cls(
            numbers, pa.array([v if isinstance(v, str) else None for v in values], pa.string())
        )

    def tolist(self) -> list[str | int]:
        """Return the ids as they were given."""
        numbers: list[str | int] = self.number.tolist()
        if self.text is None:
            return numbers
        texts = self.text.to_pylist()
        return [n if t is None else t for n, t in zip(numbers, texts, strict=True)]

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the ids of these rows."""
        text = None if self.text is None else self.text.take(pa.array(rows))
        return type(self)(self.number[rows], text)

    @classmethod
    def concatenate(cls, parts: Sequence[Ids]) -> Self:
        """Return the ids of all parts end to end."""
        number = np.concatenate([p.number for p in parts])
        if all(p.text is None for p in parts):
            return cls(number)
        texts = [pa.nulls(len(p), pa.string()) if p.text is None else p.text for p in parts]
        return cls(number, pa.concat_arrays(texts))

    def to_arrow(self) -> pa.Array:
        """Return int64 where all ids are integers, and strings otherwise.

        A column has one type: where integers and strings are mixed, 7 becomes "7".
        """
        numbers = pa.array(self.number)
        if self.text is None:
            return numbers
        return self.text.fill_null("") if self.text.null_count == 0 else self._mixed()

    def _mixed(self) -> pa.Array:
        return pa.array([str(v) for v in self.tolist()], pa.string())


@dataclass(frozen=True, eq=False, kw_only=True)
class Subscriptions:
    """A set of subscriptions: clauses, and what belongs to each subscription as a whole.

    ``expires_us`` is `NEVER` where a subscription does not expire; ``owner`` is null where nobody
    was named, and None where that is so of all of them.
    """

    ids: Ids
    clauses: Clauses
    expires_us: NDArray[np.int64]
    owner: pa.StringArray | None = None

    def __len__(self) -> int:
        return self.clauses.subscriptions

    @classmethod
    def empty(cls) -> Self:
        """Return an empty set of subscriptions."""
        return cls(ids=Ids.of([]), clauses=Clauses.empty(), expires_us=np.empty(0, np.int64))

    @property
    def nbytes(self) -> int:
        """The bytes of all columns together."""
        owner = self.owner.nbytes if self.owner is not None else 0
        return (
            self.ids.nbytes
            + self.clauses.nbytes
            + self.clauses.shapes.nbytes
            + int(self.expires_us.nbytes)
            + owner
        )

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the subscriptions of these rows (ascending)."""
        return type(self)(
            ids=self.ids.take(rows),
            clauses=self.clauses.take(rows),
            expires_us=self.expires_us[rows],
            owner=None if self.owner is None else self.owner.take(pa.array(rows)),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Subscriptions]) -> Self:
        """Return the subscriptions of all parts end to end."""
        owner = None
        if any(p.owner is not None for p in parts):
            owner = pa.concat_arrays(
                [pa.nulls(len(p), pa.string()) if p.owner is None else p.owner for p in parts]
            )
        return cls(
            ids=Ids.concatenate([p.ids for p in parts]),
            clauses=Clauses.concatenate([p.clauses for p in parts]),
            expires_us=np.concatenate([p.expires_us for p in parts]),
            owner=owner,
        )
