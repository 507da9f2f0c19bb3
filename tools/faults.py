"""The faults that can be planted in a source: what `tools/mutants.py` tries, one at a time.

A fault (a mutant) replaces the text of one node of the syntax tree: a comparison turned, a lock
left out, a statement dropped. `KINDS` lists them.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from changed import last_name

__all__ = ["KINDS", "Mutant", "mutants_of"]

KINDS = (
    "comparison",
    "and/or",
    "negation",
    "+/-",
    "0/1",
    "lock",
    "dropped",
    "return",
    "True/False",
    "min/max",
    "break/continue",
)

_TURNED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OPPOSITE = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
_LOGGED = re.compile(r"_?log(ger|ging)?\.\w+|warnings\.warn|warn|_?print|super\(\)\.\w+", re.I)
_NO_LOCK = '__import__("contextlib").nullcontext()'


class Mutant(NamedTuple):
    """A fault: the bytes from ``start`` to ``end`` of a file are replaced by ``text``.

    ``old`` and ``new`` are the lines around it, in one line each.
    """

    target: str
    file: str
    line: int
    kind: str
    start: int
    end: int
    text: str
    old: str
    new: str

    @property
    def key(self) -> tuple[str, int, str, str, str]:
        """What tells it from others in the results."""
        return self.file, self.line, self.kind, self.old, self.new

    def planted(self, source: bytes) -> bytes:
        """Return the source with this fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


class _Finder(ast.NodeVisitor):
    """Collects the faults that a source can have, as positions and new texts."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self.found: list[tuple[str, int, int, str]] = []
        self._in_init = False

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    def _add(self, kind: str, node: ast.expr | ast.stmt, text: str) -> None:
        self.found.append((kind, self._start(node), self._end(node), text))

    def _between(self, kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replace an operator between two operands."""
        start, end = self._end(left), self._start(right)
        words = rf"\b{old}\b" if old.isalpha() else re.escape(old)
        match = re.search(words.replace("is not", r"is\s+not").encode(), self._source[start:end])
        if match is not None:
            self.found.append((kind, start + match.start(), start + match.end(), new))

    # What is left alone.

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave out errors: their texts are not answers."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave out assertions."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave out texts; before Python 3.12, positions inside of them are wrong, too."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Leave out imports."""

    def visit_arg(self, node: ast.arg) -> None:
        """Leave out annotations of arguments."""

    def visit_Assign(self, node: ast.Assign) -> None:
        """Visit an assignment that is not a list of names for Python."""
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id.startswith("__"):
            return
        self._dropped(node, target)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value only."""
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit defaults and statements, not annotations and decorators."""
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        before, self._in_init = self._in_init, node.name == "__init__"
        for statement in node.body:
            self.visit(statement)
        self._in_init = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit the statements of a class, not its decorators and bases."""
        for statement in node.body:
            self.visit(statement)

    # What is changed.

    def visit_Compare(self, node: ast.Compare) -> None:
        """Turn each comparison."""
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            self._between("comparison", left, right, *_TURNED[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Swap ``and`` and ``or``, all of an expression at once."""
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        text, position = "", self._start(node)
        for left, right in zip(node.values, node.values[1:], strict=False):
            start, end = self._end(left), self._start(right)
            between = re.sub(rf"\b{old}\b", new, self._source[start:end].decode(), count=1)
            text += self._source[position:start].decode() + between
            position = end
        self._add("and/or", node, text + self._source[position : self._end(node)].decode())
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.Constant):
            return
        turned = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], turned):
            return  # the same as turning the comparison
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._add("negation", test, f"({self._text(test.operand)})")
        else:
            self._add("negation", test, f"(not ({self._text(test)}))")

    def visit_If(self, node: ast.If) -> None:
        """Negate the condition, and drop an early return."""
        if ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for statement in node.orelse:
                self.visit(statement)
            return
        self._negate(node.test)
        last = node.body[-1]
        if isinstance(last, ast.Return) and not node.orelse:
            self._add("return", last, "pass")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """Negate the condition."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate the condition."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Negate the conditions."""
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Swap plus and minus, of numbers."""
        texts = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
        operands = (node.left, node.right)
        numbers = not any(
            isinstance(operand, texts)
            or (isinstance(operand, ast.Constant) and isinstance(operand.value, str | bytes))
            for operand in operands
        )
        if isinstance(node.op, ast.Add) and numbers:
            self._between("+/-", *operands, "+", "-")
        elif isinstance(node.op, ast.Sub):
            self._between("+/-", *operands, "-", "+")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Swap plus and minus, or drop the statement."""
        if isinstance(node.op, ast.Add) and not isinstance(node.value, ast.List | ast.JoinedStr):
            self._between("+/-", node.target, node.value, "+=", "-=")
        elif isinstance(node.op, ast.Sub):
            self._between("+/-", node.target, node.value, "-=", "+=")
        self._dropped(node, node.target)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change 0, 1, True and False."""
        if node.value is True or node.value is False:
            self._add("True/False", node, str(not node.value))
        elif type(node.value) is int and node.value == 0:
            self._add("0/1", node, "1")
        elif type(node.value) is int and node.value == 1:
            self._add("0/1", node, "0")
            self._add("0/1", node, "2")

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        """Leave out a lock: something that is entered by its name alone."""
        for item in node.items:
            lock = item.context_expr
            if item.optional_vars is None and isinstance(lock, ast.Name | ast.Attribute):
                self._add("lock", lock, _NO_LOCK)
        self.generic_visit(node)

    visit_AsyncWith = visit_With

    def visit_Expr(self, node: ast.Expr) -> None:
        """Drop a statement that is a call."""
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        called = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(called, ast.Call):
            if _LOGGED.fullmatch(ast.unparse(called.func)):
                return
            self._add("dropped", node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        """Drop it, unless it only forgets a name."""
        if not isinstance(node.targets[0], ast.Name):
            self._add("dropped", node, "pass")

    def _dropped(self, node: ast.stmt, target: ast.expr) -> None:
        # In __init__, everything that reads the attribute would fail.
        if isinstance(target, ast.Attribute | ast.Subscript) and not self._in_init:
            self._add("dropped", node, "pass")

    def visit_Call(self, node: ast.Call) -> None:
        """Swap min and max."""
        name = last_name(node.func)
        if name in _OPPOSITE and (len(node.args) > 1 or isinstance(node.func, ast.Name)):
            start = self._end(node.func) - len(name)
            self.found.append(("min/max", start, start + len(name), _OPPOSITE[name]))
        if not _LOGGED.fullmatch(ast.unparse(node.func)):
            self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        """Go on."""
        self._add("break/continue", node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        """Stop."""
        self._add("break/continue", node, "break")


def mutants_of(source: bytes, file: str, target: str = "") -> list[Mutant]:
    """Return all faults that can be planted in a source.

    Examples
    --------
    >>> for mutant in mutants_of(b"size = a + 2 if a < b else c", "sizes.py"):
    ...     print(mutant.kind, ":", mutant.new)
    negation : size = a + 2 if (not (a < b)) else c
    +/- : size = a - 2 if a < b else c
    comparison : size = a + 2 if a <= b else c
    """
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    mutants = []
    for kind, start, end, text in sorted(set(finder.found), key=lambda found: (found[1], found)):
        first = source.rfind(b"\n", 0, start) + 1
        last = source.find(b"\n", end)
        last = len(source) if last < 0 else last
        old = source[first:last].decode()
        new = source[first:start].decode() + text + source[end:last].decode()
        line = source.count(b"\n", 0, start) + 1
        mutants.append(
            Mutant(target, file, line, kind, start, end, text, _one_line(old), _one_line(new))
        )
    return mutants


def _one_line(text: str) -> str:
    return " ".join(text.split())
