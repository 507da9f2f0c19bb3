"""An append-only log on disk, for everything that must not be lost.

`Log` appends groups of records, and reads them again; `LogReader` reads what another process
writes. `records` is their form, `segment` a file of them, `history` what a log remembers beside
them, `disk` what it asks of the operating system.
"""

from nearcast.storage.log.log import Log, Ticket
from nearcast.storage.log.reader import LogReader
from nearcast.storage.log.records import Entry, Record

__all__ = ["Entry", "Log", "LogReader", "Record", "Ticket"]
