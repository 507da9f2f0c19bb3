"""Count documents by token and cell: generators over Arrow record batches.

`count_batches` counts the documents of one partition in bounded memory and yields partial counts as
rows, to be summed up over tasks. `write_statistics` writes the sums as `Statistics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import Clauses, Messages
from nearcast.errors import UnknownName
from nearcast.indexes.statistics import BINS, Counts, Grid, Statistics, Tally, bounding_box
from nearcast.intake import (
    MESSAGE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    read_messages,
    read_subscriptions,
)
from nearcast.model.derived import readable
from nearcast.text import Vocabulary
from nearcast.text import tokenizer as find_tokenizer
from nearcast.text.keys import keys_of, string_buffers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = [
    "BOUNDS",
    "COUNTED",
    "DOCUMENTS",
    "HEIGHT",
    "PAIR",
    "REJECTED",
    "WEIGHTED",
    "WIDTH",
    "Kind",
    "bound_batches",
    "count_batches",
    "known_columns",
    "weigh_tokens",
    "write_statistics",
]

Kind = Literal["messages", "subscriptions"]
"""What the rows of a frame are."""

DOCUMENTS, PAIR, WIDTH, HEIGHT, REJECTED = range(5)
"""What a row counts: documents, pairs of cell and token, extents by bin, or invalid rows."""

COUNTED = "what tinyint, cell int, token string, times bigint"
"""The columns of counts; for extents, ``cell`` is the bin."""

BOUNDS = "west bigint, south bigint, east bigint, north bigint"
"""The columns of bounding boxes, in units of 1e-7 degree."""

WEIGHTED = "token string, df bigint, idf double"
"""The columns of weighted tokens."""

MAX_PAIRS = 1 << 20
MAX_TOKENS = 1 << 20
MAX_ROWS = 50_000

_SCHEMA = pa.schema(
    [("what", pa.int8()), ("cell", pa.int32()), ("token", pa.string()), ("times", pa.int64())]
)
_WEIGHTED = pa.schema([("token", pa.string()), ("df", pa.int64()), ("idf", pa.float64())])


def known_columns(names: Sequence[str], kind: Kind) -> list[str]:
    """Return the names that intake knows, in their order.

    Raises
    ------
    UnsupportedFile
        When the names are not those of messages, or of subscriptions.
    UnknownName
        When the kind is unknown.

    Examples
    --------
    >>> known_columns(["lat", "lon", "likes", "text", "id"], "messages")
    ['lat', 'lon', 'text', 'id']
    """
    choices = {"messages": MESSAGE_COLUMNS, "subscriptions": SUBSCRIPTION_COLUMNS}
    if kind not in choices:
        raise UnknownName("kind", kind, choices)
    known = [name for name in names if name in choices[kind]]
    nothing = pa.Table.from_arrays([pa.nulls(0)] * len(names), list(names))
    _read(nothing, kind, Vocabulary())
    return known


def count_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    kind: Kind,
    grid: Grid,
    tokens: bool = True,
    cells: bool = True,
    tokenizer: str = "words",
) -> Iterator[pa.RecordBatch]:
    """Count documents by token, by cell and by both; yield rows of `COUNTED`.

    Memory is bounded by about a million pairs and tokens, whatever the size of the partition. Ids
    must be valid, but may occur several times: every row is a document.

    Examples
    --------
    >>> table = pa.table({"id": [1, 2], "text": ["tea", "more tea"], "lon": [0, 0], "lat": [0, 9]})
    >>> counted = count_batches(table.to_batches(), kind="messages", grid=Grid(), cells=False)
    >>> [row for row in pa.Table.from_batches(counted).to_pylist() if row["token"] == "tea"]
    [{'what': 1, 'cell': -1, 'token': 'tea', 'times': 2}]
    """
    tally = Tally(grid, tokens=tokens, cells=cells, max_pairs=MAX_PAIRS)
    vocabulary, rejected = Vocabulary(), 0
    for batch in batches:
        columns, invalid = _read(pa.Table.from_batches([batch]), kind, vocabulary, tokenizer)
        rejected += invalid
        count = len(columns) if isinstance(columns, Messages) else columns.subscriptions
        row = tally.add(columns)
        while row < count:
            yield from _rows(tally, vocabulary)
            row = tally.add(columns, row)
        if len(vocabulary) > MAX_TOKENS:
            yield from _rows(tally, vocabulary)
            vocabulary = Vocabulary()
    yield from _rows(tally, vocabulary)
    if rejected:
        yield _batch([REJECTED], [-1], pa.nulls(1, pa.string()), [rejected])


def bound_batches(batches: Iterable[pa.RecordBatch], *, kind: Kind) -> Iterator[pa.RecordBatch]:
    """Yield the bounding box of the valid documents of each batch as a row of `BOUNDS`.

    Examples
    --------
    >>> table = pa.table({"id": [1, 2], "text": ["a", "b"], "lon": [3, 1], "lat": [2, 4]})
    >>> [row] = bound_batches(table.to_batches(), kind="messages")
    >>> row.to_pylist()
    [{'west': 10000000, 'south': 20000000, 'east': 30000000, 'north': 40000000}]
    """
    for batch in batches:
        box = bounding_box(_read(pa.Table.from_batches([batch]), kind, Vocabulary())[0])
        if box is not None:
            sides = zip(("west", "south", "east", "north"), box, strict=True)
            yield pa.record_batch({side: pa.array([value], pa.int64()) for side, value in sides})


def write_statistics(
    batches: Iterable[pa.RecordBatch], *, folder: str, grid: Grid
) -> Iterator[pa.RecordBatch]:
    """Write the sums of all counts as `Statistics`; yield the number of documents."""
    vocabulary = Vocabulary()
    single = np.zeros((REJECTED + 1, BINS), np.int64)
    parts: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]] = []
    for batch in batches:
        what, cell, times = (batch.column(i).to_numpy() for i in (0, 1, 3))
        other = what != PAIR
        np.add.at(single, (what[other], np.maximum(cell[other], 0)), times[other])
        pairs = np.flatnonzero(~other)
        token = _token_ids(batch.column(2).take(pa.array(pairs)), vocabulary)
        parts.append((cell[pairs].astype(np.int32), token, times[pairs]))
    documents, rejected = int(single[DOCUMENTS, 0]), int(single[REJECTED, 0])
    nothing = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))
    cells, tokens, sums = (np.concatenate(column) for column in zip(nothing, *parts, strict=True))
    counts = Counts(documents, single[WIDTH], single[HEIGHT], cells, tokens, sums)
    Statistics.of(grid, counts, vocabulary.tokens(), rejected=rejected).save(folder)
    yield pa.record_batch({"documents": pa.array([documents], pa.int64())})


def weigh_tokens(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute the weight of each token; the number of documents comes before all tokens."""
    documents = 0
    for batch in batches:
        own = pc.equal(batch.column("what"), DOCUMENTS)
        documents += pc.sum(batch.filter(own).column("times")).as_py() or 0
        tokens = batch.filter(pc.invert(own))
        df = tokens.column("times")
        idf = pa.array(np.log1p(documents / df.to_numpy()))
        columns = [tokens.column("token").cast(pa.string()), df, idf]
        yield pa.RecordBatch.from_arrays(columns, schema=_WEIGHTED)


def _read(
    table: pa.Table, kind: Kind, vocabulary: Vocabulary, tokenizer: str = "words"
) -> tuple[Clauses | Messages, int]:
    """Return the documents of a table, including repeated ids, and the number of invalid rows.

    Scopes are no words, and are not counted.
    """
    columns: Clauses | Messages
    if "scope" in table.column_names:
        table = table.drop_columns("scope")
    split = find_tokenizer(tokenizer)
    if kind == "messages":
        batch, _ = read_messages(table, split, now_us=0, unique=False)
        columns, count = batch.number(vocabulary, add=True), len(batch)
    else:
        subscriptions, _ = read_subscriptions(table, vocabulary, split, unique=False)
        columns, count = subscriptions.clauses, len(subscriptions)
    return columns, table.num_rows - count


def _rows(tally: Tally, vocabulary: Vocabulary) -> Iterator[pa.RecordBatch]:
    """Yield the counts so far, and start again."""
    counts = tally.counts()
    tally.clear()
    if counts.documents == 0:
        return
    tokens = vocabulary.tokens()
    if vocabulary.derived is not None:  # phrases of subscriptions, as a person would write them
        tokens = pa.array([*map(readable, tokens.to_pylist())], pa.large_string())
    for first in range(0, len(counts.cell), MAX_ROWS):
        part = slice(first, first + MAX_ROWS)
        token = counts.token[part]
        number = pa.array(token, mask=token < 0)
        what = np.full(len(token), PAIR)
        yield _batch(what, counts.cell[part], tokens.take(number), counts.times[part])
    bins = [(WIDTH, counts.width), (HEIGHT, counts.height)]
    found = [(what, b, n) for what, own in bins for b, n in enumerate(own.tolist()) if n]
    whats, cells, times = zip((DOCUMENTS, -1, counts.documents), *found, strict=True)
    yield _batch(whats, cells, pa.nulls(len(whats), pa.string()), times)


def _batch(
    what: Sequence[int] | NDArray[np.int64],
    cell: Sequence[int] | NDArray[np.int32],
    token: pa.Array,
    times: Sequence[int] | NDArray[np.int64],
) -> pa.RecordBatch:
    columns = [
        pa.array(what, pa.int8()),
        pa.array(cell, pa.int32()),
        token.cast(pa.string()),
        pa.array(times, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _token_ids(token: pa.Array, vocabulary: Vocabulary) -> NDArray[np.int32]:
    """Return the ids of tokens, adding new ones; -1 for null."""
    given = pc.is_valid(token).to_numpy(zero_copy_only=False)
    number = np.full(len(token), -1, np.int32)
    keys = keys_of(*string_buffers(token.drop_null().cast(pa.large_string())))
    number[given] = vocabulary.add_keys(keys)
    return number
