"""Subscriptions drawn from messages, as in the experiments of the papers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark.sql import functions as F

from nearcast.columns import WORLD
from nearcast.errors import InvalidInput
from nearcast.spark.workers.counting import known_columns
from nearcast.spark.workers.drawing import (
    BUCKETS,
    DRAWN,
    REJECTED,
    SURVEYED,
    WORDLESS,
    Recipe,
    Rounds,
    draw_batches,
    survey_batches,
)
from nearcast.text import loadable_name, words
from nearcast.text import tokenizer as find_tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from nearcast.text import Tokenizer

__all__ = ["Survey", "subscriptions", "survey"]


class Survey(NamedTuple):
    """The messages from which subscriptions can be drawn with a seed.

    ``bucket[b]`` messages have a hash that starts with the 16 bits ``b``. ``wordless`` messages
    have no words, and ``rejected`` rows are invalid. ``box`` is the bounding box of the messages
    that have words, in units of 1e-7 degree.
    """

    seed: int
    bucket: NDArray[np.int64]
    wordless: int
    rejected: int
    box: tuple[int, int, int, int] = WORLD

    @property
    def messages(self) -> int:
        """The number of messages that have words."""
        return int(self.bucket.sum())


def survey(messages: DataFrame, seed: int = 0, *, tokenizer: str | Tokenizer = words) -> Survey:
    """Count the messages that have words, by hash, in one pass.

    Examples
    --------
    >>> survey(spark.read.parquet("messages")).messages  # doctest: +SKIP
    """
    count = partial(survey_batches, tokenizer=_drawn_with(tokenizer))
    counted = _hashed(messages, seed).mapInArrow(count, SURVEYED)
    sides = [F.min("west"), F.min("south"), F.max("east"), F.max("north")]
    named = [side.alias(f"side{at}") for at, side in enumerate(sides)]
    rows = counted.groupBy("bucket").agg(F.sum("messages").alias("messages"), *named).collect()
    found = np.zeros(BUCKETS + 2, np.int64)
    boxes = [row[2:] for row in rows if row[2] is not None]
    for row in rows:
        found[row["bucket"]] = row["messages"]
    west, south, east, north = zip(*boxes, strict=True) if boxes else ([side] for side in WORLD)
    box = min(west), min(south), max(east), max(north)
    return Survey(seed, found[:BUCKETS], int(found[WORDLESS]), int(found[REJECTED]), box)


def subscriptions(
    messages: DataFrame,
    count: int,
    *,
    seed: int = 0,
    tokens: tuple[int, int] = (1, 5),
    share: tuple[float, float] = (0.0001, 0.01),
    surveyed: Survey | None = None,
    tokenizer: str | Tokenizer = words,
) -> DataFrame:
    """Draw subscriptions: some tokens of a message, and a box around its place.

    The same seed gives the same subscriptions, whatever the partitions and the order of the rows.
    Every subscription matches the message that it was drawn from; its id is ``message#copy``.
    Messages are used in the order of a hash of their ids. If there are fewer messages than
    subscriptions, each is used several times.

    Parameters
    ----------
    messages
        Messages with unique ids.
    count
        The number of subscriptions.
    seed
        Another seed gives other subscriptions.
    tokens
        The minimum and maximum number of tokens of a subscription; fewer if its message has fewer.
    share
        The minimum and maximum area of its box, as shares of the bounding box of the messages; the
        logarithm is uniform. No box lies outside of that.
    surveyed
        The `survey` of the same messages and seed. By default, this runs one, which is a job.
    tokenizer
        The tokenizer that they will be built with. Of those that change words (``stem:<language>``,
        ``cjk``) the keywords are the words before that.

    Raises
    ------
    InvalidInput
        When no message has words, or another argument is invalid.

    Examples
    --------
    >>> subscriptions(spark.read.parquet("messages"), 1_000_000, seed=7)  # doctest: +SKIP
    """
    recipe = Recipe(tokens, share, _drawn_with(tokenizer))  # checks them before a job runs
    if count < 1:
        raise InvalidInput("count", count, "must be at least 1")
    if surveyed is not None and surveyed.seed != seed:
        raise InvalidInput("surveyed", surveyed.seed, f"must be a survey with the seed {seed}")
    found = surveyed or survey(messages, seed, tokenizer=tokenizer)
    if not found.messages:
        counts = f"{found.wordless:,} have none, {found.rejected:,} rows are invalid"
        raise InvalidInput("messages", counts, "must include at least one message with words")
    recipe = replace(recipe, within=found.box)
    rounds, more = divmod(count, found.messages)
    # Use all messages of the buckets before that of the last message, and of its own bucket, which
    # is small, the first ones in order.
    below = _starts(found.bucket)
    last = int(np.searchsorted(below, more, side="right")) - 1
    rest = more - int(below[last])
    hashed = _hashed(messages, seed)
    bucket = F.shiftrightunsigned("hash", 48)
    whole = hashed if rounds else hashed.where(bucket < last)
    drawn = _drawn(whole, recipe, Rounds(0, rounds, more_below=last))
    if rest:
        border = _drawn(hashed.where(bucket == last), recipe, Rounds(rounds, rounds + 1))
        drawn = drawn.union(border.orderBy("hash", *border.drop("hash").columns).limit(rest))
    return drawn.drop("hash")


def _drawn_with(tokenizer: str | Tokenizer) -> str:
    """Return the name of what splits messages into keywords.

    A stem of a stem may be another one, so stems are no keywords; the words are.
    """
    name = loadable_name(tokenizer)
    return "words" if hasattr(find_tokenizer(name), "refine") else name


def _starts(bucket: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of messages before each bucket."""
    return np.cumsum(bucket) - bucket


def _hashed(messages: DataFrame, seed: int) -> DataFrame:
    """Return the columns of messages, and the hash of the id as text: 7 and "7" are the same id."""
    known = messages.select(known_columns(messages.columns, "messages"))
    text = F.col("id").cast("string")
    return known.withColumn("hash", F.xxhash64(F.lit(seed).cast("bigint"), text))


def _drawn(messages: DataFrame, recipe: Recipe, rounds: Rounds) -> DataFrame:
    return messages.mapInArrow(partial(draw_batches, recipe=recipe, rounds=rounds), DRAWN)
