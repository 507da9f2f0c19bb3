"""What subscriptions ask for, as token ids: from columns of keywords and expressions.

Keywords are tokenized column-wise. Expressions are parsed one by one, each text once.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import Conjunctions, gather, read_only, starts
from nearcast.errors import ExpressionError, InvalidInput
from nearcast.intake.cells import Lists, read_lists, read_texts, valid
from nearcast.model import Conjunction, parse
from nearcast.text import tokenize_column
from nearcast.text.splitting import distinct_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.intake.rejects import Faults
    from nearcast.text import Tokenizer, Vocabulary

__all__ = ["distinct", "read_wants", "wants_of"]

LONGEST_BYTES = 1_000_000
"""How long a keyword may be: a token of a table of bytes can be some times longer when folded."""


def read_wants(
    table: pa.Table, tokenizer: Tokenizer, vocabulary: Vocabulary, faults: Faults
) -> Conjunctions:
    """Return the clauses of all rows; new tokens are added to the vocabulary.

    Those of refused rows mean nothing. Call this last, so that refused rows add no tokens.
    """
    keywords = read_lists(table, "keywords", faults)
    expression = read_texts(table, "expression", faults)
    if keywords is not None:
        both = keywords.given & valid(expression)
        faults.add(both, "expression", "give either keywords or an expression, not both")
    wants = _all_keywords(table.num_rows, keywords, tokenizer, vocabulary, faults)
    if expression.null_count == len(expression):
        return wants
    return _with_expressions(wants, expression, tokenizer, vocabulary, faults)


def wants_of(clauses: Sequence[Sequence[Conjunction]], vocabulary: Vocabulary) -> Conjunctions:
    """Return clauses as arrays, their tokens added to the vocabulary.

    Examples
    --------
    >>> from nearcast.text import Vocabulary
    >>> wants = wants_of([[Conjunction(("tea", "cake"), ("milk",))]], Vocabulary(["tea"]))
    >>> wants.token.tolist(), wants.negative.tolist()
    ([0, 1], [2])
    """
    flat = list(chain.from_iterable(clauses))
    positive = _token_ids([clause.positive for clause in flat], vocabulary)
    negative = _token_ids([clause.negative for clause in flat], vocabulary)
    clause_start = starts(np.fromiter(map(len, clauses), np.int64, len(clauses)))
    return Conjunctions(clause_start, *positive, *negative)


def distinct(
    token: NDArray[np.int32], start: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the tokens of each piece ascending and once each, and their start."""
    token_start = np.empty(len(start), np.int64)
    kept = np.empty(len(token), np.int32)
    count = distinct_tokens(
        read_only(token, np.int32), read_only(start, np.int64), token_start, kept
    )
    return token_start, kept[:count]


def _token_ids(
    tokens: list[tuple[str, ...]], vocabulary: Vocabulary
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    number = vocabulary.add(list(chain.from_iterable(tokens)))
    return distinct(number, starts(np.fromiter(map(len, tokens), np.int64, len(tokens))))


def _all_keywords(
    count: int,
    keywords: Lists | None,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    faults: Faults,
) -> Conjunctions:
    """Return one clause a row, of all its keywords; one that asks for nothing where it has none."""
    no_negative = np.zeros(count + 1, np.int64), np.empty(0, np.int32)
    if keywords is None:
        nothing = np.zeros(count + 1, np.int64), np.empty(0, np.int32)
        return Conjunctions(np.arange(count + 1), *nothing, *no_negative)
    _check_keywords(keywords, faults)
    value_start, value = _sound_values(keywords, faults)
    column = tokenize_column(value, tokenizer, vocabulary, add=True)
    _refuse_wordless(value_start, value, column.word_count, faults)
    asked = distinct(column.token, column.token_start[value_start])
    return Conjunctions(np.arange(count + 1), *asked, *no_negative)


def _check_keywords(keywords: Lists, faults: Faults) -> None:
    empty = keywords.given & (np.diff(keywords.value_start) == 0)
    problem = "must not be empty; leave it out to ask for everything in the region"
    faults.add(empty, "keywords", problem)
    length = pc.binary_length(keywords.value)
    if (pc.max(length).as_py() or 0) > LONGEST_BYTES:
        too_long = pc.fill_null(pc.greater(length, LONGEST_BYTES), False)
        wrong = np.zeros(len(keywords.given), np.bool_)
        wrong[_row_of(keywords.value_start)[too_long.to_numpy(zero_copy_only=False)]] = True
        problem = f"every keyword must have at most {LONGEST_BYTES:,} bytes"
        faults.add(wrong, "keywords", problem)


def _sound_values(keywords: Lists, faults: Faults) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the keywords of the rows that are not refused; the others have none."""
    if faults.sound.all():
        return keywords.value_start, keywords.value
    length = np.diff(keywords.value_start)
    kept = np.repeat(faults.sound, length)
    return starts(np.where(faults.sound, length, 0)), keywords.value.filter(pa.array(kept))


def _refuse_wordless(
    value_start: NDArray[np.int64],
    value: pa.Array,
    word_count: NDArray[np.int64],
    faults: Faults,
) -> None:
    wordless = np.flatnonzero(word_count == 0)
    if len(wordless):
        for row, keyword in zip(
            _row_of(value_start)[wordless].tolist(),
            value.take(pa.array(wordless)).to_pylist(),
            strict=True,
        ):
            problem = "every keyword must have a letter or digit"
            faults.refuse(row, InvalidInput("keywords", keyword, problem))


def _row_of(start: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(start) - 1), np.diff(start))


def _with_expressions(
    wants: Conjunctions,
    expression: pa.Array,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    faults: Faults,
) -> Conjunctions:
    """Return the wants with the clauses of expressions in the rows that have one."""
    rows = np.flatnonzero(valid(expression) & faults.sound)
    coded = expression.take(pa.array(rows)).dictionary_encode()
    texts: list[str] = coded.dictionary.to_pylist()
    parsed = [_parsed(text, tokenizer) for text in texts]
    code = coded.indices.to_numpy(zero_copy_only=False)
    for row, number in zip(rows.tolist(), code.tolist(), strict=True):
        outcome = parsed[number]
        if isinstance(outcome, InvalidInput):
            faults.refuse(row, outcome)
    sound = [() if isinstance(outcome, InvalidInput) else outcome for outcome in parsed]
    own = wants_of(sound, vocabulary)
    # One list of clauses after the other: that of row i, or that of its expression.
    chosen = np.arange(len(expression))
    chosen[rows] = len(expression) + code
    return _take(_concatenate(wants, own), chosen)


def _parsed(text: str, tokenizer: Tokenizer) -> tuple[Conjunction, ...] | InvalidInput:
    if len(text) > LONGEST_BYTES:
        return InvalidInput("expression", text, f"must have at most {LONGEST_BYTES:,} characters")
    try:
        return parse(text, tokenizer)
    except ExpressionError as error:
        return error


def _concatenate(one: Conjunctions, other: Conjunctions) -> Conjunctions:
    def chained(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.concatenate([a, b[1:] + a[-1]])

    return Conjunctions(
        chained(one.clause_start, other.clause_start),
        chained(one.token_start, other.token_start),
        np.concatenate([one.token, other.token]),
        chained(one.negative_start, other.negative_start),
        np.concatenate([one.negative, other.negative]),
    )


def _take(wants: Conjunctions, rows: NDArray[np.int64]) -> Conjunctions:
    clause_start, clause = gather(wants.clause_start, rows)
    token_start, token = gather(wants.token_start, clause)
    negative_start, negative = gather(wants.negative_start, clause)
    return Conjunctions(
        clause_start, token_start, wants.token[token], negative_start, wants.negative[negative]
    )
