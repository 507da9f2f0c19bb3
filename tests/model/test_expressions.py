"""Expressions: the parser, the clauses, and the limits."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.errors import ExpressionError, InvalidInput
from nearcast.model import Conjunction, Subscription, expression_hints, parse, to_text
from nearcast.model.regions import Rect
from nearcast.model.syntax import MAX_DEPTH, And, Node, Not, Or, Prefix, Word, tree_of


def words(text: str) -> list[str]:
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())


# The oracle evaluates a tree of its own (never the parser's) on every set of tokens.

PHRASE = "\x1fa\x1fb"
NAMES = ["a", "b", "c", "d", PHRASE]

leaves = st.sampled_from([*NAMES[:4], '"a b"', '"c"', "A"])


def combined(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.just("not"), children),
        st.tuples(
            st.sampled_from(["and", "or", "beside"]), st.lists(children, min_size=2, max_size=3)
        ),
    )


trees = st.recursive(leaves, combined, max_leaves=8)


def written(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    kind, rest = tree
    if kind == "not":
        return f"NOT {bracketed(rest)}"
    joint = {"and": " AND ", "or": " OR ", "beside": " "}[kind]
    return joint.join(bracketed(operand) for operand in rest)


def bracketed(tree: Any) -> str:
    return tree if isinstance(tree, str) else f"({written(tree)})"


def is_true(tree: Any, tokens: frozenset[str]) -> bool:
    if isinstance(tree, str):
        return (PHRASE if tree == '"a b"' else words(tree)[0]) in tokens
    kind, rest = tree
    if kind == "not":
        return not is_true(rest, tokens)
    truths = [is_true(operand, tokens) for operand in rest]
    return any(truths) if kind == "or" else all(truths)


def clauses_are_true(clauses: tuple[Conjunction, ...], tokens: frozenset[str]) -> bool:
    return any(
        tokens.issuperset(clause.positive) and tokens.isdisjoint(clause.negative)
        for clause in clauses
    )


def all_token_sets() -> list[frozenset[str]]:
    sizes = range(len(NAMES) + 1)
    return [frozenset(c) for size in sizes for c in itertools.combinations(NAMES, size)]


def attempted(text: str) -> tuple[Conjunction, ...] | InvalidInput:
    """Return the clauses, or the error: anything but InvalidInput goes through."""
    try:
        return parse(text, words)
    except InvalidInput as error:
        return error


@settings(max_examples=examples(400), deadline=None)
@given(trees)
def test_clauses_agree_with_the_truth_table(tree: Any) -> None:
    text = written(tree)
    truth = {tokens: is_true(tree, tokens) for tokens in all_token_sets()}
    clauses = attempted(text)
    # What is true without any token has a clause that only excludes.
    if isinstance(clauses, InvalidInput):
        reason = "only excludes" if truth[frozenset()] else "never be true"
        assert reason in clauses.problem
        assert truth[frozenset()] or not any(truth.values())
        return
    assert not truth[frozenset()]
    for tokens, expected in truth.items():
        assert clauses_are_true(clauses, tokens) == expected, (text, clauses, tokens)


@settings(deadline=None)
@given(trees)
def test_clauses_are_minimal_sorted_and_without_contradiction(tree: Any) -> None:
    clauses = attempted(written(tree))
    if isinstance(clauses, InvalidInput):
        return
    assert list(clauses) == sorted(set(clauses))
    for clause in clauses:
        assert clause.positive
        assert not set(clause.positive) & set(clause.negative)
    for one, other in itertools.permutations(clauses, 2):
        wider = set(one.positive) <= set(other.positive) and set(one.negative) <= set(
            other.negative
        )
        assert not wider, (one, other)


@settings(deadline=None)
@given(trees)
def test_text_of_clauses_parses_to_the_same_clauses(tree: Any) -> None:
    clauses = attempted(written(tree))
    if isinstance(clauses, InvalidInput):
        return
    assert parse(to_text(clauses), words) == clauses


tokens = st.text(
    st.characters(exclude_characters="\x1d\x1e\x1f", exclude_categories=["Cs"]),
    min_size=1,
    max_size=8,
) | st.sampled_from(["AND", "OR", "NOT", '"', "\\", "(", " ", "a*", "-a", "c++", "a|b", "a^2"])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(tokens, min_size=1, max_size=3), st.lists(tokens, max_size=2)),
        min_size=1,
        max_size=3,
    )
)
def test_text_quotes_whatever_a_tokenizer_may_give(parts: Any) -> None:
    clauses = [Conjunction(tuple(sorted(set(p))), tuple(sorted(set(n) - set(p)))) for p, n in parts]
    text = to_text(clauses)
    truth = parse(text, lambda word: [word])
    assert set(truth) <= set(clauses)
    for clause in set(clauses) - set(truth):
        assert any(
            set(kept.positive) <= set(clause.positive)
            and set(kept.negative) <= set(clause.negative)
            for kept in truth
        )


pieces = st.sampled_from(
    ["AND", "OR", "NOT", "(", ")", '"', "\\", " ", "a", "b", "\u00df", "\u4e2d", "\0"]
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.text(max_size=40)
    | st.lists(pieces, max_size=30).map(" ".join)
    | st.lists(pieces, max_size=30).map("".join)
)
@example("a\ud800")
@example('"\\')
@example("\u2028")
def test_arbitrary_text_raises_nothing_else(text: str) -> None:
    clauses = attempted(text)
    if isinstance(clauses, ExpressionError):
        assert 0 <= clauses.position <= len(text)
        assert "\n" in str(clauses)
    elif isinstance(clauses, InvalidInput):
        assert "\ud800" in text
    else:
        assert all(clause.positive for clause in clauses)


@settings(deadline=None)
@given(st.text(max_size=30) | st.lists(pieces, max_size=12).map(" ".join))
def test_a_subscription_refuses_what_no_tokenizer_could_take(text: str) -> None:
    try:
        Subscription(1, Rect(0, 0, 1, 1), expression=text)
    except InvalidInput:
        with pytest.raises(InvalidInput):
            parse(text, words)


@pytest.mark.parametrize(
    ("text", "position", "part"),
    [
        ("", 0, "empty"),
        ("   ", 3, "empty"),
        ("tea AND", 4, "after it"),
        ("OR tea", 0, "before it"),
        ("tea AND OR milk", 8, "before it"),
        ("tea ()", 4, "empty"),
        ("(tea", 0, "never closed"),
        ("tea (", 4, "never closed"),
        ("tea)", 3, "never opened"),
        ('tea "milk', 4, "never closed"),
        ('tea ""', 4, "no letter"),
        ("tea -", 4, "no letter"),
        ("NOT tea", 0, "only excludes"),
        ("tea OR NOT milk", 7, "only excludes"),
        ("tea OR (NOT milk NOT sugar)", 8, "only excludes"),
        ("NOT (tea OR milk)", 0, "only excludes"),
        ("tea NOT tea", 0, "never be true"),
        ("(tea OR milk) NOT tea NOT milk", 0, "never be true"),
        ("tea -milk", 4, "write NOT milk"),
        ("tea !milk", 4, "write NOT milk"),
        ("tea +milk", 4, "write milk: words side by side are all required"),
        ("tea C++", 5, "'++' would be ignored"),
        ("tea C#,", 5, "'#' would be ignored"),
        ("tea .NET", 4, "'.' would be ignored"),
        ("tea 100%", 7, "'%' would be ignored"),
        ("tea fl?od", 6, "? in a word is not known here"),
        ("tea title:milk", 9, "there are no fields here"),
        ("tea title: milk", 9, "there are no fields here"),
        ('title:"old town"', 5, "there are no fields here"),
        ("title:(tea milk)", 5, "there are no fields here"),
        ("tea “old town", 4, "this quote is never closed"),
        ("tea fl*od", 6, "* may only stand at the end"),
        ("tea *flood", 4, "* may only stand at the end"),
        ("tea *", 4, "* may only stand at the end"),
        ("tea flood**", 9, "* may only stand at the end"),
        ("tea wi-fi*", 4, "has several words"),
        ("tea +*", 4, "no letter"),
        ("tea c+*", 5, "has symbols"),
        ("tea milk~", 8, "~ is not known"),
        ("tea milk~0.8", 8, "~ is not known"),
        ("tea milk^2", 8, "^ is not known"),
        ('"old town"~2', 10, "~ is not known"),
        ("tea|milk", 3, "write OR"),
        ("tea price<100", 9, "< is no part of a word"),
        ("price >= 100", 6, "> is no part of a word"),
        ("price>100", 5, "> is no part of a word"),
        ("level=3", 5, "= is no part of a word"),
        ("price\u2264100", 5, "\u2264 is no part of a word"),
        ("price\u2260100", 5, "\u2260 is no part of a word"),
        ("level\uff1d3", 5, "\uff1d is no part of a word"),
        ("tea\uff0fmilk", 3, "\uff0f between words"),
        ("<tea>", 0, "< is no part of a word"),
        ("tea/milk", 3, "/ between words"),
        ("tea*/milk", 4, "/ between words"),
        ("tea,milk", 3, ", between words"),
        ("tea,#milk", 3, ", between words"),
        ("10,tea", 2, ", between words"),
        ("tea;milk", 3, "; between words"),
        ("flood [2 TO 5]", 6, "[ is no part of a word"),
        ("tea {milk}", 4, "{ is no part of a word"),
        ("tea milk}", 8, "} is no part of a word"),
        ("tea || milk", 4, "write OR"),
        ("tea && milk", 4, "write AND"),
        (f'tea "{"x " * 33}"', 4, "at most 32 words"),
        (f"tea {'x-' * 32}x", 4, "at most 32 words"),
    ],
)
def test_errors_carry_the_position(text: str, position: int, part: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(part)) as caught:
        parse(text, words)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("tea", [(("tea",), ())]),
        ("Tea milk", [(("milk", "tea"), ())]),
        ("tea and milk", [(("and", "milk", "tea"), ())]),
        ('tea "AND"', [(("and", "tea"), ())]),
        ('"new york"', [(("\x1fnew\x1fyork",), ())]),
        ("hotel NOT (new york)", [(("hotel",), ("new",)), (("hotel",), ("york",))]),
        ('hotel NOT "new york"', [(("hotel",), ("\x1fnew\x1fyork",))]),
        ('"new new york"', [(("\x1fnew\x1fnew\x1fyork",), ())]),
        ('"York!"', [(("york",), ())]),
        ("wi-fi", [(("\x1fwi\x1ffi",), ())]),
        ("AT&T don't", [(("\x1fat\x1ft", "\x1fdon\x1ft"), ())]),
        ("Flood*", [(("\x1eflood",), ())]),
        ("tea NOT flood*, (#Rain*)", [(("\x1erain", "tea"), ("\x1eflood",))]),
        ("#tea @milk $5 cake, rum? (gin.)", [(("5", "cake", "gin", "milk", "rum", "tea"), ())]),
        ("\u200etea\u200b", [(("tea",), ())]),
        ('"C++"', [(("c",), ())]),
        ("„old town“ “tea”", [(("\x1fold\x1ftown", "tea"), ())]),
        ("12:30 rum?", [(("\x1f12\x1f30", "rum"), ())]),
        ("1,000 24/7, tea;", [(("\x1f1\x1f000", "\x1f24\x1f7", "tea"), ())]),
        ('"tea/milk" "level=3"', [(("\x1flevel\x1f3", "\x1ftea\x1fmilk"), ())]),
        ('"title:tea"', [(("\x1ftitle\x1ftea",), ())]),
        ('"flood*"', [(("flood",), ())]),
        ("a OR b AND c", [(("a",), ()), (("b", "c"), ())]),
        ("a OR b c", [(("a",), ()), (("b", "c"), ())]),
        ("a OR a b", [(("a",), ())]),
        ("a NOT NOT b", [(("a", "b"), ())]),
        ("a NOT (b OR c)", [(("a",), ("b", "c"))]),
        ("NOT (NOT a OR NOT b)", [(("a", "b"), ())]),
        ("a (b OR NOT b)", [(("a",), ("b",)), (("a", "b"), ())]),
        ("a OR (b NOT b)", [(("a",), ())]),
        ('a"b"(c)', [(("a", "b", "c"), ())]),
    ],
)
def test_meaning(text: str, clauses: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    assert list(parse(text, words)) == [Conjunction(*clause) for clause in clauses]


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("tea or milk", [5]),
        ("tea and (milk or cake)", [5, 15]),
        ("(tea) not milk", [7]),
        ("not milk tea", [1]),
        ("Tea Or milk Not sugar aNd ice", [5, 13, 23]),
        ("rum and coke NOT not", [5]),
        ('tea "or" milk', []),
        ("tea OR milk", []),
        ("or", []),
        ("tea or", []),
        ("tea AND or", []),
        ("portland android nothing", []),
        ('tea or "milk', []),
    ],
)
def test_hints_about_operators_not_in_capitals(text: str, positions: list[int]) -> None:
    found = expression_hints(text)
    assert [hint.rpartition("character ")[2] for hint in found] == [f"{at})" for at in positions]
    for hint in found:
        assert "is a word here, which messages must have; write" in hint


def test_control_characters_of_phrases_in_quotes() -> None:
    one = Subscription(1, Rect(0, 0, 1, 1), expression='"old\x1ftown"')
    assert one.clauses(words) == (Conjunction(("\x1fold\x1ftown",)),)
    with pytest.raises(ExpressionError, match=r"U\+001D"):
        one.clauses(lambda text: [text])


def test_escapes_inside_quotes() -> None:
    assert tree_of(r'"say \"hi\" \\ \n"') == Word(0, r'say "hi" \ \n', quoted=True)


def depth(node: Node) -> int:
    if isinstance(node, Word | Prefix):
        return 0
    below = (node.operand,) if isinstance(node, Not) else node.operands
    return 1 + max(depth(operand) for operand in below)


def test_the_tree_has_no_superfluous_levels() -> None:
    tree = tree_of("((a)) OR (b c) OR NOT NOT d")
    assert isinstance(tree, Or)
    assert [type(operand) for operand in tree.operands] == [Word, And, Word]
    assert depth(tree) == 2


def choices(count: int, width: int) -> str:
    groups = (" OR ".join(f"w{g}x{i}" for i in range(width)) for g in range(count))
    return " AND ".join(f"({group})" for group in groups)


def test_a_thousand_clauses_are_taken_and_one_more_is_not() -> None:
    assert len(parse(choices(1, 1000), words)) == 1000
    assert len(parse(choices(3, 10), words)) == 1000
    with pytest.raises(ExpressionError, match="more than 1,000 clauses"):
        parse(choices(1, 1001), words)


@pytest.mark.parametrize(
    "text",
    [
        choices(200, 2),
        choices(30, 300),
        f"({choices(1, 1000)}) AND {' '.join(f'y{i}' for i in range(20_000))}",
        "tea NOT (" + " ".join(f"w{i}" for i in range(5000)) + ")",
    ],
    ids=["many pairs", "wide groups", "long clauses", "long negation"],
)
def test_an_explosion_is_refused_before_it_happens(text: str) -> None:
    with pytest.raises(ExpressionError, match="split it into several subscriptions"):
        parse(text, words)


def test_a_word_that_is_repeated_is_split_once() -> None:
    split: list[str] = []

    def tokenize(text: str) -> list[str]:
        split.append(text)
        return words(text)

    assert parse("tea " * 10_000 + '"tea" ' * 10_000, tokenize) == (Conjunction(("tea",)),)
    assert split == ["tea", "tea"]


@pytest.mark.parametrize(
    "shape",
    [
        "a ",
        "a{0} ",
        "(a) ",
        "(a OR b) ",
        '"a b" ',
        "NOT b a ",
        "\u201ca\u201d ",
        "a* ",
    ],
)
def test_the_work_grows_with_the_length(shape: str) -> None:
    def calls(count: int) -> int:
        text = "".join(shape.format(number % 900) for number in range(count))
        found = 0

        def count_call(*_: object) -> None:
            nonlocal found
            found += 1

        sys.setprofile(count_call)
        try:
            parse(text, words)
        finally:
            sys.setprofile(None)
        return found

    small, large = calls(1_800), calls(7_200)
    assert large < 4.5 * small


def test_redundant_clauses_do_not_count() -> None:
    assert parse("a OR " + " OR ".join(f"(a b{i})" for i in range(5000)), words) == (
        Conjunction(("a",)),
    )
    assert len(parse(" AND ".join([f"({choices(1, 60)})"] * 5), words)) == 60


def test_nesting_has_a_limit_and_not_operators_have_none() -> None:
    nested = "(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH
    assert parse(nested, words) == (Conjunction(("a",)),)
    deepest = "".join(f"x{i} AND (y{i} OR NOT (" for i in range(MAX_DEPTH // 2))
    assert parse(deepest + "a" + "))" * (MAX_DEPTH // 2), words)
    for deeper in [MAX_DEPTH + 1, 100_000]:
        with pytest.raises(ExpressionError, match="nested"):
            parse("(" * deeper + "a" + ")" * deeper, words)
    assert parse("NOT " * 10_000 + "a", words) == (Conjunction(("a",)),)


@pytest.mark.parametrize("clauses", [[], [Conjunction(())], [Conjunction(("a",)), Conjunction(())]])
def test_text_of_clauses_that_no_expression_has(clauses: list[Conjunction]) -> None:
    with pytest.raises(InvalidInput, match="everything"):
        to_text(clauses)


@pytest.mark.parametrize("value", [None, 3, b"tea", ["tea"]])
def test_an_expression_is_text(value: Any) -> None:
    with pytest.raises(InvalidInput, match="expression"):
        parse(value, words)


def test_a_condition_may_only_exclude() -> None:
    clauses = parse("NOT milk OR tea NOT sugar", str.split, condition=True)
    assert clauses == (Conjunction((), ("milk",)), Conjunction(("tea",), ("sugar",)))
    assert to_text(clauses) == "NOT milk OR tea NOT sugar"
    assert parse(to_text(clauses), str.split, condition=True) == clauses
