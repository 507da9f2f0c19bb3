"""Draw random subscriptions from messages: generators over Arrow record batches.

All randomness comes from the hash of a message's id: it decides the order in which messages are
used, and what is drawn from each. So neither the partitions nor the order of the rows matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import UNITS, WORLD, Messages, starts
from nearcast.errors import InvalidInput
from nearcast.indexes.statistics import bounding_box
from nearcast.intake import read_messages
from nearcast.spark.workers.counting import BOUNDS
from nearcast.text import Vocabulary
from nearcast.text import tokenizer as find_tokenizer
from nearcast.text.keys import keys_of, string_buffers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

__all__ = [
    "DRAWN",
    "REJECTED",
    "SURVEYED",
    "WORDLESS",
    "Recipe",
    "Rounds",
    "draw_batches",
    "survey_batches",
    "uniform",
]

DRAWN = (
    "id string, keywords array<string>, west double, south double, east double, north double, "
    "hash bigint"
)
"""The columns of drawn subscriptions; ``hash`` is that of the message."""

SURVEYED = f"bucket int, messages bigint, {BOUNDS}"
"""The columns of a survey: the number of messages by the first 16 bits of their hash.

Every row also has the bounding box of all messages of its task that have words.
"""

BUCKETS = 1 << 16
WORDLESS, REJECTED = BUCKETS, BUCKETS + 1
"""Buckets of rows from which nothing can be drawn: messages without words, and invalid rows."""

MAX_ROWS = 20_000

_GOLDEN = 0x9E3779B97F4A7C15
_SIDES = ("west", "south", "east", "north")
_NUMBER, _AREA, _ASPECT, _TOKENS = range(4)
_ASPECTS = np.log(2.0)  # relative to the whole, a box is at most twice as wide as high


@dataclass(frozen=True)
class Recipe:
    """How to draw a subscription from a message.

    Parameters
    ----------
    tokens
        The minimum and maximum number of tokens.
    share
        The minimum and maximum area of its box, as shares of ``within``; the logarithm is uniform.
    tokenizer
        The name of what splits messages into tokens.
    within
        Where boxes may lie, in units of 1e-7 degree: the bounding box of the messages.
    """

    tokens: tuple[int, int] = (1, 5)
    share: tuple[float, float] = (0.0001, 0.01)
    tokenizer: str = "words"
    within: tuple[int, int, int, int] = WORLD

    def __post_init__(self) -> None:
        if not 1 <= self.tokens[0] <= self.tokens[1]:
            problem = "must be two integers, 1 <= minimum <= maximum"
            raise InvalidInput("tokens", self.tokens, problem)
        if not 0 < self.share[0] <= self.share[1] <= 1:
            raise InvalidInput(
                "share", self.share, "must be two shares, 0 < minimum <= maximum <= 1"
            )


@dataclass(frozen=True)
class Rounds:
    """How many subscriptions to draw from each message, by the bucket of its hash.

    Each message gives the copies from ``first`` to ``last`` (excluded), and one more if its bucket
    is below ``more_below``.
    """

    first: int
    last: int
    more_below: int = 0

    def copies(self, bucket: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of copies for messages of these buckets."""
        return self.last - self.first + (bucket < self.more_below)


class _Eligible(NamedTuple):
    """Messages that have words, and their words."""

    id: pa.Array
    hash: NDArray[np.uint64]
    messages: Messages
    vocabulary: Vocabulary

    def take(self, rows: NDArray[np.int64]) -> _Eligible:
        return _Eligible(
            self.id.take(pa.array(rows)),
            self.hash[rows],
            self.messages.take(rows),
            self.vocabulary,
        )


def uniform(state: NDArray[np.uint64], number: Any) -> NDArray[np.float64]:
    """Return number ``number`` of each state's random stream, uniform in [0, 1) (splitmix64).

    Examples
    --------
    >>> uniform(np.array([7, 8], np.uint64), 0).round(3).tolist()
    [0.39, 0.619]
    """
    return (_mixed(state, number) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def survey_batches(
    batches: Iterable[pa.RecordBatch], *, tokenizer: str = "words"
) -> Iterator[pa.RecordBatch]:
    """Count messages by bucket; the batches have an additional column ``hash``."""
    found = np.zeros(BUCKETS + 2, np.int64)
    boxes = []
    for batch in batches:
        eligible, wordless, rejected = _eligible(batch, tokenizer)
        boxes += [bounding_box(eligible.messages)]
        found[WORDLESS] += wordless
        found[REJECTED] += rejected
        found += np.bincount(_bucket(eligible.hash), minlength=len(found))
    bucket = np.flatnonzero(found)
    sides = _around([box for box in boxes if box is not None])
    yield pa.record_batch(
        {
            "bucket": bucket.astype(np.int32),
            "messages": found[bucket],
            **{name: pa.array([side] * len(bucket), pa.int64()) for name, side in sides.items()},
        }
    )


def _around(boxes: list[tuple[int, int, int, int]]) -> dict[str, int | None]:
    """Return the sides of the box around boxes, null if there are none."""
    if not boxes:
        return dict.fromkeys(_SIDES)
    west, south, east, north = zip(*boxes, strict=True)
    return dict(zip(_SIDES, (min(west), min(south), max(east), max(north)), strict=True))


def draw_batches(
    batches: Iterable[pa.RecordBatch], *, recipe: Recipe, rounds: Rounds
) -> Iterator[pa.RecordBatch]:
    """Draw subscriptions from messages; the batches have an additional column ``hash``.

    Examples
    --------
    >>> table = pa.table({"id": ["m"], "text": ["hot tea"], "lon": [180], "lat": [0], "hash": [7]})
    >>> [drawn] = draw_batches(table.to_batches(), recipe=Recipe((1, 1)), rounds=Rounds(0, 2))
    >>> drawn["id"].to_pylist(), drawn["keywords"].to_pylist(), drawn["east"].to_pylist()
    (['m#0', 'm#1'], [['tea'], ['tea']], [180.0, 180.0])
    """
    for batch in batches:
        eligible, _, _ = _eligible(batch, recipe.tokenizer)
        copy_start = starts(rounds.copies(_bucket(eligible.hash)))
        for first in range(0, int(copy_start[-1]), MAX_ROWS):
            at = np.arange(first, min(first + MAX_ROWS, int(copy_start[-1])))
            row = np.searchsorted(copy_start, at, side="right") - 1
            yield _draw(eligible.take(row), rounds.first + at - copy_start[row], recipe)


def _eligible(batch: pa.RecordBatch, tokenizer: str) -> tuple[_Eligible, int, int]:
    """Return the messages with words, and the numbers of those without and of invalid rows."""
    table = pa.Table.from_batches([batch])
    read, rejects = read_messages(table, find_tokenizer(tokenizer), now_us=0, unique=False)
    # Token ids follow the order of the bytes: in the order of arrival, they would vary.
    arrived = Vocabulary()
    read.number(arrived, add=True)
    tokens = arrived.tokens()
    vocabulary = Vocabulary()
    vocabulary.add_keys(keys_of(*string_buffers(tokens.take(pc.sort_indices(tokens)))))
    messages = read.number(vocabulary)
    kept = np.delete(np.arange(table.num_rows), rejects.row)
    worded = np.flatnonzero(np.diff(messages.token_start))
    rows = kept[worded]
    eligible = _Eligible(
        read.ids.take(worded).to_arrow().cast(pa.string()),
        table.column("hash").to_numpy()[rows].view(np.uint64),
        messages.take(worded),
        vocabulary,
    )
    return eligible, len(read) - len(worded), len(rejects)


def _bucket(value: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (value >> np.uint64(48)).astype(np.int64)


def _draw(chosen: _Eligible, copy: NDArray[np.int64], recipe: Recipe) -> pa.RecordBatch:
    state = _mixed(chosen.hash, copy)
    keyword_start, keyword = _draw_tokens(chosen.messages, state, recipe.tokens)
    words = chosen.vocabulary.tokens().take(pa.array(keyword)).cast(pa.string())
    box = _draw_boxes(chosen.messages.box, state, recipe) / UNITS
    number = pa.array(copy).cast(pa.string())
    columns = {
        "id": pc.binary_join_element_wise(chosen.id, number, "#"),
        "keywords": pa.ListArray.from_arrays(pa.array(keyword_start, pa.int32()), words),
        **{side: box[:, i] for i, side in enumerate(_SIDES)},
        "hash": chosen.hash.view(np.int64),
    }
    return pa.record_batch(columns)


def _draw_tokens(
    messages: Messages, state: NDArray[np.uint64], tokens: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return random tokens of each message, ascending."""
    length = np.diff(messages.token_start)
    minimum, maximum = tokens
    wanted = minimum + (uniform(state, _NUMBER) * (maximum - minimum + 1)).astype(np.int64)
    row = np.repeat(np.arange(len(messages)), length)
    position = np.arange(len(row)) - messages.token_start[row]
    order = np.lexsort((_mixed(state[row], _TOKENS + position), row))
    taken = np.minimum(wanted, length)
    kept = np.sort(order[position < taken[row]])
    return starts(taken), messages.token[kept]


def _draw_boxes(
    box: NDArray[np.int32], state: NDArray[np.uint64], recipe: Recipe
) -> NDArray[np.int64]:
    """Return boxes around the centers of these boxes, moved to where they may lie, in units."""
    low, high = np.log(recipe.share)
    corners = np.array(recipe.within, np.int64)
    lowest, highest = corners[:2], corners[2:]
    area = np.exp(low + uniform(state, _AREA) * (high - low))
    # Both sides are shares of the whole, at most 1.
    across = np.sqrt(area) * np.exp((uniform(state, _ASPECT) - 0.5) * _ASPECTS)
    across = np.clip(across, area, 1.0)
    size = np.stack([across, area / across], axis=1) * (highest - lowest)
    corner = np.clip(_centers(box) - size / 2, lowest, highest - size)
    edges = np.rint(np.concatenate([corner, corner + size], axis=1))
    limits = np.tile(lowest, 2), np.tile(highest, 2)
    inside: NDArray[np.int64] = np.clip(edges, *limits).astype(np.int64)
    return inside


def _centers(box: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the centers of message boxes, also of those that cross the antimeridian."""
    wide = box.astype(np.int64)
    turn = WORLD[2] - WORLD[0]
    wide[:, 2] += np.where(wide[:, 0] > wide[:, 2], turn, 0)
    center = (wide[:, :2] + wide[:, 2:]) // 2
    center[:, 0] -= np.where(center[:, 0] > WORLD[2], turn, 0)
    return center


def _mixed(state: NDArray[np.uint64], number: Any) -> NDArray[np.uint64]:
    """Return number ``number`` of each state's random stream, as 64 bits (splitmix64)."""
    mixed = state + np.atleast_1d(number + 1).astype(np.uint64) * np.uint64(_GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    done: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return done
