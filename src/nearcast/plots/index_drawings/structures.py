"""What an index consists of, read from its arrays: areas on the map, and a tree of nodes.

There is a reader for each family. It knows the arrays as the ``layout`` modules describe them, and
is meant for the few subscriptions of a drawing: it loops in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import UNITS
from nearcast.compiled.box_lists import CAPACITY, SIZE, START, TOKEN
from nearcast.compiled.pyramids import (
    BLOCK_SIZE,
    LINE_WORDS,
    PART_BITS,
    PART_WORDS,
    POSITION_BITS,
    ROUNDING,
)
from nearcast.compiled.token_lists import CAPACITY_BITS
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes import create
from nearcast.indexes.ap_tree import layout as ap
from nearcast.indexes.mbr_trie import layout as trie
from nearcast.indexes.pt_quadtree import layout as pt
from nearcast.indexes.quadtrees import layout as quad
from nearcast.indexes.rtree import nodes as rtree
from nearcast.plots.index_drawings.example import BOOLEAN, OPTIONS, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

__all__ = [
    "Area",
    "Node",
    "Structure",
    "box_list",
    "cell_box",
    "cell_name",
    "owned",
    "read_partition_tree",
    "read_structure",
    "shortened",
]

Box = tuple[float, float, float, float]

_LOW32 = (1 << 32) - 1
_WORLD_CELL = (1 << 32) / UNITS, (1 << 31) / UNITS
"""Width and height in degrees of the root cell of `nearcast.indexes.quadtrees`."""


@dataclass(frozen=True)
class Area:
    """A rectangle of an index on the map: the box of a node, or a cell."""

    box: Box
    label: str
    level: int = 0


@dataclass
class Node:
    """A node of the tree: what stands in it, and what is below."""

    lines: list[str]
    children: list[Node] = field(default_factory=list)
    is_list: bool = False

    def count(self) -> int:
        """Return the number of nodes, this one included."""
        return 1 + sum(child.count() for child in self.children)


@dataclass(frozen=True)
class Structure:
    """What a drawing of an index shows; areas are cells, or boxes that may overlap."""

    caption: str
    areas: list[Area]
    tree: Node
    has_cells: bool = False
    scene: Scene = BOOLEAN


def read_structure(name: str) -> Structure:
    """Build an index over the running example, and read its structure.

    Examples
    --------
    >>> structure = read_structure("keyword-first")
    >>> [node.lines for node in structure.tree.children]
    [['coffee', '0  6'], ['cake', '1  3  7'], ['jazz', '2  5'], ['rain', '4']]
    """
    index = create(name, **OPTIONS[name]).build(BOOLEAN.clauses())
    return _READERS[name](dict(index.arrays()))


def _degrees(box: Iterable[float]) -> Box:
    west, south, east, north = (float(side) / UNITS for side in box)
    return west, south, east, north


def _word(token: int) -> str:
    return "any" if token == int(NO_TOKEN) else BOOLEAN.words[token]


def _words(tokens: Iterable[int]) -> str:
    return " ".join(_word(token) for token in sorted(tokens))


def _described(clause: int) -> str:
    return f"{clause} {_words(BOOLEAN.subscriptions[clause])}"


def _numbers(clauses: Iterable[int]) -> str:
    return "  ".join(str(clause) for clause in sorted(clauses))


# --- lists ---------------------------------------------------------------------------------------


def _scan(arrays: Mapping[str, NDArray[Any]]) -> Structure:
    rows = np.flatnonzero(arrays["alive"]).tolist()
    nodes = [Node([_described(row)], is_list=True) for row in rows]
    return Structure("every message is compared with all", [], Node(["message"], nodes))


def box_list(entry: NDArray[Any], row: NDArray[Any]) -> list[int]:
    """Return the clauses of a list of `nearcast.compiled.box_lists`."""
    flat = entry.ravel()
    tail = 6 * int(row[START]) + 4 * int(row[CAPACITY])
    return sorted(int(flat[tail + 2 * i]) for i in range(int(row[SIZE])))


def _keyword_first(arrays: Mapping[str, NDArray[Any]]) -> Structure:
    rows = sorted((row for row in arrays["slot"] if row[CAPACITY]), key=lambda row: int(row[TOKEN]))
    lists = [
        Node([_word(int(row[TOKEN])), _numbers(box_list(arrays["entry"], row))], is_list=True)
        for row in rows
    ]
    return Structure("lists by the rarest token", [], Node(["table of tokens"], lists))


# --- R-trees -------------------------------------------------------------------------------------


def _table(arrays: Mapping[str, NDArray[Any]], owner: int, prefix: str = "") -> dict[int, Any]:
    """Return the words of the tokens in the table of a node: the upper half, and the second."""
    if not len(arrays[f"{prefix}table"]):
        return {}
    start, size, _ = arrays[f"{prefix}table"][owner].tolist()
    found = {}
    for first, second in arrays[f"{prefix}slot"][start : start + size].tolist():
        if first & _LOW32:
            found[(first & _LOW32) - 1] = first >> 32, second
    return found


def _slots(word: int) -> list[int]:
    return [slot for slot in range(rtree.MAX_ENTRIES) if word >> slot & 1]


def _node_box(arrays: Mapping[str, NDArray[Any]], node: int) -> Box:
    used = _slots(int(arrays["tree.used"][node]))
    sides = arrays["tree.box"][node][:, used]
    return _degrees([*sides[:2].min(axis=1), *sides[2:].max(axis=1)])


def _token_sets(arrays: Mapping[str, NDArray[Any]], node: int, slot: int) -> list[str]:
    """Return the tokens that an inner node knows about one of its entries."""
    table = _table(arrays, node)
    known = [token for token, (_, word) in table.items() if word >> slot & 1]
    return [_words(known)] if known else []


def _inverted_file(arrays: Mapping[str, NDArray[Any]], leaf: int) -> list[str]:
    table = _table(arrays, leaf)
    entry = arrays["tree.entry"][leaf]
    return [
        f"{_word(token)}: {_numbers(int(entry[slot]) for slot in _slots(word))}"
        for token, (_, word) in sorted(table.items())
    ]


def _token_lists(arrays: Mapping[str, NDArray[Any]], node: int) -> list[str]:
    """Return the lists of an inner node of an rt++-tree; a dot marks a clause's last token."""
    lines = []
    for token, (size, word) in sorted(_table(arrays, node).items()):
        start = word >> int(CAPACITY_BITS)
        listed = arrays["posting"][start : start + size].tolist()
        marked = [f"{~c}." if c < 0 else str(c) for c in sorted(listed, key=lambda c: max(c, ~c))]
        lines.append(f"{_word(token)}: {'  '.join(marked)}")
    return lines


def _rtree_reader(kind: str) -> Callable[[Mapping[str, NDArray[Any]]], Structure]:
    def read(arrays: Mapping[str, NDArray[Any]]) -> Structure:
        areas: list[Area] = []

        def visit(at: int, name: str, tokens: list[str], depth: int) -> Node:
            if depth:
                areas.append(Area(_node_box(arrays, at), name, depth - 1))
            slots = _slots(int(arrays["tree.used"][at]))
            entry = arrays["tree.entry"][at]
            if arrays["tree.level"][at] == 0:
                lines = [_described(int(entry[slot])) for slot in slots]
                if kind in ("files", "lists"):
                    lines = _inverted_file(arrays, at)
                    lines = lines or [_numbers(int(entry[slot]) for slot in slots)]
                return Node([name, *tokens, *lines], is_list=True)
            node = Node([name, *tokens])
            if kind == "lists":
                node.lines += _token_lists(arrays, at)
            for i, slot in enumerate(slots):
                known = _token_sets(arrays, at, slot) if kind in ("sets", "files") else []
                below = name + "ABC"[i] if depth else "AB"[i]
                node.children.append(visit(int(entry[slot]), below, known, depth + 1))
            return node

        root = visit(int(arrays["tree.state"][rtree.ROOT]), "root", [], 0)
        captions = {
            "none": "boxes of nodes, clauses in leaves",
            "sets": "boxes of nodes, and the tokens that a node knows",
            "files": "boxes of nodes; tokens of nodes, and tokens of leaves with clauses",
            "lists": "boxes of nodes; clauses by their first token, in leaves by later ones",
        }
        return Structure(captions[kind], areas, root)

    return read


# --- tries ---------------------------------------------------------------------------------------


def _mbr_trie(arrays: Mapping[str, NDArray[Any]]) -> Structure:
    word_of = {int(row[trie.RANK]): int(row[trie.TOKEN]) - 1 for row in arrays["slot"] if row[0]}
    areas: list[Area] = []

    def clauses_of(row: NDArray[Any]) -> list[int]:
        size, capacity, start = (
            int(row[trie.LIST_SIZE]),
            int(row[trie.LIST_CAPACITY]),
            int(row[trie.LIST]),
        )
        if size and not capacity:
            return [start]
        flat = arrays["entry"].ravel()
        return [int(flat[start + 4 * capacity + i]) for i in range(size)]

    def visit(at: int, path: str) -> Node:
        row = arrays["node"][at]
        node = Node([])
        if at:
            word = _word(word_of[int(arrays["rank"][at])])
            path = f"{path} {word}".strip()
            box = _degrees(row[:4])
            areas.append(Area(box, path, path.count(" ")))
            node.lines = [word, "{:g} {:g} {:g} {:g}".format(*box)]
            clauses = clauses_of(row)
            if clauses:
                node.lines.append(f"list: {_numbers(clauses)}")
            first, count = int(row[trie.FIRST_CHILD]), int(row[trie.CHILD_COUNT])
            below = list(range(first, first + count))
        else:
            node.lines = ["root"]
            firsts = {int(s[trie.RANK]): int(s[trie.ROOT_CHILD]) for s in arrays["slot"] if s[0]}
            below = [firsts[rank] for rank in sorted(firsts) if firsts[rank]]
        node.children = [visit(child, path) for child in below]
        node.is_list = not node.children
        return node

    return Structure("box of each trie node; clauses where their tokens end", areas, visit(0, ""))


def _trie_pyramid(arrays: Mapping[str, NDArray[Any]]) -> Structure:
    words, rounded = arrays["pyramid"], arrays["pyramid"].view(np.int16)
    sizes, block = arrays["shape"], int(arrays["setting"][BLOCK_SIZE])
    areas: list[Area] = []

    def visit_pyramid(position: int, size: int, label: str, depth: int) -> list[Node]:
        if size <= block:
            clauses = words[position + size : position + 2 * size] & np.uint64(_LOW32)
            boxes = np.array([BOOLEAN.boxes[int(c)] for c in clauses])
            (west, south), (east, north) = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
            areas.append(Area((west, south, east, north), label, depth))
            return [Node([f"leaf: {_numbers(int(c) for c in clauses)}"], is_list=True)]
        level = next(i for i in range(99) if block << int(sizes[PART_BITS, i]) >= size)
        part = 1 << int(sizes[PART_BITS, level])
        count = -(-size // part)
        inner = -(-count // LINE_WORDS) * LINE_WORDS
        sides_at = rounded[4 * position : 4 * position + 4 * count].reshape(4, count)
        block_node = Node(["block of boxes"])
        for i in range(count):
            at = position + inner + i * int(sizes[PART_WORDS, level])
            here = min(part, size - i * part)
            sides = _degrees(int(side) << int(ROUNDING) for side in sides_at[:, i])
            block_node.lines.append("{:.0f} {:.0f} {:.0f} {:.0f}".format(*sides))
            block_node.children += visit_pyramid(at, here, f"{label} {i + 1}", depth + 1)
        return [block_node]

    def visit(target: int, token: int, path: str) -> Node:
        path = f"{path} {_word(token)}".strip()
        node = Node([_word(token)], is_list=True)
        pyramid = target
        if target >> 63:
            row = arrays["node"][target & ((1 << 63) - 1)].tolist()
            pyramid = row[2]
            first, count = row[1] & _LOW32, row[1] >> 32
            for child in arrays["child"][first : first + count].tolist():
                at = int(arrays["slot"][child & _LOW32][1])
                node.children.append(visit(at, child >> 32, path))
        if pyramid:
            position, size = pyramid & ((1 << POSITION_BITS) - 1), pyramid >> POSITION_BITS
            below = visit_pyramid(position, size, path, path.count(" "))
            node.children = below + node.children
            node.is_list = False
        return node

    tops = {int(row[0]): int(row[1]) for row in arrays["slot"] if row[1] and int(row[0]) <= _LOW32}
    nodes = [visit(target, token, "") for token, target in sorted(tops.items())]
    root = Node(["table of tokens"], nodes)
    return Structure("a pyramid in each list; boxes of its leaves", areas, root)


# --- quadtrees -----------------------------------------------------------------------------------


def _pt_quadtree(arrays: Mapping[str, NDArray[Any]]) -> Structure:
    areas: list[Area] = []

    def visit(at: int, name: str, depth: int) -> Node:
        row = arrays["node"][at]
        areas.append(Area(_degrees(row[:4]), name, depth))
        node = Node([name], is_list=row[pt.FIRST_CHILD] < 0)
        for token, (size, word) in sorted(_table(arrays, at, "lists.").items()):
            start = word >> int(CAPACITY_BITS)
            clauses = arrays["entry"][start : start + size, pt.CLAUSE].tolist()
            node.lines.append(f"{_word(token)}: {_numbers(clauses)}")
        if not node.is_list:
            below = [visit(int(row[pt.FIRST_CHILD]) + i, _QUARTERS[i], depth + 1) for i in range(4)]
            node.children = [child for child in below if child.children or len(child.lines) > 1]
            sets = _table(arrays, at, "sets.")
            for token, (_, bits) in sorted(sets.items()):
                inside = [_QUARTERS[i] for i in range(4) if bits >> i & 1]
                if inside:
                    node.lines.append(f"{_word(token)} in {' '.join(inside)}")
        return node

    tree = visit(0, "root", 0)
    return Structure("cells, with clauses by their pivotal tokens", areas, tree, True)


_QUARTERS = ("SW", "SE", "NW", "NE")


def _lfilter(arrays: Mapping[str, NDArray[Any]]) -> Structure:
    parts = {
        part: {name[len(part) + 1 :]: array for name, array in arrays.items() if _is_of(part, name)}
        for part in ("trie", "quadtree")
    }
    by_trie, by_space = _mbr_trie(parts["trie"]), _pt_quadtree(parts["quadtree"])
    by_trie.tree.lines[0], by_space.tree.lines[0] = "mbr-trie", "pt-quadtree"
    for node in _all_nodes(by_trie.tree):
        node.lines = [line for line in node.lines if line.count(" ") < 3 or ":" in line]
    root = Node(["message: which costs less?"], [by_trie.tree, by_space.tree])
    return Structure(
        "cells of the quadtree; both parts have all clauses", by_space.areas, root, True
    )


def _is_of(part: str, name: str) -> bool:
    return name.startswith(f"{part}.")


def _all_nodes(node: Node) -> Iterable[Node]:
    yield node
    for child in node.children:
        yield from _all_nodes(child)


def cell_box(row: NDArray[Any]) -> Box:
    """Return the cell of a node of `nearcast.indexes.quadtrees`, in degrees."""
    west, south, level = int(row[quad.WEST]), int(row[quad.SOUTH]), int(row[quad.LEVEL])
    width, height = _WORLD_CELL[0] / 2**level, _WORLD_CELL[1] / 2**level
    return west / UNITS, south / UNITS, west / UNITS + width, south / UNITS + height


def owned(arrays: Mapping[str, NDArray[Any]], owner: int) -> list[NDArray[Any]]:
    """Return the rows of an owner of `nearcast.indexes.quadtrees`, by token."""
    rows = [row for row in arrays["slot"] if row[quad.OWNER] == owner + 1]
    return sorted(rows, key=lambda row: int(row[TOKEN]))


def cell_name(row: NDArray[Any]) -> str:
    """Return the sides of a cell, in whole degrees."""
    west, south, east, north = cell_box(row)
    return f"{west:.0f} {south:.0f} {east:.0f} {north:.0f}"


def _iq_tree(arrays: Mapping[str, NDArray[Any]]) -> Structure:
    areas: list[Area] = []

    def visit(at: int) -> Node | None:
        row = arrays["node"][at]
        node = Node([cell_name(row) if at else "the world"])
        for slot in owned(arrays, at + 1):
            clauses = box_list(arrays["entry"], slot)
            node.lines.append(f"{_word(int(slot[TOKEN]))}: {_numbers(clauses)}")
        has_lists = len(node.lines) > 1
        if row[quad.CHILD] > 0:
            below = [visit(int(row[quad.CHILD]) + i) for i in range(4)]
            node.children = [child for child in below if child is not None]
        if not has_lists and not node.children:
            return None
        areas.append(Area(cell_box(row), "", int(row[quad.LEVEL])))
        node.is_list = not node.children
        return node

    tree = visit(0)
    assert tree is not None
    return Structure("cells in use, with lists by the rarest token", areas, shortened(tree), True)


def shortened(node: Node) -> Node:
    """Leave out nodes that only lead to one other."""
    node.children = [shortened(child) for child in node.children]
    if len(node.children) == 1 and len(node.lines) == 1 and not node.is_list:
        return node.children[0]
    return node


def _quadtree_reader(caption: str) -> Callable[[Mapping[str, NDArray[Any]]], Structure]:
    def read(arrays: Mapping[str, NDArray[Any]]) -> Structure:
        areas: list[Area] = []

        def visit_cell(at: int) -> Node | None:
            row = arrays["node"][at]
            node = Node([cell_name(row)])
            if row[SIZE]:
                node.lines.append(_numbers(box_list(arrays["entry"], row)))
            if row[quad.CHILD] > 0:
                below = [visit_cell(int(row[quad.CHILD]) + i) for i in range(4)]
                node.children = [child for child in below if child is not None]
            if not row[SIZE] and not node.children:
                return None
            areas.append(Area(cell_box(row), "", int(row[quad.LEVEL])))
            node.is_list = not node.children
            return node

        def visit(slot: NDArray[Any]) -> Node:
            node = Node([_word(int(slot[TOKEN]))])
            if slot[CAPACITY] == quad.TREE:
                cell = visit_cell(int(slot[START]))
                if cell is not None:
                    node.children.append(shortened(cell))
            elif slot[SIZE]:
                node.lines.append(f"list: {_numbers(box_list(arrays['entry'], slot))}")
            if slot[quad.BRANCH]:
                below = owned(arrays, int(slot[quad.BRANCH]))
                node.children += [visit(child) for child in below]
            node.is_list = not node.children
            return node

        tops = [visit(slot) for slot in owned(arrays, 0)]
        return Structure(caption, areas, Node(["table of tokens"], tops), True)

    return read


# --- ap-tree -------------------------------------------------------------------------------------


def _ap_tree(arrays: Mapping[str, NDArray[Any]]) -> Structure:
    tree, areas = read_partition_tree(arrays["nodes"], arrays["slot"], BOOLEAN.words)
    caption = "cells of the space nodes; each node splits by words or by space"
    return Structure(caption, areas, tree, True)


def read_partition_tree(
    arena: NDArray[Any],
    slots: NDArray[Any],
    words: tuple[str, ...],
    messages_of: Callable[[int], list[int]] | None = None,
    outer: Mapping[int, int] | None = None,
) -> tuple[Node, list[Area]]:
    """Return the nodes of an ap-tree or ap+-tree, and the cells of its space nodes.

    ``messages_of`` returns the messages of a list. Cells at the border take all that is beyond it:
    ``outer`` leads from sides of the border to sides that are drawn.
    """
    outer = outer or {}
    word_of = {
        int(slot & _LOW32) - (1 << 31): words[int(slot >> 32) - 1]
        for slot in slots.tolist()
        if slot
    }
    areas: list[Area] = []

    def leaf_lines(base: int) -> list[str]:
        size, capacity = int(arena[base + ap.SIZE]), int(arena[base + ap.CAPACITY])
        tail = base + ap.LEAF_HEADER + 5 * capacity
        return [_numbers(int(arena[tail + 2 * i + ap.CLAUSE]) for i in range(size))]

    def part_box(base: int, child: int) -> Box:
        sides = arena[base + ap.REGION : base + ap.REGION + 4].tolist()
        region = [outer.get(side, side) for side in sides]
        columns, parts = int(arena[base + ap.COLUMNS]), int(arena[base + ap.PARTS])
        split = base + ap.HEADER
        xs = [region[0], *arena[split : split + columns - 1].tolist(), region[2]]
        rows = parts // columns
        ys = arena[split + columns - 1 : split + columns + rows - 2].tolist()
        ys = [region[1], *ys, region[3]]
        column, row = child % columns, child // columns
        return _degrees([xs[column], ys[row], xs[column + 1], ys[row + 1]])

    def cut_name(base: int, child: int) -> str:
        parts = int(arena[base + ap.PARTS])
        high = int(arena[base + ap.HEADER + child])
        low = int(arena[base + ap.HEADER + parts + child])
        ranks = [rank for rank in sorted(word_of) if low <= rank <= high]
        return " ".join(word_of[rank] for rank in ranks)

    def visit(number: int, title: list[str], messages: list[str]) -> Node:
        base = ap.UNIT * number
        kind = int(arena[base]) if number else ap.LEAF
        if kind == ap.LEAF:
            clauses = leaf_lines(base) if number else []
            return Node([*title, *clauses, *messages], is_list=True)
        offset = int(arena[base + ap.OFFSET])
        what = f"keyword {offset + 1}" if kind == ap.KEYWORDS else "space"
        node = Node([*title, f"split by {what}"])
        color = len({area.level for area in areas})
        parts, links = int(arena[base + ap.PARTS]), base + int(arena[base + ap.CHILDREN])
        for child in range(parts + 1):
            below = int(arena[links + child])
            lines = []
            if messages_of is not None:
                stored = messages_of(int(arena[links + child + 3 * (parts + 1)]))
                lines = [" ".join(f"m{message}" for message in stored)] if stored else []
            if not below and not lines:
                continue
            if child == parts:
                name = "dummy"
            elif kind == ap.KEYWORDS:
                name = cut_name(base, child)
            else:
                box = part_box(base, child)
                name = "{:g} {:g} {:g} {:g}".format(*(round(side) for side in box))
                is_last = child == parts - 1 or not arena[links + child + 1]
                areas.append(Area(box, title[0] if title and is_last else "", color))
            node.children.append(visit(below, [name], lines))
        return node

    return visit(int(arena[ap.ROOT]), [], []), areas


_READERS: dict[str, Callable[[Mapping[str, NDArray[Any]]], Structure]] = {
    "scan": _scan,
    "trie-pyramid": _trie_pyramid,
    "keyword-first": _keyword_first,
    "spatial-first": _rtree_reader("none"),
    "ir-tree": _rtree_reader("files"),
    "rt-tree": _rtree_reader("sets"),
    "rt+-tree": _rtree_reader("sets"),
    "rt++-tree": _rtree_reader("lists"),
    "mbr-trie": _mbr_trie,
    "pt-quadtree": _pt_quadtree,
    "lfilter": _lfilter,
    "ap-tree": _ap_tree,
    "iq-tree": _iq_tree,
    "rq-tree": _quadtree_reader("cells of the quadtrees; lists by the rarest token"),
    "trie-quadtree": _quadtree_reader("cells of the quadtrees; a trie of tokens above them"),
}
