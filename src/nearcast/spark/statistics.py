"""Statistics of frames: how often tokens occur in messages or subscriptions, and where.

Tasks count first, and one shuffle sums up. `statistics` counts everything in one pass and writes
it; the other functions return one part each as a frame.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from nearcast.columns import UNITS, WORLD
from nearcast.errors import InvalidInput
from nearcast.indexes.statistics import Grid, Statistics
from nearcast.spark.files import with_tokenizer
from nearcast.spark.workers.counting import (
    BOUNDS,
    COUNTED,
    DOCUMENTS,
    HEIGHT,
    PAIR,
    WEIGHTED,
    WIDTH,
    bound_batches,
    count_batches,
    known_columns,
    weigh_tokens,
    write_statistics,
)
from nearcast.text import loadable_name, words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from nearcast.spark.workers.counting import Kind
    from nearcast.text import Tokenizer

__all__ = [
    "bounding_box",
    "box_statistics",
    "cell_statistics",
    "density",
    "statistics",
    "token_statistics",
]


Box = tuple[float, float, float, float]
"""West, south, east and north in degrees."""


def statistics(
    frame: DataFrame,
    kind: Kind,
    out: str | os.PathLike[str],
    *,
    across: int = 100,
    up: int = 100,
    tokenizer: str | Tokenizer = words,
    box: Box | None = None,
) -> Statistics:
    """Count tokens, cells and extents in one pass, and write them as a folder.

    The folder has the same bytes whatever the partitions and the order of the rows. One task writes
    it and the driver maps it, so they must see the same disk.

    Parameters
    ----------
    frame
        Messages or subscriptions, with the columns of their files. Invalid rows are counted as
        ``rejected``; rows with the id of an earlier row are documents as well.
    kind
        ``"messages"`` or ``"subscriptions"``.
    out
        The folder to write; earlier statistics there are replaced.
    across, up
        The number of grid cells from west to east, and from south to north.
    tokenizer
        What makes tokens of keywords and texts, as for `nearcast.spark.build`.
    box
        West, south, east and north of the grid in degrees; what lies outside counts in the nearest
        cell. By default the bounding box of the rows, which takes one more pass.

    Raises
    ------
    UnsupportedFile
        When the frame has no columns for the id, the place, or the words of messages.

    Examples
    --------
    >>> from nearcast.spark.session import session
    >>> spark = session()  # doctest: +SKIP
    >>> statistics(spark.read.parquet("messages"), "messages", "stats").idf()  # doctest: +SKIP
    """
    path = os.fspath(out)
    if "://" in path:
        raise InvalidInput("out", path, "must be a path on a disk that all machines see")
    frame = with_tokenizer(frame, loadable_name(tokenizer))
    grid = _grid(frame, kind, across, up, box)
    counted = _counted(frame, kind, grid, tokenizer=tokenizer)
    # An empty frame has no task that could write, so add a row that counts nothing.
    none = frame.sparkSession.range(1).selectExpr(
        f"cast({DOCUMENTS} as tinyint)", "-1", "cast(null as string)", "0L"
    )
    write = partial(write_statistics, folder=os.path.abspath(path), grid=grid)
    counted.union(none).repartition(1).mapInArrow(write, "documents bigint").collect()
    return Statistics.load(path)


def token_statistics(
    frame: DataFrame, kind: Kind, *, tokenizer: str | Tokenizer = words
) -> DataFrame:
    """Return ``token``, ``df`` (the number of documents) and ``idf``, most frequent first.

    The weight is ``ln(1 + N / df)``, for N documents.

    Examples
    --------
    >>> messages.transform(token_statistics, "messages").show(10)  # doctest: +SKIP
    """
    counted = _counted(frame, kind, Grid(1, 1), cells=False, tokenizer=tokenizer)
    known = counted.where(F.col("what").isin(DOCUMENTS, PAIR)).repartition(1)
    ordered = known.sortWithinPartitions("what", F.desc("times"), "token")
    return ordered.mapInArrow(weigh_tokens, WEIGHTED)


def bounding_box(frame: DataFrame, kind: Kind) -> Box | None:
    """Return west, south, east and north of all valid rows in degrees; None if there are none.

    Rows across the antimeridian make it as wide as the world.

    Examples
    --------
    >>> bounding_box(messages, "messages")  # doctest: +SKIP
    (13.09, 52.34, 13.76, 52.67)
    """
    found = _bounds(frame, kind)
    if found is None:
        return None
    west, south, east, north = (side / UNITS for side in found)
    return west, south, east, north


def cell_statistics(
    frame: DataFrame,
    kind: Kind,
    across: int = 100,
    up: int = 100,
    *,
    box: Box | None = None,
    tokenizer: str | Tokenizer = words,
) -> DataFrame:
    """Return ``cell``, ``token`` and ``df``, the documents in the cell that have the token.

    `nearcast.indexes.statistics.Grid` explains the numbers of cells. ``box`` is as for
    `statistics`; without it, this runs a job to find the box.

    Examples
    --------
    >>> messages.transform(cell_statistics, "messages", 360, 180)  # doctest: +SKIP
    """
    grid = _grid(frame, kind, across, up, box)
    counted = _counted(frame, kind, grid, tokenizer=tokenizer)
    inside = counted.where(F.col("what") == PAIR).where("cell >= 0 and token is not null")
    return inside.select("cell", "token", F.col("times").alias("df"))


def density(
    frame: DataFrame, kind: Kind, across: int = 100, up: int = 100, box: Box | None = None
) -> DataFrame:
    """Return ``cell`` and ``documents`` of the cells that have documents; see `cell_statistics`.

    Examples
    --------
    >>> subscriptions.transform(density, "subscriptions")  # doctest: +SKIP
    """
    counted = _counted(frame, kind, _grid(frame, kind, across, up, box), tokens=False)
    inside = counted.where(F.col("what") == PAIR)
    return inside.select("cell", F.col("times").alias("documents"))


def box_statistics(frame: DataFrame, kind: Kind) -> DataFrame:
    """Return ``side`` (width or height), ``bin`` and ``boxes``: a histogram of box sizes.

    Bin 0 has sides of length 0, bin b those from ``2**(b-1)`` below ``2**b`` units of 1e-7
    degree.

    Examples
    --------
    >>> subscriptions.transform(box_statistics, "subscriptions")  # doctest: +SKIP
    """
    counted = _counted(frame, kind, Grid(1, 1), tokens=False, cells=False)
    extents = counted.where(F.col("what").isin(WIDTH, HEIGHT))
    side = F.when(F.col("what") == WIDTH, "width").otherwise("height")
    return extents.select(
        side.alias("side"), F.col("cell").alias("bin"), F.col("times").alias("boxes")
    )


def _grid(frame: DataFrame, kind: Kind, across: int, up: int, box: Box | None) -> Grid:
    """Return the grid over a box in degrees, or over the bounding box of the rows."""
    sides = Grid(across, up).checked()
    if box is None:
        return sides._replace(box=_bounds(frame, kind) or WORLD)
    west, south, east, north = (round(side * UNITS) for side in box)
    return sides._replace(box=(west, south, east, north)).checked()


def _bounds(frame: DataFrame, kind: Kind) -> tuple[int, int, int, int] | None:
    """Return the bounding box of all valid rows in units; None if there are none."""
    known = frame.select(known_columns(frame.columns, kind))
    boxes = known.mapInArrow(partial(bound_batches, kind=kind), BOUNDS)
    sides = [F.min("west"), F.min("south"), F.max("east"), F.max("north")]
    [row] = boxes.agg(*(side.alias(f"side{at}") for at, side in enumerate(sides))).collect()
    if row[0] is None:
        return None
    west, south, east, north = row
    return west, south, east, north


def _counted(
    frame: DataFrame,
    kind: Kind,
    grid: Grid,
    *,
    tokens: bool = True,
    cells: bool = True,
    tokenizer: str | Tokenizer = words,
) -> DataFrame:
    """Return the sums of all counts."""
    known = frame.select(known_columns(frame.columns, kind))
    count = partial(
        count_batches,
        kind=kind,
        grid=grid.checked(),
        tokens=tokens,
        cells=cells,
        tokenizer=loadable_name(tokenizer),
    )
    counted = known.mapInArrow(count, COUNTED)
    return counted.groupBy("what", "cell", "token").agg(F.sum("times").alias("times"))
