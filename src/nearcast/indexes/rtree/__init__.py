"""rtree."""

from nearcast.indexes.rtree.ir_tree import IrTree
from nearcast.indexes.rtree.rt_plus_plus_tree import RtPlusPlusTree
from nearcast.indexes.rtree.rt_plus_tree import RtPlusTree
from nearcast.indexes.rtree.rt_tree import RtTree
from nearcast.indexes.rtree.spatial_first import SpatialFirst

__all__ = ["IrTree", "RtPlusPlusTree", "RtPlusTree", "RtTree", "SpatialFirst"]
