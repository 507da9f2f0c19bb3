"""Answers as record batches: a message and the ids of its subscriptions, scores, and the costs.

A row has a message and a list of ids: Spark explodes lists faster than Python could send pairs. A
message with many ids has several rows. The list of scores is as long as that of ids, with null for
boolean subscriptions; it is null itself if all of them are. So is the list of owners, where they
were asked for. After the answers to a batch, one row
without a message has their costs.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import starts
from nearcast.errors import StorageError
from nearcast.text import gather_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.columns import Ids, Matches, Subscriptions

__all__ = ["Answer", "Costs", "answer_batches", "answer_schema", "cost_batch"]

_IDS_AT_A_TIME = 500_000
_OWNERS = "owners"


class Answer(NamedTuple):
    """The matches of some messages in one segment, and the subscriptions."""

    message: Ids
    subscriptions: Subscriptions
    matches: Matches


@dataclass
class Costs:
    """The costs of the answers to a batch; ``seconds`` is CPU time."""

    messages: int = 0
    matches: int = 0
    examined: int = 0
    rejected: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._since = time.thread_time()

    def add(self, matches: Matches) -> None:
        """Add the matches of a segment, and the time until now."""
        self.matches += len(matches)
        self.examined += matches.examined
        self.stop()

    def stop(self) -> None:
        """Add the time until now."""
        now = time.thread_time()
        self.seconds += now - self._since
        self._since = now


def answer_schema(
    message_id: pa.DataType, subscription_id: pa.DataType, *, owners: bool = False
) -> pa.Schema:
    """Return the schema of answers for ids of these types, with owners or without.

    Examples
    --------
    >>> answer_schema(pa.string(), pa.int64()).names[:4]
    ['message_id', 'subscription_ids', 'scores', 'messages']
    """
    return pa.schema(
        [
            ("message_id", message_id),
            ("subscription_ids", pa.list_(subscription_id)),
            ("scores", pa.list_(pa.float64())),
            *([(_OWNERS, pa.list_(pa.string()))] if owners else []),
            ("messages", pa.int64()),
            ("matches", pa.int64()),
            ("examined", pa.int64()),
            ("rejected", pa.int64()),
            ("seconds", pa.float64()),
        ]
    )


def answer_batches(answer: Answer, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield one or more rows for each message that matches."""
    start, subscription, score = (
        answer.matches.start,
        answer.matches.subscription,
        answer.matches.score,
    )
    for low in range(0, len(subscription), _IDS_AT_A_TIME):
        high = min(low + _IDS_AT_A_TIME, len(subscription))
        length = np.diff(np.clip(start, low, high))
        chosen = np.flatnonzero(length)
        offset = pa.array(starts(length[chosen]).astype(np.int32))
        ids = gather_ids(answer.subscriptions.ids, subscription[low:high])
        columns = [
            _typed(answer.message.take(chosen), schema, "message_id"),
            pa.ListArray.from_arrays(offset, _typed(ids, schema, "subscription_ids")),
            _scores(offset, None if score is None else score[low:high]),
        ]
        if _OWNERS in schema.names:
            columns.append(_owners(offset, answer.subscriptions.owner, subscription[low:high]))
        nothing = pa.array(np.zeros(len(chosen), np.int64))
        costs = [nothing.cast(kind) for kind in schema.types[len(columns) :]]
        yield pa.RecordBatch.from_arrays([*columns, *costs], schema=schema)


def cost_batch(costs: Costs, schema: pa.Schema) -> pa.RecordBatch:
    """Return the row that has the costs of answers."""
    costs.stop()
    return pa.RecordBatch.from_pylist([asdict(costs)], schema)


def _scores(offset: pa.Array, score: NDArray[np.float64] | None) -> pa.Array:
    if score is None:
        return pa.nulls(len(offset) - 1, pa.list_(pa.float64()))
    return pa.ListArray.from_arrays(offset, pa.array(score, from_pandas=True))


def _owners(
    offset: pa.Array, owner: pa.StringArray | None, subscription: NDArray[np.int32]
) -> pa.Array:
    if owner is None:
        return pa.nulls(len(offset) - 1, pa.list_(pa.string()))
    return pa.ListArray.from_arrays(offset, owner.take(pa.array(subscription)).cast(pa.string()))


def _typed(ids: Ids, schema: pa.Schema, name: str) -> pa.Array:
    kind = schema.field(name).type
    wanted = kind.value_type if pa.types.is_list(kind) else kind
    column = ids.to_arrow()
    if column.type == wanted:
        return column
    if pa.types.is_string(column.type):
        raise StorageError(
            f"{name}: is text, but was {wanted} when the job started; start the job again"
        )
    return column.cast(wanted)
