"""Expressions such as ``coffee AND (latte OR mocha) NOT decaf``, as an OR of clauses.

An expression is parsed into a tree (`nearcast.model.syntax`). Then negations move down to the words
(De Morgan), and AND is distributed over OR. Contradictory and redundant clauses are dropped on the
way. Every step is limited, so that no expression takes more than a fraction of a second.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from nearcast.errors import ExpressionError, InvalidInput, shorten
from nearcast.model import checks
from nearcast.model.derived import (
    MAX_PHRASE_WORDS,
    has_markers,
    is_derived,
    phrase_token,
    readable,
)
from nearcast.model.syntax import OPERATORS, And, Node, Not, Prefix, Word, tree_of
from nearcast.model.typed_words import dropped_symbols

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nearcast.model.checks import Tokenize

__all__ = ["MAX_CLAUSES", "Conjunction", "parse", "to_text"]

MAX_CLAUSES = 1_000
"""The maximum number of clauses of an expression."""

_MAX_LITERALS = 500_000
_PLAIN = re.compile(r"\w+")

# A literal is the number of a token (from 1), negative where the token must not occur.
_Clause = frozenset[int]


class Conjunction(NamedTuple):
    """A clause: tokens that must all occur, and tokens that must not occur, both sorted.

    Some may stand for phrases and beginnings of words (`nearcast.model.derived`).
    """

    positive: tuple[str, ...]
    negative: tuple[str, ...] = ()


def parse(
    expression: str, tokenize: Tokenize, *, condition: bool = False
) -> tuple[Conjunction, ...]:
    """Return the clauses of an expression, which is true if one of them is.

    Parameters
    ----------
    expression
        Words, phrases in quotes, beginnings of words (``flood*``), ``AND``, ``OR``, ``NOT`` (in
        capitals) and parentheses. Words side by side mean AND; NOT binds strongest, then AND, then
        OR.
    tokenize
        Splits a word or a phrase into tokens. If there are several, they must follow each other.
    condition
        Whether it is the condition of a ranked subscription, which may consist of exclusions only.

    Returns
    -------
    tuple of Conjunction
        Sorted, so that expressions with the same clauses are equal.

    Raises
    ------
    ExpressionError
        If the syntax is wrong, if there are more than 1,000 clauses, if the expression can never be
        true, or if a clause only excludes tokens and it is no condition. The error has the
        position of the character.

    Examples
    --------
    >>> parse("coffee (latte OR mocha) NOT decaf", str.split)
    (Conjunction(positive=('coffee', 'latte'), negative=('decaf',)),
     Conjunction(positive=('coffee', 'mocha'), negative=('decaf',)))
    >>> to_text(parse('"old town" flood*', str.split))
    'flood* AND "old town"'
    """
    tree = tree_of(checks.text("expression", expression))
    expansion = _Expansion(expression, tokenize)
    clauses = expansion.clauses(tree, None)
    if not clauses:
        problem = "can never be true: every alternative requires a word and excludes it"
        raise ExpressionError(expression, tree.position, problem)
    return tuple(sorted(expansion.conjunction(clause, condition) for clause in clauses))


def to_text(clauses: Sequence[Conjunction]) -> str:
    """Return an expression for which `parse` returns these clauses.

    Parameters
    ----------
    clauses
        As `parse` returns them. Words come back as tokens, so the tokenizer must return each of
        its tokens unchanged, as the default one does.

    Examples
    --------
    >>> to_text([Conjunction(("new york", "tea"), ("milk",)), Conjunction(("OR",))])
    '"new york" AND tea NOT milk OR "OR"'
    """
    if not clauses or not all(clause.positive or clause.negative for clause in clauses):
        problem = "every clause must have a token; an expression cannot match everything"
        raise InvalidInput("clauses", clauses, problem)
    return " OR ".join(_clause_text(clause) for clause in clauses)


def _clause_text(clause: Conjunction) -> str:
    required = " AND ".join(_quoted(token) for token in clause.positive)
    return " ".join(filter(None, [required, *(f"NOT {_quoted(t)}" for t in clause.negative)]))


def _quoted(token: str) -> str:
    if is_derived(token):
        token = readable(token)
        return token if token.endswith("*") else _quoted(token[1:-1])
    if _PLAIN.fullmatch(token) and token.upper() not in OPERATORS:
        return token
    escaped = token.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Expansion:
    """Converts a tree to clauses, within limits."""

    def __init__(self, expression: str, tokenize: Tokenize) -> None:
        self._expression = expression
        self._tokenize = tokenize
        self._token_of: dict[tuple[str, bool], str] = {}
        self._number: dict[str, int] = {}
        self._tokens: list[str] = []
        self._negated_at: dict[int, int] = {}
        self._literals_left = _MAX_LITERALS

    def clauses(self, node: Node, negated_at: int | None) -> set[_Clause]:
        """Return the clauses of a node, or of its negation if the position of a NOT is given."""
        if isinstance(node, Word):
            return self._literal(self._token_once(node), negated_at)
        if isinstance(node, Prefix):
            return self._literal(node.token, negated_at)
        if isinstance(node, Not):
            return self.clauses(node.operand, node.position if negated_at is None else None)
        operands = [self.clauses(operand, negated_at) for operand in node.operands]
        if isinstance(node, And) == (negated_at is None):
            return self._all(operands, node)
        return self._absorbed(set[_Clause]().union(*operands), node)

    def conjunction(self, clause: _Clause, may_only_exclude: bool) -> Conjunction:
        """Return a clause with its tokens; raise if it only excludes tokens and may not."""
        positive = sorted(self._tokens[literal - 1] for literal in clause if literal > 0)
        if not positive and not may_only_exclude:
            position = min(self._negated_at[literal] for literal in clause)
            problem = (
                "this alternative only excludes words; every alternative must also require one"
            )
            raise ExpressionError(self._expression, position, problem)
        negative = sorted(self._tokens[-literal - 1] for literal in clause if literal < 0)
        return Conjunction(tuple(positive), tuple(negative))

    def _token_once(self, word: Word) -> str:
        """Return the token of a word; one that is repeated is split only once."""
        known = self._token_of.get((word.text, word.quoted))
        if known is None:
            known = self._token_of[word.text, word.quoted] = self._token(word)
        return known

    def _token(self, word: Word) -> str:
        """Return the token of a word or a phrase."""
        tokens = list(self._tokenize(word.text))
        if not tokens:
            self._fail(word.position, f"{shorten(word.text)} has no letter or digit")
        if not word.quoted:
            problem = dropped_symbols(word.text, self._tokenize, tokens)
            if problem is not None:
                quote = "or quote the word if you mean that"
                self._fail(word.position + problem.at, f"{problem.reason}, {quote}")
        if len(tokens) > MAX_PHRASE_WORDS:
            few = f"at most {MAX_PHRASE_WORDS} words"
            self._fail(word.position, f"a phrase may have {few}, this one has {len(tokens)}")
        if any(map(has_markers, tokens)):
            reason = "its tokens must not contain the control characters U+001D to U+001F"
            self._fail(word.position, f"{shorten(word.text)}: {reason}")
        return phrase_token(tokens)

    def _fail(self, position: int, problem: str) -> NoReturn:
        raise ExpressionError(self._expression, position, problem)

    def _literal(self, token: str, negated_at: int | None) -> set[_Clause]:
        number = self._number_of(token)
        if negated_at is None:
            return {frozenset((number,))}
        self._negated_at.setdefault(-number, negated_at)
        return {frozenset((-number,))}

    def _number_of(self, token: str) -> int:
        number = self._number.setdefault(token, len(self._tokens) + 1)
        if number > len(self._tokens):
            self._tokens.append(token)
        return number

    def _all(self, operands: list[set[_Clause]], node: Node) -> set[_Clause]:
        """Return the AND of operands: single clauses first, all at once, then the smallest."""
        singles = [clause for operand in operands if len(operand) == 1 for clause in operand]
        first = frozenset[int]().union(*singles)
        product = {first} if not any(-literal in first for literal in first) else set()
        for operand in sorted((o for o in operands if len(o) != 1), key=len):
            product = self._absorbed(self._combinations(product, operand, node), node)
        return product

    def _combinations(
        self, left: Iterable[_Clause], right: Iterable[_Clause], node: Node
    ) -> set[_Clause]:
        found = set()
        for one in left:
            for other in right:
                both = one | other
                self._spend(len(both), node)
                if not any(-literal in both for literal in other):
                    found.add(both)
        return found

    def _spend(self, literals: int, node: Node) -> None:
        self._literals_left -= literals
        if self._literals_left < 0:
            problem = "is too complex; split it into several subscriptions"
            raise ExpressionError(self._expression, node.position, problem)

    def _absorbed(self, clauses: set[_Clause], node: Node) -> set[_Clause]:
        """Drop every clause that contains another one; raise if too many are left.

        Kept clauses are listed by their rarest literal, so that a larger clause is only compared
        with those listed under one of its literals.
        """
        if len(clauses) < 2:
            return clauses
        uses = Counter(literal for clause in clauses for literal in clause)
        kept: set[_Clause] = set()
        kept_by_literal: defaultdict[int, list[_Clause]] = defaultdict(list)
        for clause in sorted(clauses, key=len):
            if any(
                small <= clause for literal in clause for small in kept_by_literal.get(literal, ())
            ):
                continue
            kept.add(clause)
            kept_by_literal[min(clause, key=uses.__getitem__)].append(clause)
            if len(kept) > MAX_CLAUSES:
                problem = (
                    f"expands to more than {MAX_CLAUSES:,} clauses; "
                    "split it into several subscriptions"
                )
                raise ExpressionError(self._expression, node.position, problem)
        return kept
