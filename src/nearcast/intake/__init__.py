"""Readers of subscriptions and messages: objects, Arrow tables and files in; columns out.

Readers of objects (`subscriptions_from`, `messages_from`) raise an error for invalid ones. Readers
of tables and files (`read_subscriptions`, `read_messages`, `load_subscriptions`, `load_messages`)
never stop at an invalid row: they return it in `Rejects`, with the reason, and read the others.
They work on whole columns; only rejected rows, geometries and expressions are read one by one.
"""

from nearcast.intake.batches import Batch
from nearcast.intake.files import load_messages, load_subscriptions, open_file, open_table
from nearcast.intake.frames import is_table, table_from
from nearcast.intake.messages import (
    MESSAGE_COLUMNS,
    MessageBatch,
    messages_from,
    read_messages,
)
from nearcast.intake.moves import MoveBatch, read_moves
from nearcast.intake.reading import FORMATS, Reading, find_files
from nearcast.intake.rejects import Rejects
from nearcast.intake.subscriptions import (
    SUBSCRIPTION_COLUMNS,
    read_subscriptions,
    subscriptions_from,
)

__all__ = [
    "FORMATS",
    "MESSAGE_COLUMNS",
    "SUBSCRIPTION_COLUMNS",
    "Batch",
    "MessageBatch",
    "MoveBatch",
    "Reading",
    "Rejects",
    "find_files",
    "is_table",
    "load_messages",
    "load_subscriptions",
    "messages_from",
    "open_file",
    "open_table",
    "read_messages",
    "read_moves",
    "read_subscriptions",
    "subscriptions_from",
    "table_from",
]
