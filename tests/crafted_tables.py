"""Tables that a stranger crafts: a few bytes that stand for gigabytes, and damaged ones."""

from __future__ import annotations

import io
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

__all__ = ["CRAFTED", "VALID", "bounded", "crafted_column", "damaged", "file_of", "stream_of"]

MANY = 20_000_000
LONG = 1_000_000
_NUMBERS = (0, 1, 2, 7, 8, 20_000_000, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def offsets(*values: int) -> pa.Buffer:
    return pa.py_buffer(np.array(values, np.int32))


def list_of(values: pa.Array, count: int) -> pa.Array:
    """Return a list with this many elements, however many there are."""
    kind = pa.list_(values.type)
    return pa.Array.from_buffers(kind, 1, [None, offsets(0, count)], children=[values])


def list_views(values: pa.Array, count: int) -> pa.Array:
    """Return lists that all have all values."""
    buffers = [None, offsets(*[0] * count), offsets(*[len(values)] * count)]
    kind = pa.list_view(values.type)
    return pa.Array.from_buffers(kind, count, buffers, children=[values])


def string_views(count: int, text: bytes) -> pa.Array:
    """Return views of one text."""
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = len(text)
    views[:, 1] = np.frombuffer(text[:4], np.int32)[0]
    buffers = [None, pa.py_buffer(views), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string_view(), count, buffers)


def empty_structs(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.struct([]), count, [None])


def no_bytes(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(0), count, [None, pa.py_buffer(b"")])


def no_elements(count: int) -> pa.Array:
    kind = pa.list_(pa.int8(), 0)
    return pa.Array.from_buffers(kind, count, [None], children=[pa.array([], pa.int8())])


def run_ends(values: pa.Array, count: int) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), values)


def dictionary_of(value: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([value]))


def wide_structs(count: int, fields: int) -> pa.Array:
    columns = {f"f{number}": pa.nulls(count) for number in range(fields)}
    return pa.StructArray.from_arrays([*columns.values()], [*columns])


def sparse_union() -> pa.Array:
    values = [pa.array([1]), pa.array(["a"])]
    return pa.UnionArray.from_sparse(pa.array([1], pa.int8()), values)


def falling_offsets() -> pa.Array:
    kind = pa.list_(pa.string())
    values = pa.array(["a"] * 4)
    return pa.Array.from_buffers(kind, 3, [None, offsets(0, 4, -4_000, 4)], children=[values])


def falling_text() -> pa.Array:
    buffers = [None, offsets(0, 4, -2_000_000, 4), pa.py_buffer(b"aaaa")]
    return pa.Array.from_buffers(pa.string(), 3, buffers)


def far_dictionary() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([9_000_000]), pa.array(["a"]), safe=False)


CRAFTED: dict[str, Callable[[], pa.Array]] = {
    "lists of empty structs": lambda: list_of(empty_structs(MANY), MANY),
    "lists of no bytes": lambda: list_of(no_bytes(MANY), MANY),
    "lists of lists of no elements": lambda: list_of(no_elements(MANY), MANY),
    "lists of nulls": lambda: list_of(pa.nulls(MANY), MANY),
    "views of views": lambda: list_views(list_views(list_views(pa.array([1] * 99), 99), 99), 99),
    "lists in views": lambda: list_views(
        pa.ListArray.from_arrays(offsets_of(300), list_views(pa.array(["a"] * 300), 300)), 99
    ),
    "views of one list": lambda: list_views(pa.array(["a"] * 9_999), 9_999),
    "views of one text": lambda: string_views(9_999, b"a" * LONG),
    "lists of views of one text": lambda: list_of(string_views(9_999, b"a" * LONG), 9_999),
    "run ends": lambda: run_ends(pa.array(["a" * LONG]), 9_999),
    "run ends of lists": lambda: run_ends(pa.array([["a"] * 9_999]), 9_999),
    "lists of run ends": lambda: list_of(run_ends(pa.array(["a" * LONG]), 9_999), 9_999),
    "dictionary of one text": lambda: dictionary_of("a" * LONG, 9_999),
    "wide structs": lambda: wide_structs(9_999, 5_000),
    "union": sparse_union,
    "falling offsets of lists": falling_offsets,
    "falling offsets of texts": falling_text,
    "dictionary without the value": far_dictionary,
}


def offsets_of(count: int) -> pa.Array:
    return pa.array(range(count + 1), pa.int32())


def crafted_column(name: str, place: str) -> pa.Table:
    """Return a table of messages, subscriptions and moves with a crafted column in some place."""
    column = CRAFTED[name]()
    count = len(column)
    columns: dict[str, Any] = {
        "id": pa.array(range(count)),
        "subscription_id": pa.array(range(count)),
        "text": pa.array(["tea"] * count),
        "lon": pa.array([1.0] * count),
        "lat": pa.array([1.0] * count),
        "radius_m": pa.array([1.0] * count),
    }
    return pa.table({**columns, place: column})


# --- valid tables ----------------------------------------------------------------------------


def valid_messages() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(["a", "b", "c"], pa.string_view()),
            "text": pa.array(["hot tea", None, "a text that is longer than twelve"]),
            "tokens": pa.array([None, ["x", "y"], None], pa.large_list(pa.string_view())),
            "lon": pa.array([1, 2, 3], pa.float32()),
            "lat": pa.array([1, 2, 3], pa.int8()),
            "time": pa.array([1, None, 3], pa.timestamp("ns", "Europe/Berlin")),
            "ttl_s": pa.array([1, None, 2]),
            "properties": pa.array([{"a": [1, 2], "b": None}, None, {"a": [], "b": [{}]}]),
        }
    )


def valid_lists() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([1, 2, 3]),
            "tokens": pa.array([["a"], ["b", "c"], []], pa.list_view(pa.string())),
            "lon": pa.array([1.0, 2.0, None]),
            "lat": pa.array([1.0, 2.0, 3.0]),
        }
    )


def valid_subscriptions() -> pa.Table:
    words = pa.array(["tea", "a longer keyword", "tea"]).dictionary_encode()
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.uint16()),
            "keywords": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), words),
            "west": pa.array([0, 0, 0], pa.decimal128(5, 2)),
            "south": pa.array(["0", "0", "0"], pa.large_string()),
            "east": pa.array([1, 1, None], pa.float16()),
            "north": pa.array([1.0, 1.0, 1.0]),
            "owner": pa.array(["ann", "bob", "ann"]).dictionary_encode(),
            "expires_at": pa.array(["2030-01-01", None, "2031-01-01"]),
            "note": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int8())),
            "nothing": pa.nulls(3),
        }
    )


VALID = {
    "messages": valid_messages,
    "lists": valid_lists,
    "subscriptions": valid_subscriptions,
}


def stream_of(table: pa.Table) -> bytes:
    """Return a table as a stream of Arrow."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def file_of(table: pa.Table, **options: Any) -> bytes:
    """Return a table as a file of Parquet."""
    sink = io.BytesIO()
    parquet.write_table(table, sink, **options)
    return sink.getvalue()


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return content that is damaged in one to four places."""
    body = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(body))
        kind = chance.randrange(5)
        if kind == 0:
            body[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice(_NUMBERS) % (1 << 8 * width)
            place -= place % width
            body[place : place + width] = number.to_bytes(width, "little")
        elif kind == 2:
            body[place : place + chance.randint(1, 9)] = chance.randbytes(chance.randint(1, 9))
        elif kind == 3:
            other = chance.randrange(len(body))
            body[place : place + 8] = body[other : other + 8]
        elif chance.random() < 0.2:
            del body[place:]
        body = body or bytearray(b"\0")
    return bytes(body)


_pools: list[Any] = []
"""Arrays may live longer than the block that made them, and need their pool."""


@contextmanager
def bounded(most_bytes: int) -> Iterator[None]:
    """Assert that Arrow, NumPy and Python together never have more than a number of new bytes."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert peak + (pool.max_memory() or 0) <= most_bytes
