"""Raw records with any column names to clean messages or subscriptions, rejects and counts.

A record is read once for the rows (parsed, counted, duplicates dropped) and once more for the
rejects, if those are asked for. Nothing is collected on the driver. The work on a batch is in
`nearcast.spark.workers.cleaning`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, Observation, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    CharType,
    NullType,
    StringType,
    VarcharType,
)

from nearcast.errors import NearcastError, UnknownName, UnsupportedFile
from nearcast.spark.frames import INTEGERS, ddl
from nearcast.spark.workers.cleaning import (
    COLUMNS,
    DAMAGED,
    REJECTS,
    Cleaning,
    clean_rejects,
    clean_rows,
    require_columns,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

__all__ = ["Prepared", "clean", "prepare"]

DUPLICATES = ("drop", "keep")

_TEXTS = (StringType, CharType, VarcharType, NullType)
# Spark numbers the rows of a partition from here on (as monotonically_increasing_id does, which
# streams must not use).
_PARTITION_BITS = 33


@dataclass(frozen=True)
class Prepared:
    """Clean rows, the records that are none, and how many there were of each.

    ``rows`` and ``rejects`` are plans of their own: to write both is to read the records twice.
    ``rejects`` has the columns ``row``, ``field``, ``reason`` and ``record``, where ``row`` is the
    position of a record in its partition, plus the number of the partition times 2 to the 33.
    """

    rows: DataFrame
    rejects: DataFrame
    kind: str
    observation: Observation | None

    @property
    def counts(self) -> dict[str, int]:
        """How many records were ``read``, ``clean``, ``rejected`` and ``duplicates``.

        The numbers are those of the first action on ``rows``, which should go through all of them
        (a write, a count); before it, this waits for it. A plan that Spark runs twice in one
        action, as it does to sort a whole frame, is counted twice.

        Raises
        ------
        NearcastError
            For a stream, whose numbers come with the progress of its query.
        """
        if self.observation is None:
            raise NearcastError(
                "a stream has no end at which to count; "
                "use counts_in(progress) with the progress of its query"
            )
        try:
            return _counts(self.observation.get)
        except Py4JJavaError:
            # Spark leaves out the counting where no rows come, and then has nothing to get.
            return _counts({})

    def counts_in(self, progress: Any) -> dict[str, int] | None:
        """Return the same numbers of one micro-batch, from the progress of a streaming query.

        None where the progress tells nothing, as that of a trigger without data.
        """
        told = progress["observedMetrics"]
        names = _metric_names(self.kind)
        if not all(name in told for name in names):
            return None
        parsed, kept = (told[name].asDict() for name in names)
        # What a stream has seen before lies in Spark's state; here it is what is left over.
        again = parsed["read"] - parsed["rejected"] - kept["clean"]
        return _counts({**parsed, **kept, "duplicates": again})

    def check(self) -> dict[str, int]:
        """Return the counts after making sure that no record has vanished.

        Raises
        ------
        NearcastError
            When clean, rejected and duplicate rows are not as many as were read.
        """
        counts = self.counts
        read, *rest = counts.values()
        if read != sum(rest):
            told = ", ".join(f"{number:,} {name}" for name, number in counts.items())
            raise NearcastError(
                f"every record read must be clean, rejected or a duplicate, but there are {told}; "
                "do the files change, was not every row asked for, or was a stage run again?"
            )
        return counts


def prepare(
    frame: DataFrame,
    kind: str,
    columns: Mapping[str, str | Column] | None = None,
    *,
    duplicates: str = "drop",
    damaged: str = Cleaning.damaged,
) -> Prepared:
    """Make clean messages or subscriptions of raw records.

    Parameters
    ----------
    frame
        The records. Numbers and times may be text, lists may be text, ids are strings or integers.
        A row that has something in ``_corrupt_record``, where Spark keeps lines that it could not
        read, is rejected.
    kind
        ``messages`` or ``subscriptions``.
    columns
        Which column is meant by a name of ours, where it has another one: the name of a column or
        of a field in it (``{"text": "body", "lon": "place.lon"}``), or an expression.
    duplicates
        ``drop`` keeps the first of the rows with the same id, in the order in which Spark numbers
        partitions (on a stream, one of those that came first, and Spark remembers all ids);
        ``keep`` keeps all of them and needs no shuffle.
    damaged
        The reason why rows with a ``_corrupt_record`` are rejected.

    Raises
    ------
    UnknownName
        When there is no such kind, no such column of ours, no such way with duplicates.
    UnsupportedFile
        When a column is missing, or ids are neither strings nor integers.

    Examples
    --------
    >>> prepared = prepare(spark.read.json("raw"), "messages", {"text": "body"})  # doctest: +SKIP
    >>> prepared.rows.write.parquet("messages")  # doctest: +SKIP
    >>> prepared.check()  # doctest: +SKIP
    {'read': 1000, 'clean': 990, 'rejected': 6, 'duplicates': 4}
    """
    if kind not in COLUMNS:
        raise UnknownName("kind", kind, COLUMNS)
    if duplicates not in DUPLICATES:
        raise UnknownName("way with duplicates", duplicates, DUPLICATES)
    raw = _chosen(frame, kind, columns or {})
    cleaning = _cleaning(raw, kind, damaged)
    parsed = raw.mapInArrow(
        partial(clean_rows, cleaning=cleaning), schema=ddl(cleaning.counted_schema)
    )
    rejects = raw.mapInArrow(partial(clean_rejects, cleaning=cleaning), schema=ddl(REJECTS))
    if frame.isStreaming:
        return Prepared(_streamed(parsed, kind, duplicates), rejects, kind, None)
    observation = Observation()
    return Prepared(_counted(parsed, observation, duplicates), rejects, kind, observation)


def clean(
    frame: DataFrame, kind: str, columns: Mapping[str, str | Column] | None = None
) -> DataFrame:
    """Return the clean rows of raw records, for ``frame.transform``; see `prepare`.

    Examples
    --------
    >>> messages = raw.transform(clean, "messages", {"text": "body"})  # doctest: +SKIP
    """
    return prepare(frame, kind, columns).rows


def _chosen(frame: DataFrame, kind: str, columns: Mapping[str, str | Column]) -> DataFrame:
    """Return the columns of the frame that matter, under our names, and where rows begin."""
    for name in columns:
        if name not in COLUMNS[kind]:
            raise UnknownName(f"column of {kind}", name, COLUMNS[kind])
    theirs = {name: _found(frame, name, source) for name, source in columns.items()}
    taken = {*columns, *(source for source in columns.values() if isinstance(source, str))}
    others = [name for name in frame.columns if name not in taken]
    require_columns(kind, [*columns, *others])
    own = {n: _quoted(n) for n in others if n in COLUMNS[kind] or n == DAMAGED}
    first = F.shiftleft(F.spark_partition_id().cast("bigint"), _PARTITION_BITS)
    named = [column.alias(name) for name, column in {**theirs, **own, "row": first}.items()]
    return frame.select(*named)


def _found(frame: DataFrame, name: str, source: str | Column) -> Column:
    if not isinstance(source, str):
        return source
    if source in frame.columns:
        return _quoted(source)
    field = F.col(source)
    try:
        if "." in source and frame.select(field):
            return field
    except AnalysisException:
        pass
    raise UnsupportedFile(
        f"there is no column {source!r}, which should hold {name}; "
        f"found the columns {', '.join(frame.columns) or 'none'}"
    )


def _quoted(name: str) -> Column:
    doubled = name.replace("`", "``")
    return F.col(f"`{doubled}`")


def _cleaning(raw: DataFrame, kind: str, damaged: str) -> Cleaning:
    types = {field.name: field.dataType for field in raw.schema}
    if not isinstance(types["id"], (*INTEGERS, *_TEXTS)):
        raise UnsupportedFile(
            f"the column id must hold strings or integers, holds {types['id'].simpleString()}; "
            "cast it to one of them"
        )
    return Cleaning.of(
        kind,
        types,
        integer_ids=isinstance(types["id"], INTEGERS),
        binary_geometry=isinstance(types.get("geometry"), BinaryType),
        damaged=damaged,
    )


def _counted(parsed: DataFrame, observation: Observation, duplicates: str) -> DataFrame:
    """Return the clean rows, one for each id, counted on the way."""
    rank = F.row_number().over(Window.partitionBy("id").orderBy("row"))
    ranked = parsed.withColumn("rank", rank if duplicates == "drop" else F.lit(1))
    first = F.col("read").isNull() & (F.col("rank") == 1)
    again = F.col("read").isNull() & (F.col("rank") > 1)
    # Each number is counted for itself, so that their sum can be checked.
    metrics = [F.count_if(first).alias("clean"), F.count_if(again).alias("duplicates")]
    counted = ranked.observe(observation, *_parsed_metrics(), *metrics)
    return counted.filter(first).drop("row", "read", "rejected", "rank")


def _streamed(parsed: DataFrame, kind: str, duplicates: str) -> DataFrame:
    first, second = _metric_names(kind)
    sound = parsed.observe(first, *_parsed_metrics()).filter("read is null")
    rows = sound.drop("row", "read", "rejected")
    kept = rows if duplicates == "keep" else rows.dropDuplicates(["id"])
    return kept.observe(second, F.count("*").alias("clean"))


def _metric_names(kind: str) -> tuple[str, str]:
    return f"nearcast_{kind}_parsed", f"nearcast_{kind}_clean"


def _parsed_metrics() -> tuple[Column, Column]:
    return F.sum("read").alias("read"), F.sum("rejected").alias("rejected")


def _counts(told: Mapping[str, int]) -> dict[str, int]:
    names = ("read", "clean", "rejected", "duplicates")
    return {name: int(told.get(name) or 0) for name in names}
