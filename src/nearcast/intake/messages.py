"""Messages: from tables and from objects to columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids, Messages, starts
from nearcast.errors import UnsupportedFile
from nearcast.intake.arrow_columns import TextLists, not_null, read_lists, read_texts
from nearcast.intake.ids import read_ids, refuse_repeated
from nearcast.intake.keyword_clauses import distinct
from nearcast.intake.places import BOX, POINT, read_message_boxes
from nearcast.intake.rejects import Rejects, RowErrors
from nearcast.intake.times import read_durations, read_times
from nearcast.text import tokenize_column, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.model import Message
    from nearcast.text import Tokenizer, Vocabulary

__all__ = ["MESSAGE_COLUMNS", "MessageBatch", "messages_from", "read_messages"]

MESSAGE_COLUMNS = ("id", "text", "tokens", *POINT, *BOX, "time", "ttl_s")
"""The columns that a table of messages may have; others are not looked at."""

_WANTED = "id, text or tokens, and a place (lon, lat; or west, south, east, north)"


@dataclass(frozen=True, eq=False)
class MessageBatch:
    """Messages and the ids by which their senders know them."""

    ids: Ids
    messages: Messages

    def __len__(self) -> int:
        return len(self.ids)


def read_messages(
    table: pa.Table,
    vocabulary: Vocabulary,
    tokenizer: Tokenizer = words,
    *,
    now_us: int,
    rows: NDArray[np.int64] | None = None,
    unique: bool = True,
) -> tuple[MessageBatch, Rejects]:
    """Return the messages of a table in their order, and the rows that are none.

    Parameters
    ----------
    table
        ``id``; ``text`` or ``tokens`` (lists of strings, or strings that are split at spaces);
        ``lon, lat`` or ``west, south, east, north``; and if need be ``time`` and ``ttl_s``.
    vocabulary
        Where token ids come from. Tokens that it does not know are left out: no subscription asks
        for them.
    tokenizer
        What makes tokens of text; the same as for the subscriptions.
    now_us
        The time of messages without one, in microseconds since 1970.
    rows
        The numbers of the rows, for the rejects; their positions in the table if left out.
    unique
        Whether an id that occurs again is refused. Where a table is an arbitrary piece of
        something larger, that would depend on how it was cut.

    Raises
    ------
    UnsupportedFile
        When the table has no column that could hold the id, the words or the place.

    Examples
    --------
    >>> from nearcast.text import Vocabulary
    >>> table = pa.table({"id": [1, 2], "text": ["Hot tea", None], "lon": [0, 0], "lat": [0, 0]})
    >>> batch, rejects = read_messages(table, Vocabulary(["tea"]), now_us=0)
    >>> batch.messages.token.tolist(), rejects.reason
    ([0], ('is missing; give text or tokens',))
    """
    _require_columns(table)
    errors = RowErrors(table.num_rows)
    ids = read_ids(table, "id", errors)
    box = read_message_boxes(table, errors)
    time = read_times(table, "time", errors)
    ttl = read_durations(table, "ttl_s", errors)
    token_start, token = _read_words(table, vocabulary, tokenizer, errors)
    if unique:
        refuse_repeated(ids, "id", errors)
    messages = Messages(token_start, token, box, np.where(time.given, time.us, now_us), ttl.us)
    if not errors.valid.all():
        sound = np.flatnonzero(errors.valid)
        ids, messages = ids.take(sound), messages.take(sound)
    return MessageBatch(ids, messages), errors.rejects(table, rows)


def messages_from(
    messages: Sequence[Message],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer = words,
    *,
    now_us: int,
) -> MessageBatch:
    """Return message objects as columns; a message without a time has the time ``now_us``.

    Examples
    --------
    >>> from nearcast.model import Message
    >>> from nearcast.text import Vocabulary
    >>> batch = messages_from([Message("m1", (0, 0), "Hot tea")], Vocabulary(["tea"]), now_us=7)
    >>> batch.messages.token.tolist(), batch.messages.time_us.tolist()
    ([0], [7])
    """
    texts = [(m.text,) if m.text is not None else m.tokens or () for m in messages]
    value_start = starts(np.fromiter(map(len, texts), np.int64, len(texts)))
    value = pa.array([text for some in texts for text in some], pa.large_string())
    column = tokenize_column(value, tokenizer, vocabulary, add=False)
    token_start, token = distinct(column.token, column.token_start[value_start])
    times = [now_us if m.time_us is None else m.time_us for m in messages]
    return MessageBatch(
        Ids.of([m.id for m in messages]),
        Messages(
            token_start,
            token,
            np.array([m.box() for m in messages], np.int32).reshape(-1, 4),
            np.array(times, np.int64),
            np.array([m.ttl_us for m in messages], np.int64),
        ),
    )


def _require_columns(table: pa.Table) -> None:
    names = set(table.column_names)
    place = names.issuperset(BOX) or names.issuperset(POINT)
    if "id" not in names or not place or not names & {"text", "tokens"}:
        found = ", ".join(table.column_names) or "none"
        raise UnsupportedFile(
            f"not a table of messages: found the columns {found}; wanted {_WANTED}"
        )
    for name in MESSAGE_COLUMNS:
        if table.column_names.count(name) > 1:
            raise UnsupportedFile(f"the column {name} occurs twice; rename one of them")


def _read_words(
    table: pa.Table, vocabulary: Vocabulary, tokenizer: Tokenizer, errors: RowErrors
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    text = read_texts(table, "text", errors)
    lists = read_lists(table, "tokens", errors)
    with_text = not_null(text)
    with_tokens = np.zeros(len(text), np.bool_) if lists is None else lists.given
    errors.add(~(with_text | with_tokens), "text", "is missing; give text or tokens")
    errors.add(with_text & with_tokens, "tokens", "give either text or tokens, not both")
    of_text = tokenize_column(text, tokenizer, vocabulary, add=False)
    if lists is None:
        return of_text.token_start, of_text.token
    return _with_lists(of_text.token_start, of_text.token, lists, vocabulary, tokenizer)


def _with_lists(
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
    lists: TextLists,
    vocabulary: Vocabulary,
    tokenizer: Tokenizer,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the tokens of texts, and of lists in the rows that have one."""
    column = tokenize_column(lists.value, tokenizer, vocabulary, add=False)
    start = column.token_start[lists.value_start]
    if not len(token):
        return distinct(column.token, start)
    length, own = np.diff(token_start), np.diff(start)
    both_start = starts(length + own)
    both = np.empty(both_start[-1], np.int32)
    both[np.arange(len(token)) + np.repeat(both_start[:-1] - token_start[:-1], length)] = token
    shift = both_start[:-1] + length - start[:-1]
    both[np.arange(len(column.token)) + np.repeat(shift, own)] = column.token
    return distinct(both, both_start)
