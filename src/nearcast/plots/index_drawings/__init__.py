"""Drawings of indexes over a running example: areas on a map, and the tree of nodes.

`example` has the subscriptions, `structures` reads what an index consists of from its arrays, and
`picture` draws it. ``nearcast plot index NAME`` is the command.
"""

from nearcast.plots.index_drawings.picture import draw_index
from nearcast.plots.index_drawings.structures import Area, Node, Structure, read_structure

__all__ = ["Area", "Node", "Structure", "draw_index", "read_structure"]
