"""Tokens and ids as numbers.

A `Tokenizer` splits keywords and texts into tokens (`words` is the default one; `tokenizer` finds
the others by name). `Words` holds the words of many texts, and a `Vocabulary` numbers them. An
`IdTable` numbers the ids of subscriptions, which can be removed again; `gather_ids` looks up the
ids of matches. `Weights` tells how rare tokens are.
"""

from nearcast.text.column import Sequences, TokenColumn, Words, tokenize_column
from nearcast.text.gather import gather_ids
from nearcast.text.ids import IdTable, hash_ids
from nearcast.text.tokenizers import loadable_name, name_of, opened, tokenizer
from nearcast.text.unicode_words import Tokenizer, UnicodeWords, words
from nearcast.text.vocabulary import Vocabulary
from nearcast.text.weights import Weights

__all__ = [
    "IdTable",
    "Sequences",
    "TokenColumn",
    "Tokenizer",
    "UnicodeWords",
    "Vocabulary",
    "Weights",
    "Words",
    "gather_ids",
    "hash_ids",
    "loadable_name",
    "name_of",
    "opened",
    "tokenize_column",
    "tokenizer",
    "words",
]
