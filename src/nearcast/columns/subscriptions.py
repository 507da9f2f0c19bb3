"""Subscriptions as a whole: clauses, the ids that users gave, expiry and owner."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from nearcast.columns.arrow import row_array, string_array
from nearcast.columns.clauses import Clauses
from nearcast.columns.rankings import BOOLEAN, KINDS, Rankings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Ids", "Subscriptions"]


class Ids:
    """The ids that users gave, strings or integers, to be given back as they came.

    ``text`` is None where all ids are integers; where it is not, it is null for the integers.
    Ids made from a list (`Ids.of`) become arrays only when somebody asks for them.
    """

    _values: list[str | int] | None = None
    _from_text = False

    def __init__(self, number: NDArray[np.int64], text: pa.StringArray | None = None) -> None:
        vars(self).update(number=number, text=text)

    def __len__(self) -> int:
        return len(self.number if self._values is None else self._values)

    @cached_property
    def number(self) -> NDArray[np.int64]:
        """The ids that are integers, 0 for the others."""
        return np.array([0 if isinstance(v, str) else v for v in self._given()], np.int64)

    @cached_property
    def text(self) -> pa.StringArray | None:
        """The ids that are strings."""
        if not self.has_text:
            return None
        return string_array([v if isinstance(v, str) else None for v in self._given()])

    @property
    def has_text(self) -> bool:
        """Whether some ids are strings."""
        if self._values is None:
            return self.text is not None
        return self._from_text or any(isinstance(v, str) for v in self._values)

    @property
    def is_mixed(self) -> bool:
        """Whether some ids are strings and others integers."""
        if self._values is None:
            return self.text is not None and self.text.null_count > 0
        return len({isinstance(v, str) for v in self._values}) > 1

    def _given(self) -> list[str | int]:
        assert self._values is not None
        return self._values

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
        return cls._of(list(values), False)

    @classmethod
    def _of(cls, values: list[str | int], from_text: bool) -> Self:
        """Take ids from a list; ``from_text`` if they were chosen from some that had strings."""
        ids = cls.__new__(cls)
        ids._values, ids._from_text = values, from_text
        return ids

    def tolist(self) -> list[str | int]:
        """Return the ids as they were given."""
        if self._values is not None:
            return self._values.copy()
        numbers: list[str | int] = self.number.tolist()
        if self.text is None:
            return numbers
        texts = self.text.to_pylist()
        return [n if t is None else t for n, t in zip(numbers, texts, strict=True)]

    def slice(self, first: int, last: int) -> Self:
        """Return the ids of neighbouring rows, the last excluded."""
        text = None if self.text is None else self.text.slice(first, last - first)
        return type(self)(self.number[first:last], text)

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the ids of these rows."""
        if self._values is not None:
            return self._of([self._values[row] for row in rows.tolist()], self.has_text)
        text = None if self.text is None else self.text.take(row_array(rows))
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
        if self.text is None:
            return pa.array(self.number)
        return self._mixed() if self.text.null_count else self.text

    def _mixed(self) -> pa.Array:
        return pa.array([str(v) for v in self.tolist()], pa.string())


@dataclass(frozen=True, eq=False, kw_only=True)
class Subscriptions:
    """A set of subscriptions: clauses, and what belongs to each subscription as a whole.

    ``expires_us`` is `NEVER` where a subscription does not expire; ``owner`` is null where nobody
    was named, and None where that is so of all of them. ``rankings`` is None where all of them are
    boolean. ``typed`` has keywords and expression as they were given, as JSON, where tokens are not
    enough to register the same again; it is null or None elsewhere.
    """

    ids: Ids
    clauses: Clauses
    expires_us: NDArray[np.int64]
    owner: pa.StringArray | None = None
    rankings: Rankings | None = None
    typed: pa.StringArray | None = None

    def __len__(self) -> int:
        return self.clauses.subscriptions

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the subscriptions; an empty set counts as boolean."""
        if self.rankings is None or not len(self):
            return (KINDS[BOOLEAN],)
        return tuple(KINDS[kind] for kind in np.unique(self.rankings.kind).tolist())

    @classmethod
    def empty(cls) -> Self:
        """Return an empty set of subscriptions."""
        return cls(ids=Ids.of([]), clauses=Clauses.empty(), expires_us=np.empty(0, np.int64))

    @property
    def nbytes(self) -> int:
        """The bytes of all columns together."""
        texts = sum(text.nbytes for text in (self.owner, self.typed) if text is not None)
        return (
            self.ids.nbytes
            + self.clauses.nbytes
            + int(self.expires_us.nbytes)
            + (0 if self.rankings is None else self.rankings.nbytes)
            + int(texts)
        )

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the subscriptions of these rows (ascending)."""
        return type(self)(
            ids=self.ids.take(rows),
            clauses=self.clauses.take(rows),
            expires_us=self.expires_us[rows],
            owner=None if self.owner is None else self.owner.take(row_array(rows)),
            rankings=None if self.rankings is None else self.rankings.take(rows),
            typed=None if self.typed is None else self.typed.take(pa.array(rows)),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Subscriptions]) -> Self:
        """Return the subscriptions of all parts end to end."""
        rankings = None
        if any(p.rankings is not None for p in parts):
            rankings = Rankings.concatenate(
                [Rankings.boolean(len(p)) if p.rankings is None else p.rankings for p in parts]
            )
        return cls(
            ids=Ids.concatenate([p.ids for p in parts]),
            clauses=Clauses.concatenate([p.clauses for p in parts]),
            expires_us=np.concatenate([p.expires_us for p in parts]),
            owner=_joined([p.owner for p in parts], parts),
            rankings=rankings,
            typed=_joined([p.typed for p in parts], parts),
        )


def _joined(
    texts: list[pa.StringArray | None], parts: Sequence[Subscriptions]
) -> pa.StringArray | None:
    """Return the texts of all parts; a part without any has nulls."""
    if all(text is None for text in texts):
        return None
    pairs = zip(texts, parts, strict=True)
    return pa.concat_arrays([pa.nulls(len(p), pa.string()) if t is None else t for t, p in pairs])
