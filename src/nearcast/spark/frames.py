"""Columns of frames, types of ids, and errors of workers as errors of the driver."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StructType

from nearcast import errors
from nearcast.columns import KINDS
from nearcast.errors import InvalidInput, NearcastError
from nearcast.intake import (
    MESSAGE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    read_messages,
    read_subscriptions,
)
from nearcast.segments.warm import warm_tables, warm_up
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nearcast.columns import Scoring
    from nearcast.indexes import Builder

__all__ = [
    "INTEGERS",
    "ddl",
    "id_type",
    "message_columns",
    "plain_errors",
    "struct",
    "subscription_columns",
    "warm",
]

INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_DDL = {
    pa.string(): "string",
    pa.int8(): "tinyint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.timestamp("us", "UTC"): "timestamp",
}
_RAISED = re.compile(r"^nearcast\.errors\.(\w+): (.*)", re.MULTILINE | re.DOTALL)


def message_columns(frame: DataFrame) -> DataFrame:
    """Return the columns of a frame that belong to messages.

    Raises
    ------
    UnsupportedFile
        When there is none for the id, the words or the place.
    """
    read_messages(_no_rows(frame), now_us=0)
    return frame.select(*(name for name in frame.columns if name in MESSAGE_COLUMNS))


def subscription_columns(frame: DataFrame) -> DataFrame:
    """Return the columns of a frame that belong to subscriptions.

    Raises
    ------
    UnsupportedFile
        When there is none for the id or the place.
    """
    read_subscriptions(_no_rows(frame), Vocabulary())
    return frame.select(*(name for name in frame.columns if name in SUBSCRIPTION_COLUMNS))


def _no_rows(frame: object) -> pa.Table:
    """Return an empty table with the columns of a frame, to check them."""
    if not isinstance(frame, DataFrame):
        raise InvalidInput("frame", frame, "must be a Spark DataFrame")
    return pa.table([pa.nulls(0) for _ in frame.columns], names=frame.columns)


def id_type(frame: DataFrame, column: str = "id") -> pa.DataType:
    """Return the type of a frame's ids in matches: 64-bit integers or strings."""
    kind = frame.schema[column].dataType
    return pa.int64() if isinstance(kind, INTEGERS) else pa.string()


def ddl(schema: pa.Schema) -> str:
    """Return a schema in Spark's DDL.

    Examples
    --------
    >>> ddl(pa.schema([("id", pa.int64()), ("tokens", pa.list_(pa.string()))]))
    '`id` bigint, `tokens` array<string>'
    """
    return ", ".join(f"`{field.name}` {_ddl_of(field.type)}" for field in schema)


def _ddl_of(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_ddl_of(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_ddl_of(field.type)}' for field in kind)}>"
    return _DDL[kind]


def struct(fields: str) -> StructType:
    """Return the row type of a schema in Spark's DDL."""
    return cast("StructType", StructType.fromDDL(fields))


@lru_cache(maxsize=16)
def warm(builder: Builder, scoring: Scoring | None = None) -> None:
    """Compile or load kernels once, so that workers find them in the cache.

    ``scoring`` is how ranked subscriptions score; None if there are none.
    """
    warm_tables()
    warm_up(builder, KINDS[:1] if scoring is None else KINDS, scoring)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise errors of Nearcast in workers as such errors here, without Spark's stack traces."""
    try:
        yield
    except PySparkException as error:
        found = _RAISED.search(str(error))
        if found is None:
            raise
        kind = getattr(errors, found[1], NearcastError)
        text = found[2].split("\n\n")[0].split("\nDriver stacktrace")[0].strip()
        known = issubclass(kind, NearcastError) and not issubclass(kind, InvalidInput)
        raise (kind if known and kind is not errors.UnknownName else NearcastError)(text) from None
