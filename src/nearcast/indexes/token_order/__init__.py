"""token_order."""

from nearcast.indexes.token_order.order import TokenOrder

__all__ = ["TokenOrder"]
