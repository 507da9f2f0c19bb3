"""The edge: objects, Arrow tables and files in; columns and rejects out.

Objects (`subscriptions_from`, `messages_from`) raise for what is wrong with them. Tables and files
(`read_subscriptions`, `read_messages`, `load_subscriptions`, `load_messages`) never stop for a bad
row: it becomes one of the `Rejects`, with the reason, and the others are taken. Everything is done
by whole columns; rows are looked at one by one only where they are refused, or hold a geometry or
an expression.
"""

from nearcast.intake.files import FORMATS, load_messages, load_subscriptions, open_table
from nearcast.intake.lines import Batch
from nearcast.intake.messages import (
    MESSAGE_COLUMNS,
    MessageBatch,
    messages_from,
    read_messages,
)
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
    "Rejects",
    "load_messages",
    "load_subscriptions",
    "messages_from",
    "open_table",
    "read_messages",
    "read_subscriptions",
    "subscriptions_from",
]
