"""From text to token ids.

A `Tokenizer` makes tokens of keywords and texts (`words` is the default one); a `Vocabulary`
numbers them; `tokenize_column` does both for whole Arrow columns at once. An `IdTable` numbers the
ids of subscriptions in the same way, and lets go of them again; `gather_ids` gives those of
matches.
"""

from nearcast.text.column import TokenColumn, tokenize_column
from nearcast.text.gather import gather_ids
from nearcast.text.ids import IdTable
from nearcast.text.tokenizer import Tokenizer, UnicodeWords, words
from nearcast.text.vocabulary import Vocabulary

__all__ = [
    "IdTable",
    "TokenColumn",
    "Tokenizer",
    "UnicodeWords",
    "Vocabulary",
    "gather_ids",
    "tokenize_column",
    "words",
]
