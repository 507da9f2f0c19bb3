"""``stamp``."""

from nearcast.indexes.stamp.index import Stamp

__all__ = ["Stamp"]
