"""``prepare``: clean raw messages or subscriptions, with rejects and counts.

Records are read once for the rows (parsed, counted, duplicates dropped), and again for the rejects
if they are used. Nothing is collected on the driver. `nearcast.spark.workers.cleaning` cleans a
batch; files are read and cleaned in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from nearcast.spark.files import files_of
from nearcast.spark.frames import INTEGERS, ddl
from nearcast.spark.workers.cleaning import (
    COLUMNS,
    DAMAGED,
    ORIGIN,
    RECORD,
    REJECTS,
    Cleaning,
    clean_rejects,
    clean_rows,
    require_columns,
)
from nearcast.spark.workers.reading import counted_batches, reject_batches
from nearcast.text import loadable_name, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from nearcast.spark.files import FileSet
    from nearcast.text import Tokenizer

__all__ = ["Prepared", "clean", "prepare"]

DUPLICATES = ("drop", "keep")

_TEXTS = (StringType, CharType, VarcharType, NullType)
# Rows are numbered as monotonically_increasing_id does, which streams do not support.
_PARTITION_BITS = 33


@dataclass(frozen=True)
class Prepared:
    """Clean rows, invalid records, and their counts.

    ``rows`` and ``rejects`` are separate plans: writing both reads the records twice. ``rejects``
    has the columns ``row``, ``file``, ``field``, ``reason`` and ``record``, the whole original
    record. ``row`` is its line or row in the file. For frames that are not from
    `nearcast.spark.read_files`, ``file`` is empty and ``row`` is the position of a record in its
    partition, plus the number of the partition times 2 to the 33.
    """

    rows: DataFrame
    rejects: DataFrame
    kind: str
    observation: Observation | None

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of records ``read``, ``clean``, ``rejected`` and ``duplicates``.

        They come from the first action on ``rows``, which should evaluate all rows (a write, a
        count). If there was none yet, this counts the rows, which is a job. A plan that Spark
        evaluates twice in one action, for example to sort a whole frame, is counted twice.

        Raises
        ------
        NearcastError
            For a stream: use `counts_in`.
        """
        if self.observation is None:
            raise NearcastError(
                "a stream has no final counts; "
                "use counts_in(progress) with the progress of its query"
            )
        try:
            if not _is_observed(self.observation):
                self.rows.count()
            return _counts(self.observation.get)
        except Py4JJavaError:
            # Spark skips the counting if there are no rows, and then has no result.
            return _counts({})

    def counts_in(self, progress: Any) -> dict[str, int] | None:
        """Return the same numbers for one micro-batch, from the progress of a streaming query.

        Returns None if the progress has none, as that of a trigger without data.
        """
        metrics = progress["observedMetrics"]
        names = _metric_names(self.kind)
        if not all(name in metrics for name in names):
            return None
        parsed, kept = (metrics[name].asDict() for name in names)
        # Spark drops rows that a stream has seen before; they are the difference.
        repeated = parsed["read"] - parsed["rejected"] - kept["clean"]
        return _counts({**parsed, **kept, "duplicates": repeated})

    def check(self) -> dict[str, int]:
        """Return the counts after checking that no record is missing.

        Raises
        ------
        NearcastError
            When clean, rejected and duplicate rows do not add up to the records read.
        """
        counts = self.counts
        read, *rest = counts.values()
        if read != sum(rest):
            shown = ", ".join(f"{number:,} {name}" for name, number in counts.items())
            raise NearcastError(
                f"every record read must be clean, rejected or a duplicate, but there are {shown}; "
                "perhaps the files changed, not all rows were evaluated, or a stage ran twice"
            )
        return counts


def prepare(
    frame: DataFrame,
    kind: str,
    columns: Mapping[str, str | Column] | None = None,
    *,
    duplicates: str = "drop",
    damaged: str = Cleaning.damaged,
    tokenizer: str | Tokenizer = words,
) -> Prepared:
    """Clean raw messages or subscriptions.

    Parameters
    ----------
    frame
        The records. Numbers, times and lists may be text; ids are strings or integers. A row with a
        value in ``_corrupt_record``, where Spark puts lines that it cannot parse, is rejected.
    kind
        ``messages`` or ``subscriptions``.
    columns
        The columns that are called differently, by our name: the name of a column or of a field in
        it (``{"text": "body", "lon": "place.lon"}``), or an expression.
    duplicates
        ``drop`` keeps the first row of each id, in the order of Spark's partitions (for a stream,
        one of the first, and Spark stores all ids). ``keep`` keeps all rows and needs no shuffle.
    damaged
        The reason for rejecting rows with a ``_corrupt_record``.
    tokenizer
        The tokenizer that the subscriptions will be built with: keywords in which it finds no
        token are rejected.

    Raises
    ------
    UnknownName
        When the kind, one of our columns, or the way to treat duplicates is unknown.
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
        raise UnknownName("value of duplicates", duplicates, DUPLICATES)
    name = loadable_name(tokenizer)
    files = files_of(frame)
    if files is not None and files.kind == kind and not columns:
        parsed, rejects = _of_files(replace(files, tokenizer=name), frame.sparkSession)
    else:
        parsed, rejects = _of_frame(frame, kind, columns or {}, damaged, name)
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


def _of_files(files: FileSet, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Return clean rows with counts, and rejects; files are read and cleaned in one step."""
    schema = files.cleaning(tidy=True).counted_schema
    parsed = files.read(spark, counted_batches, schema, tidy=True)
    return parsed, files.read(spark, reject_batches, REJECTS, tidy=False)


def _of_frame(
    frame: DataFrame,
    kind: str,
    columns: Mapping[str, str | Column],
    damaged: str,
    tokenizer: str,
) -> tuple[DataFrame, DataFrame]:
    raw = _chosen(frame, kind, columns)
    cleaning = replace(_cleaning(raw, kind, damaged), tokenizer=tokenizer)
    parsed = raw.mapInArrow(
        partial(clean_rows, cleaning=cleaning), schema=ddl(cleaning.counted_schema)
    )
    whole = _chosen(frame, kind, columns, with_record=True)
    rejects = whole.mapInArrow(partial(clean_rejects, cleaning=cleaning), schema=ddl(REJECTS))
    return parsed, rejects


def _chosen(
    frame: DataFrame,
    kind: str,
    columns: Mapping[str, str | Column],
    *,
    with_record: bool = False,
) -> DataFrame:
    """Return the columns that we use, under our names, and the number of the first row.

    ``with_record`` adds the whole record as JSON.
    """
    for name in columns:
        if name not in COLUMNS[kind]:
            raise UnknownName("column", name, COLUMNS[kind], of=kind)
    theirs = {name: _found(frame, name, source) for name, source in columns.items()}
    taken = {*columns, *(source for source in columns.values() if isinstance(source, str))}
    others = [name for name in frame.columns if name not in taken]
    require_columns(kind, [*columns, *others])
    origin = (DAMAGED, *ORIGIN.names)
    own = {n: _quoted(n) for n in others if n in COLUMNS[kind] or n in origin}
    first = F.shiftleft(F.spark_partition_id().cast("bigint"), _PARTITION_BITS)
    chosen = {**theirs, **own, "row": first}
    if with_record:
        whole = F.struct(*(_quoted(name) for name in frame.columns if name not in origin))
        chosen[RECORD] = F.to_json(whole)
    try:
        return frame.select(*(column.alias(name) for name, column in chosen.items()))
    except AnalysisException:
        if not with_record:
            raise
        return _chosen(frame, kind, columns)  # a type that JSON does not have


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
        f"there is no column {source!r} for {name}; "
        f"found the columns {', '.join(frame.columns) or 'none'}"
    )


def _quoted(name: str) -> Column:
    doubled = name.replace("`", "``")
    return F.col(f"`{doubled}`")


def _cleaning(raw: DataFrame, kind: str, damaged: str) -> Cleaning:
    types = {field.name: field.dataType for field in raw.schema}
    if not isinstance(types["id"], (*INTEGERS, *_TEXTS)):
        raise UnsupportedFile(
            f"the column id must have strings or integers, got {types['id'].simpleString()}; "
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
    """Return the clean rows, one for each id, and count them."""
    rank = F.row_number().over(Window.partitionBy("id").orderBy("row"))
    ranked = parsed.withColumn("rank", rank if duplicates == "drop" else F.lit(1))
    first = F.col("read").isNull() & (F.col("rank") == 1)
    repeated = F.col("read").isNull() & (F.col("rank") > 1)
    # Each number is counted separately, so that their sum can be checked.
    metrics = [F.count_if(first).alias("clean"), F.count_if(repeated).alias("duplicates")]
    counted = ranked.observe(observation, *_parsed_metrics(), *metrics)
    return counted.filter(first).drop("row", "read", "rejected", "rank")


def _streamed(parsed: DataFrame, kind: str, duplicates: str) -> DataFrame:
    first, second = _metric_names(kind)
    valid = parsed.observe(first, *_parsed_metrics()).filter("read is null")
    rows = valid.drop("row", "read", "rejected")
    kept = rows if duplicates == "keep" else rows.dropDuplicates(["id"])
    return kept.observe(second, F.count("*").alias("clean"))


def _is_observed(observation: Observation) -> bool:
    """Whether an action has filled an observation, so that its values can be had at once."""
    java: Any = observation._jo
    return bool(java.future().isCompleted())


def _metric_names(kind: str) -> tuple[str, str]:
    return f"nearcast_{kind}_parsed", f"nearcast_{kind}_clean"


def _parsed_metrics() -> tuple[Column, Column]:
    return F.sum("read").alias("read"), F.sum("rejected").alias("rejected")


def _counts(metrics: Mapping[str, int]) -> dict[str, int]:
    names = ("read", "clean", "rejected", "duplicates")
    return {name: int(metrics.get(name) or 0) for name in names}
