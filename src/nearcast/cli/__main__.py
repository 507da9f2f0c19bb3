"""``python -m nearcast.cli``: the same as ``nearcast``."""

from nearcast.cli import main

main()
