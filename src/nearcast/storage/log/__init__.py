"""An append-only log on disk, for everything that must not be lost.

`Log` appends groups of records, and reads them again. `records` is their form, `segment` a file of
them, `history` what a log remembers beside them, `disk` what it asks of the operating system.
"""

from nearcast.storage.log.log import Log, Ticket
from nearcast.storage.log.records import Entry, Record

__all__ = ["Entry", "Log", "Record", "Ticket"]
