"""``ranked-pyramid``, the default index of ranked subscriptions."""

from nearcast.indexes.ranked_pyramid.index import RankedPyramid, RankedPyramidOptions

__all__ = ["RankedPyramid", "RankedPyramidOptions"]
