r"""The grammar of expressions, and a parser that returns a tree.

::

    either  = all { "OR" all }
    all     = one { [ "AND" ] one }
    one     = { "NOT" } ( word | beginning "*" | '"' phrase '"' | "(" either ")" )

Operators are in capitals; in lower case they are words. Inside quotes, ``\"`` is a quote and
``\\`` is a backslash; nothing else is special. Words with symbols of other search engines are
refused (`nearcast.model.typed_words`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from nearcast.errors import ExpressionError
from nearcast.model.typed_words import (
    Problem,
    TypedWord,
    other_search,
    prefix_of,
    typed_word,
)

__all__ = [
    "MAX_DEPTH",
    "OPERATORS",
    "And",
    "Node",
    "Not",
    "Or",
    "Prefix",
    "Word",
    "expression_hints",
    "tree_of",
]

MAX_DEPTH = 50
"""The maximum depth of nested parentheses."""

OPERATORS = frozenset({"AND", "OR", "NOT"})

_LEXEME = re.compile(
    r"""\s+
    | (?P<parenthesis>[()])
    | "(?P<literal>[^"\\]*(?:\\.[^"\\]*)*)"
    | (?P<word>[^\s()"]+)""",
    re.VERBOSE | re.DOTALL,
)
# What phones and word processors make of ".
_CURLY_QUOTES = str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f", '"'))
_ESCAPED = re.compile(r'\\(["\\])')
_LIKE_OPERATOR = re.compile(r"(?<![^\s()])(?:and|or|not)(?![^\s()])", re.IGNORECASE | re.ASCII)
_WORD, _QUOTED, _END = "word", "quoted", "end"


@dataclass(frozen=True, slots=True)
class Word:
    """A word, or one or more words in quotes."""

    position: int
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Prefix:
    """All words with a beginning, as the token that they have in common."""

    position: int
    token: str


@dataclass(frozen=True, slots=True)
class Not:
    """The operand must be false."""

    position: int
    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """All operands must be true; there are two or more."""

    position: int
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the operands must be true; there are two or more."""

    position: int
    operands: tuple[Node, ...]


Node = Word | Prefix | Not | And | Or


def tree_of(expression: str) -> Node:
    """Return the tree of an expression, or raise `ExpressionError` with the position.

    Examples
    --------
    >>> tree_of("tea NOT milk")
    And(position=0, operands=(Word(position=0, text='tea', quoted=False),
        Not(position=4, operand=Word(position=8, text='milk', quoted=False))))
    """
    return _Parser(expression).parse()


def expression_hints(expression: str) -> list[str]:
    """Return what is valid in an expression, and probably not meant.

    Parameters
    ----------
    expression
        An expression; an invalid one has no hints, because the error says more.

    Examples
    --------
    >>> expression_hints("tea or milk")
    ['or is a word here, which messages must have; write OR for the operator, or "or" for the word
     (at character 5)']
    >>> expression_hints('tea "or" milk OR cake')
    []
    """
    if not _LIKE_OPERATOR.search(expression):
        return []
    try:
        lexemes = _lexemes(expression)
    except ExpressionError:
        return []
    return [
        f"{here.text} is a word here, which messages must have; write {here.text.upper()} for the "
        f'operator, or "{here.text}" for the word (at character {here.position + 1})'
        for before, here, after in zip([None, *lexemes], lexemes, lexemes[1:], strict=False)
        if here.kind == _WORD
        and _LIKE_OPERATOR.fullmatch(here.text)
        and after.kind in {_WORD, _QUOTED, "("}
        and (here.text.lower() == "not" or (before and before.kind in {_WORD, _QUOTED, ")"}))
    ]


class _Lexeme(NamedTuple):
    kind: str
    text: str
    position: int


def _lexemes(expression: str) -> list[_Lexeme]:
    found: list[_Lexeme] = []
    position = 0
    text = expression.translate(_CURLY_QUOTES)
    while position < len(text):
        match = _LEXEME.match(text, position)
        if match is None:
            raise ExpressionError(expression, position, "this quote is never closed")
        if match.lastgroup is not None:
            found.append(_lexeme(match.lastgroup, match[match.lastgroup], position))
        position = match.end()
    found.append(_Lexeme(_END, "", len(expression)))
    return found


def _lexeme(group: str, text: str, position: int) -> _Lexeme:
    if group == "literal":
        return _Lexeme(_QUOTED, _ESCAPED.sub(r"\1", text), position)
    if group == "parenthesis" or text in OPERATORS:
        return _Lexeme(text, text, position)
    return _Lexeme(_WORD, text, position)


class _Parser:
    """A recursive descent parser; it recurses once per level of parentheses."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._lexemes = _lexemes(expression)
        self._next = 0
        self._depth = 0
        self._typed: dict[str, TypedWord | Problem] = {}

    def parse(self) -> Node:
        node = self._either()
        if self._kind != _END:
            self._fail(self._lexeme, "this parenthesis was never opened")
        return node

    @property
    def _lexeme(self) -> _Lexeme:
        return self._lexemes[self._next]

    @property
    def _kind(self) -> str:
        return self._lexemes[self._next].kind

    def _take(self) -> _Lexeme:
        lexeme = self._lexemes[self._next]
        self._next += 1
        return lexeme

    def _either(self) -> Node:
        position = self._lexeme.position
        operands = [self._all()]
        while self._kind == "OR":
            self._take()
            operands.append(self._all())
        return operands[0] if len(operands) == 1 else Or(position, tuple(operands))

    def _all(self) -> Node:
        position = self._lexeme.position
        operands = [self._one()]
        while self._kind in {"AND", "NOT", "(", _WORD, _QUOTED}:
            if self._kind == "AND":
                self._take()
            operands.append(self._one())
        return operands[0] if len(operands) == 1 else And(position, tuple(operands))

    def _one(self) -> Node:
        position = self._lexeme.position
        negated = False
        while self._kind == "NOT":
            self._take()
            negated = not negated
        operand = self._operand()
        return Not(position, operand) if negated else operand

    def _operand(self) -> Node:
        if self._kind == _WORD:
            return self._word(self._take())
        if self._kind == _QUOTED:
            lexeme = self._take()
            return Word(lexeme.position, lexeme.text, quoted=True)
        if self._kind == "(":
            return self._parenthesis()
        self._missing()

    def _word(self, lexeme: _Lexeme) -> Node:
        typed = self._typed.get(lexeme.text)
        if typed is None:  # looked at once, however often it occurs
            typed = other_search(lexeme.text) or typed_word(lexeme.text)
            self._typed[lexeme.text] = typed
        if isinstance(typed, Problem):
            raise ExpressionError(self._expression, lexeme.position + typed.at, typed.reason)
        position = lexeme.position + typed.at
        if not typed.is_prefix:
            return Word(position, typed.text)
        token = prefix_of(typed.text)
        if isinstance(token, Problem):
            raise ExpressionError(self._expression, position + token.at, token.reason)
        return Prefix(position, token)

    def _parenthesis(self) -> Node:
        opening = self._take()
        if self._depth == MAX_DEPTH:
            self._fail(opening, f"parentheses may be nested {MAX_DEPTH} deep; write it flatter")
        self._depth += 1
        node = self._either()
        self._depth -= 1
        if self._kind != ")":
            self._fail(opening, "this parenthesis is never closed")
        self._take()
        return node

    def _missing(self) -> NoReturn:
        """Raise an error that tells why there is no operand here."""
        here = self._lexeme
        before = self._lexemes[self._next - 1] if self._next else None
        if before is not None and before.kind in OPERATORS and here.kind in {")", _END}:
            self._fail(before, f"{before.kind} needs a word or a parenthesis after it")
        if here.kind in OPERATORS:
            self._fail(
                here,
                f'{here.kind} needs a word or a parenthesis before it; quote it ("{here.kind}") '
                "to search for the word itself",
            )
        if before is None and here.kind == _END:
            self._fail(here, "must not be empty; leave it out to ask for everything in the region")
        if before is not None and here.kind == ")":
            self._fail(before, "these parentheses are empty")
        if before is not None:
            self._fail(before, "this parenthesis is never closed")
        self._fail(here, "this parenthesis was never opened")

    def _fail(self, lexeme: _Lexeme, problem: str) -> NoReturn:
        raise ExpressionError(self._expression, lexeme.position, problem)
