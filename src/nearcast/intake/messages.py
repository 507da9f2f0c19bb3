"""Messages: read from tables and objects, once, into words, places and times."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from nearcast.columns import NO_WEIGHTS, Ids, Messages, frozen, read_only
from nearcast.errors import NearcastError, UnsupportedFile
from nearcast.intake.arrow_columns import not_null, read_lists, read_texts, with_column
from nearcast.intake.frames import table_from
from nearcast.intake.ids import read_ids, read_scopes, refuse_repeated
from nearcast.intake.names import HOW_TO_NAME
from nearcast.intake.places import BOX, POINT, read_message_boxes
from nearcast.intake.rejects import Rejects, RowErrors
from nearcast.intake.times import read_durations, read_times
from nearcast.model import Message, Point, Rect
from nearcast.model.json_form import FIELDS
from nearcast.text import Words, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.intake.batches import Batch
    from nearcast.text import Tokenizer, Vocabulary

__all__ = ["MESSAGE_COLUMNS", "MessageBatch", "messages_from", "read_messages", "with_lives"]

MESSAGE_COLUMNS = FIELDS["message"]
"""The columns that a table of messages may have; others are ignored."""

_FEW_ROWS = 16
_PLAIN_TYPES = frozenset(
    [
        *(pa.string(), pa.large_string(), pa.int64(), pa.float64()),
        *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us") for zone in (None, "UTC")),
    ]
)

_WANTED = "id, text or tokens, and a place (lon, lat; or west, south, east, north; or geometry)"


@dataclass(frozen=True, eq=False)
class MessageBatch:
    """Messages as they were read: ids, words, places and times.

    The words have no numbers yet. `number` looks them up in a vocabulary, which is cheap and can be
    done with several: that of each segment, of a router, of the messages that stay alive. All
    arrays are read-only.

    Attributes
    ----------
    ids
        The ids.
    words
        The words of each message, and the token of its scope after them.
    box
        West, south, east and north of each, in units of 1e-7 degree.
    time_us, ttl_us
        Time and time to live, in microseconds.
    """

    ids: Ids
    words: Words
    box: NDArray[np.int32]
    time_us: NDArray[np.int64]
    ttl_us: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def any_stays(self) -> bool:
        """Whether a message stays alive for a while."""
        if len(self.ttl_us) == 1:
            return int(self.ttl_us[0]) > 0
        return bool(self.ttl_us.any())

    def number(
        self,
        vocabulary: Vocabulary,
        *,
        add: bool = False,
        text_weight: NDArray[np.float64] = NO_WEIGHTS,
    ) -> Messages:
        """Return the messages with the token ids of a vocabulary.

        Unknown words are left out, or added to the vocabulary with ``add=True``. ``text_weight``
        has the weights of the texts, where ranked subscriptions need them.
        """
        column = self.words.number(vocabulary, add=add)
        return Messages.of_frozen(
            token_start=column.token_start,
            token=column.token,
            box=self.box,
            time_us=self.time_us,
            ttl_us=self.ttl_us,
            text_weight=text_weight,
        )

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the messages of these rows."""
        return type(self)(
            self.ids.take(rows),
            self.words.take(rows),
            frozen(self.box[rows]),
            frozen(self.time_us[rows]),
            frozen(self.ttl_us[rows]),
        )


def read_messages(
    table: pa.Table,
    tokenizer: Tokenizer = words,
    *,
    now_us: int,
    source: Batch | None = None,
    unique: bool = True,
) -> tuple[MessageBatch, Rejects]:
    """Return the messages of a table in their order, and the rows that were rejected.

    Parameters
    ----------
    table
        ``id``; ``text`` or ``tokens`` (lists of strings, or strings that are split at spaces);
        ``lon, lat``, or ``west, south, east, north``, or a point as ``geometry``; optionally
        ``time``, ``ttl_s`` and ``scope``. Frames of pandas and Polars are tables too.
    tokenizer
        Splits text into tokens; the same as for the subscriptions.
    now_us
        The time of messages without one, in microseconds since 1970.
    source
        What the table was read from: rejects then have its file, row numbers and records.
    unique
        Whether an id that occurs again is rejected. If a table is an arbitrary piece of
        something larger, that would depend on how it was cut.

    Raises
    ------
    UnsupportedFile
        When the table has no column that could hold the id, the words or the place.

    Examples
    --------
    >>> from nearcast.text import Vocabulary
    >>> table = pa.table({"id": [1, 2], "text": ["Hot tea", None], "lon": [0, 0], "lat": [0, 0]})
    >>> batch, rejects = read_messages(table, now_us=0)
    >>> batch.number(Vocabulary(["tea"])).token.tolist(), rejects.reason
    ([0], ('is missing; give text or tokens',))
    """
    table = table_from(table)
    _require_columns(table)
    if 0 < table.num_rows <= _FEW_ROWS:
        few = _read_few(table, tokenizer, now_us, unique)
        if few is not None:
            return few, Rejects.empty()
    errors = RowErrors(table.num_rows)
    ids = read_ids(table, "id", errors)
    box = read_message_boxes(table, errors)
    time = read_times(table, "time", errors)
    ttl = read_durations(table, "ttl_s", errors)
    scope = read_scopes(table, errors)
    found = _read_words(table, tokenizer, errors)
    if scope is not None:
        found = found.with_scopes(scope)
    if unique:
        refuse_repeated(ids, "id", errors)
    batch = MessageBatch(
        ids,
        found,
        read_only(box, np.int32),
        frozen(np.where(time.given, time.us, now_us)),
        read_only(ttl.us, np.int64),
    )
    if not errors.valid.all():
        batch = batch.take(np.flatnonzero(errors.valid))
    return batch, errors.rejects(table, source)


def _read_few(
    table: pa.Table, tokenizer: Tokenizer, now_us: int, unique: bool
) -> MessageBatch | None:
    """Return the messages of a small table, by way of the model: much quicker than columns.

    None if a row would be rejected, or a column is of a type that the model does not take as it
    is; then the columns are read, which gives the reasons.
    """
    position = {name: at for at, name in enumerate(table.column_names)}
    names = [name for name in MESSAGE_COLUMNS if name in position]
    columns = [table.column(position[name]) for name in names]
    if not all(column.type in _PLAIN_TYPES for column in columns) or "tokens" in names:
        return None
    try:
        lists = [column.to_pylist() for column in columns]
    except (ValueError, OverflowError):  # a time that no datetime can hold
        return None
    messages = []
    for values in zip(*lists, strict=True):
        row = dict(zip(names, values, strict=True))
        point: list[Any] = [row.get(name) for name in POINT]
        box: list[Any] = [row.get(name) for name in BOX]
        try:
            if any(value is not None for value in box):
                if any(value is not None for value in point):
                    return None
                place: Any = Rect(*box)
            else:
                place = Point(*point)
            ttl_s, scope = row.get("ttl_s"), row.get("scope")
            messages.append(
                Message(
                    row["id"],
                    place,
                    row["text"],
                    time=row.get("time"),
                    ttl_s=0.0 if ttl_s is None else ttl_s,
                    scope=str(scope) if isinstance(scope, int) else scope,
                )
            )
        except (NearcastError, KeyError):
            return None
    if unique and len({message.id for message in messages}) < len(messages):
        return None
    return messages_from(messages, tokenizer, now_us=now_us)


def with_lives(table: pa.Table, errors: RowErrors, ttl_s: float | None, option: str) -> pa.Table:
    """Return messages all of which say how long they live, in ``ttl_s``.

    Parameters
    ----------
    table, errors
        The messages, and what is wrong with them.
    ttl_s
        How long those live that do not say it; None if they are errors.
    option
        What users call that.
    """
    given = read_durations(table, "ttl_s", errors)
    if ttl_s is None:
        errors.add(
            ~given.given,
            "ttl_s",
            f"is missing; give it, or use {option} for all messages without it",
        )
    seconds = np.where(given.given, given.us / 1_000_000, ttl_s or 0.0)
    return with_column(table, "ttl_s", pa.array(seconds))


def messages_from(
    messages: Sequence[Message], tokenizer: Tokenizer = words, *, now_us: int
) -> MessageBatch:
    """Return message objects as a batch.

    Parameters
    ----------
    messages
        The messages.
    tokenizer
        Splits text into tokens; the same one as for the subscriptions.
    now_us
        The time of messages without one, in microseconds since 1970.

    Examples
    --------
    >>> from nearcast.model import Message
    >>> from nearcast.text import Vocabulary
    >>> batch = messages_from([Message("m1", (0, 0), "Hot tea")], now_us=7)
    >>> batch.number(Vocabulary(["tea"])).token.tolist(), batch.time_us.tolist()
    ([0], [7])
    """
    found = _words_of(messages, tokenizer)
    scopes = [m.scope for m in messages]
    if any(scope is not None for scope in scopes):
        found = found.with_scopes(scopes)
    times = [now_us if m.time is None else m.time_us for m in messages]
    return MessageBatch(
        Ids.of([m.id for m in messages]),
        found,
        frozen(np.array([m.box() for m in messages], np.int32).reshape(-1, 4)),
        frozen(np.array(times, np.int64)),
        frozen(np.array([m.ttl_us for m in messages], np.int64)),
    )


def _words_of(messages: Sequence[Message], tokenizer: Tokenizer) -> Words:
    texts = [m.text for m in messages if m.text is not None]
    if len(texts) == len(messages):
        return Words.of_texts(texts, tokenizer)
    lists = [m.tokens or () if m.text is None else (m.text,) for m in messages]
    start = np.array([0, *accumulate(map(len, lists))])
    return Words.of_texts(list(chain.from_iterable(lists)), tokenizer).group(start)


def _require_columns(table: pa.Table) -> None:
    columns = table.column_names
    names = set(columns)
    place = names.issuperset(BOX) or names.issuperset(POINT) or "geometry" in names
    if "id" not in names or not place or not names & {"text", "tokens"}:
        found = ", ".join(columns) or "none"
        raise UnsupportedFile(
            f"not a table of messages: it has the columns {found}; expected {_WANTED}; "
            f"{HOW_TO_NAME}"
        )
    if len(names) == len(columns):
        return
    for name in MESSAGE_COLUMNS:
        if columns.count(name) > 1:
            raise UnsupportedFile(f"the column {name} occurs twice; rename one of them")


def _read_words(table: pa.Table, tokenizer: Tokenizer, errors: RowErrors) -> Words:
    text = read_texts(table, "text", errors)
    lists = read_lists(table, "tokens", errors)
    with_text = not_null(text)
    with_tokens = np.zeros(len(text), np.bool_) if lists is None else lists.given
    errors.add(~(with_text | with_tokens), "text", "is missing; give text or tokens")
    errors.add(with_text & with_tokens, "tokens", "give either text or tokens, not both")
    if lists is None:
        return Words.read(text, tokenizer)
    of_lists = Words.read(lists.value, tokenizer).group(lists.value_start)
    if not with_text.any():
        return of_lists
    # Row i of the one and row i of the other, side by side: an accepted row has only one of them.
    both = Words.concatenate([Words.read(text, tokenizer), of_lists])
    order = np.arange(2 * len(text)).reshape(2, -1).T.reshape(-1)
    return both.take(order).group(np.arange(0, 2 * len(text) + 1, 2))
