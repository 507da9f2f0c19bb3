"""keyword_first."""

from nearcast.indexes.keyword_first.index import KeywordFirst

__all__ = ["KeywordFirst"]
