"""From text to token ids.

A `Tokenizer` splits keywords and texts into tokens (`words` is the default one). `Words` holds the
words of many texts; a `Vocabulary` numbers them. An `IdTable` numbers the ids of subscriptions in
the same way, and forgets them again; `gather_ids` returns the ids of matches.
"""

from nearcast.text.column import TokenColumn, Words, tokenize_column
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
    "Words",
    "gather_ids",
    "tokenize_column",
    "words",
]
