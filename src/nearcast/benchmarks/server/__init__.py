"""Benchmarks of the live server: a real server process, and load from other processes.

`data` fills the folder of a server, `process` runs it, `load` has the publishers and subscribers,
and `scenarios` measures. They need the extra ``server``.
"""

from nearcast.extras import require

require("server", "nearcast bench server")
