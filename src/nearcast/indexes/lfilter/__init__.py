"""lfilter."""

from nearcast.indexes.lfilter.index import Lfilter, LfilterOptions

__all__ = ["Lfilter", "LfilterOptions"]
