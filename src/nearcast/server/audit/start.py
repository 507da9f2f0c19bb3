"""Where an audit starts: at the beginning of the log, or at a checkpoint if that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearcast.errors import StorageError
from nearcast.server.audit.replay import Replay

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.storage.log import LogReader

__all__ = ["start_at"]


def start_at(folder: Path, log: LogReader) -> tuple[Replay, int, tuple[str, ...]]:
    """Return a replay, the number of the record that it needs next, and notes for the reader."""
    if log.first_seq == 1:
        return Replay(), 1, ("The whole log was replayed, from its first record on.",)
    raise StorageError(f"{folder}: the log was trimmed")
