"""What a log asks of a disk; tests replace it by one that loses what was not synced."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nearcast.storage.temporary import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Disk"]

_sync = getattr(os, "fdatasync", os.fsync)


class Disk:
    """Files, by descriptor."""

    def create(self, path: Path, size: int) -> int:
        """Make a file of zeros that has its place on the disk, and return it; it is synced."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            self.allocate(file, size)
            os.fsync(file)
        except BaseException:
            os.close(file)
            os.unlink(path)
            raise
        sync_folder(path.parent)
        return file

    def open(self, path: Path) -> int:
        """Open a file to read and write."""
        return os.open(path, os.O_RDWR)

    def size(self, file: int) -> int:
        """Return the size of a file."""
        return os.fstat(file).st_size

    def read(self, file: int, size: int, at: int) -> bytes:
        """Return bytes of a file; fewer at its end."""
        pieces = []
        while size:
            piece = os.pread(file, size, at)
            if not piece:
                break
            pieces.append(piece)
            at, size = at + len(piece), size - len(piece)
        return b"".join(pieces)

    def write(self, file: int, data: bytes, at: int) -> None:
        """Write bytes."""
        view = memoryview(data)
        while view:
            written = os.pwrite(file, view, at)
            at, view = at + written, view[written:]

    def sync(self, file: int) -> None:
        """Return when everything that was written is on the disk."""
        _sync(file)

    def cut(self, file: int, size: int, capacity: int) -> None:
        """Let zeros follow the first bytes of a file; it is synced."""
        os.ftruncate(file, size)
        self.allocate(file, capacity)
        os.fsync(file)

    def allocate(self, file: int, size: int) -> None:
        """Give a file its place on the disk, filled with zeros where it was shorter."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
        else:
            os.ftruncate(file, size)

    def close(self, file: int) -> None:
        """Close a file."""
        os.close(file)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name in the same folder, for good."""
        path.rename(target)
        sync_folder(target.parent)

    def remove(self, path: Path) -> None:
        """Remove a file for good."""
        path.unlink()
        sync_folder(path.parent)
