"""The audit: a stretch of the log is matched again, by the exhaustive scan, and compared.

`replay` is a second implementation of matching, in plain Python; `scanning` compares everything
with everything, `stored` reads the events of a server's folder, `comparing` finds the first
difference, and `explaining` says it in words.
"""

from nearcast.server.audit.audit import Report, audit
from nearcast.server.audit.explaining import Difference

__all__ = ["Difference", "Report", "audit"]
