"""pt_quadtree."""

from nearcast.indexes.pt_quadtree.index import PtQuadtree, PtQuadtreeOptions

__all__ = ["PtQuadtree", "PtQuadtreeOptions"]
