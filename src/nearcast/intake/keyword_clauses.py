"""The clauses of subscriptions as token ids, from columns of keywords and expressions.

Keywords are tokenized by column, those with symbols one by one: they may be beginnings of words
(``flood*``), or be refused (``C++``). Expressions are parsed one by one, each distinct text once.
"""

from __future__ import annotations

from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import Conjunctions, gather, read_only, starts
from nearcast.errors import ExpressionError, InvalidInput
from nearcast.intake.arrow_columns import TextLists, not_null, read_lists, read_texts
from nearcast.model import Conjunction, parse
from nearcast.model.derived import scope_token
from nearcast.model.keywords import keyword_tokens
from nearcast.text import TokenColumn, tokenize_column
from nearcast.text.keys import string_buffers
from nearcast.text.splitting import distinct_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.intake.rejects import RowErrors
    from nearcast.text import Tokenizer, Vocabulary

__all__ = [
    "distinct",
    "keyword_clauses_of",
    "number_conjunctions",
    "number_scopes",
    "read_keyword_clauses",
    "with_scopes",
]

_FEW_TOKENS = 8
_SYMBOLS = r"[^\pL\pM\pN_\s]"
_MAY_BE_SYMBOL = np.array([not (chr(b).isalnum() or chr(b) in "_ \t\n\r") for b in range(256)])
_MAY_BE_SYMBOL[128:] = True

MAX_KEYWORD_BYTES = 1_000_000
"""The maximum length of a keyword; folding can make its tokens a few times longer."""


class KeywordClauses(NamedTuple):
    """The clauses of all rows, and the conditions of ranked ones (None if none has any)."""

    clauses: Conjunctions
    conditions: Conjunctions | None


def read_keyword_clauses(
    table: pa.Table,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    errors: RowErrors,
    ranked: NDArray[np.bool_],
) -> KeywordClauses:
    """Return the clauses of all rows; new tokens are added to the vocabulary.

    The clause of a ranked row has its keywords, and its expression is a condition. The clauses of
    rejected rows are undefined. Call this last: rejected rows add no tokens.
    """
    keywords = read_lists(table, "keywords", errors)
    expression = read_texts(table, "expression", errors)
    if keywords is not None:
        both = keywords.given & not_null(expression) & ~ranked
        errors.add(both, "expression", "give either keywords or an expression, not both")
    clauses = _all_keywords(ranked, keywords, tokenizer, vocabulary, errors)
    if expression.null_count == len(expression):
        return KeywordClauses(clauses, None)
    return _with_expressions(clauses, expression, tokenizer, vocabulary, errors, ranked)


def number_scopes(
    scope: pa.StringArray, vocabulary: Vocabulary, errors: RowErrors
) -> NDArray[np.int32]:
    """Return the token of the scope of each row, -1 for none; rejected rows add no tokens."""
    token = np.full(len(scope), -1, np.int32)
    rows = np.flatnonzero(not_null(scope) & errors.valid)
    coded = scope.take(pa.array(rows)).dictionary_encode()
    number = vocabulary.add([scope_token(name) for name in coded.dictionary.to_pylist()])
    token[rows] = number[coded.indices.to_numpy(zero_copy_only=False)]
    return token


def with_scopes(
    found: KeywordClauses, token: NDArray[np.int32], ranked: NDArray[np.bool_]
) -> KeywordClauses:
    """Return clauses that require the tokens of scopes as well: conditions in ranked rows.

    Parameters
    ----------
    found
        The clauses and conditions of all rows.
    token
        The token of the scope of each row, -1 for none.
    ranked
        Which rows are ranked.
    """
    clauses, conditions = found
    clauses = _requiring(clauses, np.where(ranked, -1, token))
    of_ranked = np.where(ranked, token, -1)
    if (of_ranked >= 0).any():
        if conditions is None:
            count = len(token)
            no_tokens = np.zeros(count + 1, np.int64), np.empty(0, np.int32)
            conditions = Conjunctions(np.arange(count + 1), *no_tokens, *no_tokens)
        conditions = _requiring(conditions, of_ranked)
    return KeywordClauses(clauses, conditions)


def _requiring(clauses: Conjunctions, token: NDArray[np.int32]) -> Conjunctions:
    """Return conjunctions each of which requires one more token, that of its row if not -1."""
    of_clause = np.repeat(token, np.diff(clauses.clause_start))
    given = of_clause >= 0
    more = np.insert(clauses.token, clauses.token_start[1:][given], of_clause[given])
    start = clauses.token_start + starts(given.astype(np.int64))
    required = distinct(more, start)
    return Conjunctions(clauses.clause_start, *required, clauses.negative_start, clauses.negative)


def keyword_clauses_of(
    clauses: Sequence[Sequence[Conjunction]], vocabulary: Vocabulary
) -> Conjunctions:
    """Return clauses as arrays; new tokens are added to the vocabulary.

    Examples
    --------
    >>> from nearcast.text import Vocabulary
    >>> no_milk = Conjunction(("tea", "cake"), ("milk",))
    >>> clauses = keyword_clauses_of([[no_milk]], Vocabulary(["tea"]))
    >>> clauses.token.tolist(), clauses.negative.tolist()
    ([0, 1], [2])
    """
    flat = list(chain.from_iterable(number_conjunctions(clauses, vocabulary)))
    clause_start = np.array([0, *accumulate(map(len, clauses))])
    positive = _end_to_end([positive for positive, _ in flat])
    return Conjunctions(clause_start, *positive, *_end_to_end([negative for _, negative in flat]))


def number_conjunctions(
    clauses: Sequence[Sequence[Conjunction]], vocabulary: Vocabulary
) -> list[list[tuple[list[int], list[int]]]]:
    """Return the tokens and the negative tokens of conjunctions as ids; new ones are added."""
    tokens = [token for row in clauses for one in row for token in one.positive + one.negative]
    few = len(tokens) <= _FEW_TOKENS
    number = iter(vocabulary.add_few(tokens) if few else vocabulary.add(tokens).tolist())
    return [
        [
            (
                sorted(set(islice(number, len(one.positive)))),
                sorted(set(islice(number, len(one.negative)))),
            )
            for one in row
        ]
        for row in clauses
    ]


def _end_to_end(lists: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the start array and the content of lists laid end to end."""
    start = np.array([0, *accumulate(map(len, lists))])
    return start, np.array(list(chain.from_iterable(lists)), np.int32)


def distinct(
    token: NDArray[np.int32], start: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the start array and the distinct tokens of each piece, ascending."""
    token_start = np.empty(len(start), np.int64)
    kept = np.empty(len(token), np.int32)
    count = distinct_tokens(
        read_only(token, np.int32), read_only(start, np.int64), token_start, kept
    )
    return token_start, kept[:count]


def _all_keywords(
    ranked: NDArray[np.bool_],
    keywords: TextLists | None,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    errors: RowErrors,
) -> Conjunctions:
    """Return one clause per row with all its keywords; an empty clause if it has none."""
    count = len(ranked)
    no_tokens = np.zeros(count + 1, np.int64), np.empty(0, np.int32)
    if keywords is None:
        return Conjunctions(np.arange(count + 1), *no_tokens, *no_tokens)
    _check_keywords(keywords, errors)
    value_start, value = _valid_values(keywords, errors)
    typed = _typed_keywords(value_start, value, tokenizer, ranked, errors)
    if typed is not None:
        value = pc.if_else(pa.array(typed.chosen), pa.scalar(None, value.type), value)
    column = tokenize_column(value, tokenizer, vocabulary, add=True)
    if typed is not None:
        column = typed.joined(column, vocabulary)
    _reject_wordless(value_start, value, column.word_count, errors)
    required = distinct(column.token, column.token_start[value_start])
    return Conjunctions(np.arange(count + 1), *required, *no_tokens)


class _TypedKeywords(NamedTuple):
    """Keywords with symbols: which they are, and the tokens that each requires."""

    chosen: NDArray[np.bool_]
    tokens: list[list[str]]

    def joined(self, column: TokenColumn, vocabulary: Vocabulary) -> TokenColumn:
        """Return the tokens of all keywords, given those of the others."""
        words = np.diff(column.word_start)
        words[self.chosen] = 1  # refused ones have a reason already
        count = np.diff(column.token_start)
        count[self.chosen] = [len(tokens) for tokens in self.tokens]
        token_start = starts(count)
        token = np.empty(int(token_start[-1]), np.int32)
        own = np.repeat(self.chosen, count)
        token[own] = vocabulary.add([token for tokens in self.tokens for token in tokens])
        token[~own] = column.token
        return TokenColumn(token_start, token, starts(words))


def _typed_keywords(
    value_start: NDArray[np.int64],
    value: pa.Array,
    tokenizer: Tokenizer,
    ranked: NDArray[np.bool_],
    errors: RowErrors,
) -> _TypedKeywords | None:
    """Return what keywords with symbols require; None if there are none, as nearly always."""
    if not _MAY_BE_SYMBOL[string_buffers(value)[1]].any():
        return None
    symbols = pc.fill_null(pc.match_substring_regex(value, _SYMBOLS), False)
    chosen = symbols.to_numpy(zero_copy_only=False)
    if not chosen.any():
        return None
    rows = _row_of(value_start)[chosen].tolist()
    found: dict[tuple[str, bool], list[str] | InvalidInput] = {}
    tokens = []
    for row, keyword in zip(rows, value.filter(pa.array(chosen)).to_pylist(), strict=True):
        case = keyword, bool(ranked[row])
        if case not in found:
            found[case] = _tokens_of(keyword, tokenizer, case[1])
        outcome = found[case]
        if isinstance(outcome, InvalidInput):
            errors.add_error(row, outcome)
            outcome = []
        tokens.append(outcome)
    return _TypedKeywords(chosen, tokens)


def _tokens_of(keyword: str, tokenizer: Tokenizer, scored: bool) -> list[str] | InvalidInput:
    try:
        return keyword_tokens(keyword, tokenizer, scored=scored)
    except InvalidInput as error:
        return error


def _check_keywords(keywords: TextLists, errors: RowErrors) -> None:
    empty = keywords.given & (np.diff(keywords.value_start) == 0)
    problem = "must not be empty; leave it out to ask for everything in the region"
    errors.add(empty, "keywords", problem)
    length = pc.binary_length(keywords.value)
    if (pc.max(length).as_py() or 0) > MAX_KEYWORD_BYTES:
        too_long = pc.fill_null(pc.greater(length, MAX_KEYWORD_BYTES), False)
        wrong = np.zeros(len(keywords.given), np.bool_)
        wrong[_row_of(keywords.value_start)[too_long.to_numpy(zero_copy_only=False)]] = True
        problem = f"every keyword must have at most {MAX_KEYWORD_BYTES:,} bytes"
        errors.add(wrong, "keywords", problem)


def _valid_values(keywords: TextLists, errors: RowErrors) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the keywords of the valid rows; the others have none."""
    if errors.valid.all():
        return keywords.value_start, keywords.value
    length = np.diff(keywords.value_start)
    kept = np.repeat(errors.valid, length)
    return starts(np.where(errors.valid, length, 0)), keywords.value.filter(pa.array(kept))


def _reject_wordless(
    value_start: NDArray[np.int64],
    value: pa.Array,
    word_count: NDArray[np.int64],
    errors: RowErrors,
) -> None:
    wordless = np.flatnonzero(word_count == 0)
    if len(wordless):
        for row, keyword in zip(
            _row_of(value_start)[wordless].tolist(),
            value.take(pa.array(wordless)).to_pylist(),
            strict=True,
        ):
            problem = "every keyword must have a letter or digit"
            errors.add_error(row, InvalidInput("keywords", keyword, problem))


def _row_of(start: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(start) - 1), np.diff(start))


def _with_expressions(
    clauses: Conjunctions,
    expression: pa.Array,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    errors: RowErrors,
    ranked: NDArray[np.bool_],
) -> KeywordClauses:
    """Return the clauses, replaced by those of the expression in boolean rows that have one.

    In ranked rows the clauses of the expression are the condition.
    """
    count = len(expression)
    given = not_null(expression)
    of_rows = _expressions(expression, given & ~ranked, (tokenizer, vocabulary), errors)
    clauses = _take(_concatenate(clauses, of_rows.clauses), of_rows.chosen)
    if not (given & ranked).any():
        return KeywordClauses(clauses, None)
    no_tokens = np.zeros(count + 1, np.int64), np.empty(0, np.int32)
    nothing = Conjunctions(np.arange(count + 1), *no_tokens, *no_tokens)
    of_ranked = _expressions(
        expression, given & ranked, (tokenizer, vocabulary), errors, condition=True
    )
    return KeywordClauses(
        clauses, _take(_concatenate(nothing, of_ranked.clauses), of_ranked.chosen)
    )


class _Expressions(NamedTuple):
    """The clauses of distinct expressions, and what each row chooses.

    A row chooses from one entry per row, its own, followed by these clauses.
    """

    clauses: Conjunctions
    chosen: NDArray[np.int64]


def _expressions(
    expression: pa.Array,
    given: NDArray[np.bool_],
    words: tuple[Tokenizer, Vocabulary],
    errors: RowErrors,
    *,
    condition: bool = False,
) -> _Expressions:
    """Parse the expressions of some rows, each distinct text once."""
    tokenizer, vocabulary = words
    rows = np.flatnonzero(given & errors.valid)
    coded = expression.take(pa.array(rows)).dictionary_encode()
    texts: list[str] = coded.dictionary.to_pylist()
    parsed = [_parsed(text, tokenizer, condition) for text in texts]
    code = coded.indices.to_numpy(zero_copy_only=False)
    for row, number in zip(rows.tolist(), code.tolist(), strict=True):
        outcome = parsed[number]
        if isinstance(outcome, InvalidInput):
            errors.add_error(row, outcome)
    valid = [() if isinstance(outcome, InvalidInput) else outcome for outcome in parsed]
    chosen = np.arange(len(expression))
    chosen[rows] = len(expression) + code
    return _Expressions(keyword_clauses_of(valid, vocabulary), chosen)


def _parsed(
    text: str, tokenizer: Tokenizer, condition: bool
) -> tuple[Conjunction, ...] | InvalidInput:
    if len(text) > MAX_KEYWORD_BYTES:
        return InvalidInput(
            "expression", text, f"must have at most {MAX_KEYWORD_BYTES:,} characters"
        )
    try:
        return parse(text, tokenizer, condition=condition)
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


def _take(clauses: Conjunctions, rows: NDArray[np.int64]) -> Conjunctions:
    clause_start, clause = gather(clauses.clause_start, rows)
    token_start, token = gather(clauses.token_start, clause)
    negative_start, negative = gather(clauses.negative_start, clause)
    return Conjunctions(
        clause_start, token_start, clauses.token[token], negative_start, clauses.negative[negative]
    )
