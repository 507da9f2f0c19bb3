"""What an engine is given: ids, objects and tables.

Published messages are objects or a table, and are read as often as need be: the same ones may
have to be read with two vocabularies, or again when tokens came meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids
from nearcast.errors import InvalidInput
from nearcast.intake import MessageBatch, messages_from, read_messages
from nearcast.intake.rejects import Rejects, RowErrors
from nearcast.model.checks import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from nearcast.model import Id, Message
    from nearcast.text import Tokenizer, Vocabulary

__all__ = [
    "MessageObjects",
    "MessageTable",
    "Source",
    "ids_of",
    "list_of",
    "table_of",
    "with_taken",
]

T = TypeVar("T")


def table_of(table: object) -> pa.Table:
    """Return a table, or a record batch as one."""
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise InvalidInput("table", table, "must be a pyarrow Table; see pyarrow.table")
    return table


class Source(Protocol):
    """Messages that can be read with any vocabulary, published at a time."""

    now_us: int

    def read(self, vocabulary: Vocabulary) -> tuple[MessageBatch, Rejects]:
        """Return all messages, and what was refused."""
        ...

    def chosen(self, rows: NDArray[np.int64], rejects: Rejects) -> Source:
        """Return those of these rows of what `read` returned."""
        ...


class MessageObjects:
    """Message objects."""

    def __init__(self, messages: Sequence[Message], tokenizer: Tokenizer, now_us: int) -> None:
        self._messages = messages
        self._tokenizer = tokenizer
        self.now_us = now_us

    def read(self, vocabulary: Vocabulary) -> tuple[MessageBatch, Rejects]:
        """Return all messages; none is refused."""
        batch = messages_from(self._messages, vocabulary, self._tokenizer, now_us=self.now_us)
        return batch, Rejects.empty()

    def chosen(self, rows: NDArray[np.int64], rejects: Rejects) -> MessageObjects:
        """Return some of the messages."""
        messages = [self._messages[row] for row in rows.tolist()]
        return MessageObjects(messages, self._tokenizer, self.now_us)


class MessageTable:
    """A table of messages."""

    def __init__(self, table: pa.Table, tokenizer: Tokenizer, now_us: int) -> None:
        self._table = table
        self._tokenizer = tokenizer
        self.now_us = now_us

    def read(self, vocabulary: Vocabulary) -> tuple[MessageBatch, Rejects]:
        """Return the messages of the table, and the rows that are none."""
        return read_messages(self._table, vocabulary, self._tokenizer, now_us=self.now_us)

    def chosen(self, rows: NDArray[np.int64], rejects: Rejects) -> MessageTable:
        """Return some of the messages that were taken."""
        sound = np.ones(self._table.num_rows, np.bool_)
        sound[rejects.row] = False
        table = self._table.take(pa.array(np.flatnonzero(sound)[rows]))
        return MessageTable(table, self._tokenizer, self.now_us)


def list_of(values: T | Iterable[T], kind: type[T]) -> list[T]:
    """Return one object of a kind, or several, as a list; refuse any other."""
    if isinstance(values, kind):
        return [values]
    problem = f"must be a {kind.__name__}, or several of them"
    try:
        several: list[T] = [*values]  # type: ignore[misc]
    except TypeError:
        raise InvalidInput(kind.__name__.lower(), values, problem) from None
    for value in several:
        if not isinstance(value, kind):
            raise InvalidInput(kind.__name__.lower(), value, problem)
    return several


def ids_of(ids: Id | Iterable[Id] | pa.Array) -> Ids:
    """Return one id, or several, checked."""
    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        ids = ids.to_pylist()
    several = [ids] if isinstance(ids, (str, int)) else [*ids]
    return Ids.of([identifier("id", one) for one in several])


def with_taken(table: pa.Table, rejects: Rejects, taken: NDArray[np.bool_]) -> Rejects:
    """Return rejects and, in the order of their rows, those whose id is registered already."""
    sound = np.ones(table.num_rows, np.bool_)
    sound[rejects.row] = False
    repeated = np.zeros(table.num_rows, np.bool_)
    repeated[np.flatnonzero(sound)[taken]] = True
    errors = RowErrors(table.num_rows)
    errors.add(repeated, "id", "is registered already; unsubscribe it first, or move it")
    return Rejects.concatenate([rejects, errors.rejects(table)]).in_order()
