"""Arrays on disk: a folder with ``arrays.bin`` and ``manifest.json``, checksummed and versioned.

`write_arrays` replaces a folder as a whole or not at all; `read_arrays` gives the arrays back,
memory-mapped and read-only, so that any number of processes share one copy. Nothing is pickled.
`storage.columns` turns sets of subscriptions, messages and ids into named arrays and back.
"""

from nearcast.storage.columns import (
    clauses_from_arrays,
    clauses_to_arrays,
    ids_from_arrays,
    ids_to_arrays,
    messages_from_arrays,
    messages_to_arrays,
    nested,
    prefixed,
    strings_from_arrays,
    strings_to_arrays,
    subscriptions_from_arrays,
    subscriptions_to_arrays,
)
from nearcast.storage.folder import read_arrays, write_arrays
from nearcast.storage.manifest import FORMAT

__all__ = [
    "FORMAT",
    "clauses_from_arrays",
    "clauses_to_arrays",
    "ids_from_arrays",
    "ids_to_arrays",
    "messages_from_arrays",
    "messages_to_arrays",
    "nested",
    "prefixed",
    "read_arrays",
    "strings_from_arrays",
    "strings_to_arrays",
    "subscriptions_from_arrays",
    "subscriptions_to_arrays",
    "write_arrays",
]
