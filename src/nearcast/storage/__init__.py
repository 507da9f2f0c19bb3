"""Arrays on disk: a folder with ``arrays.bin`` and ``manifest.json``, checksummed and versioned.

`write_arrays` replaces a folder atomically. `read_arrays` maps the arrays into memory, read-only,
so that processes share one copy. Nothing is pickled. `storage.columns` converts subscriptions,
messages and ids to named arrays and back. `storage.temporary` writes files beside their target,
`storage.log` is an append-only log for what must not be lost.
"""

from nearcast.storage.columns import (
    clauses_from_arrays,
    clauses_to_arrays,
    content_from_arrays,
    content_to_arrays,
    holds_ranked,
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
from nearcast.storage.folder import (
    fingerprint,
    holds_arrays,
    read_arrays,
    sweep_arrays,
    write_arrays,
)
from nearcast.storage.manifest import FORMAT

__all__ = [
    "FORMAT",
    "clauses_from_arrays",
    "clauses_to_arrays",
    "content_from_arrays",
    "content_to_arrays",
    "fingerprint",
    "holds_arrays",
    "holds_ranked",
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
    "sweep_arrays",
    "write_arrays",
]
