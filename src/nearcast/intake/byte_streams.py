"""Files as streams of UTF-8: opened locally or by URI, decompressed and transcoded on the way."""

from __future__ import annotations

import codecs
import io
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nearcast.errors import UnsupportedFile
from nearcast.intake.reading import COMPRESSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["TextStream", "open_native", "open_text"]

_CHUNK_BYTES = 1 << 20
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_MAX_MARK = 4


@dataclass(frozen=True)
class TextStream:
    """A file as UTF-8 without byte order mark; what could not be decoded is not valid UTF-8.

    ``position`` returns how many of its ``size`` bytes on disk have been read.
    """

    file: io.BufferedReader
    encoding: str
    position: Callable[[], int]
    size: int


@contextmanager
def open_text(path: str | os.PathLike[str], encoding: str | None = None) -> Iterator[TextStream]:
    """Open a text file: decompressed by its extension, and transcoded to UTF-8.

    A byte order mark tells the encoding, even if another one is given.
    """
    name = os.fspath(path)
    codec = COMPRESSED.get(PurePosixPath(name).suffix.lower())
    with ExitStack() as stack:
        if codec is None and not _is_uri(name):
            file: Any = stack.enter_context(open(name, "rb"))
            position, size = file.tell, os.fstat(file.fileno()).st_size
        else:
            native = stack.enter_context(open_native(name))
            position, size = native.tell, native.size()
            if codec is not None:
                native = stack.enter_context(pa.CompressedInputStream(native, codec))
            file = io.BufferedReader(_Native(native), _CHUNK_BYTES)
        found = _skip_mark(file) or _canonical(encoding or "utf-8")
        if found != "utf-8":
            file = io.BufferedReader(_Transcoded(file, found), _CHUNK_BYTES)
        yield TextStream(file, found, position, size)


def open_native(path: str | os.PathLike[str]) -> Any:
    """Open a file for PyArrow: a local path, or a URI of a file system that PyArrow has."""
    name = os.fspath(path)
    if not _is_uri(name):
        return pa.OSFile(name, "rb")
    try:
        from pyarrow import fs  # brings the clients of object stores

        system, inside = fs.FileSystem.from_uri(name)
    except pa.ArrowException as error:
        raise UnsupportedFile(f"this file system cannot be read: {error}") from None
    return system.open_input_file(inside)


def _is_uri(name: str) -> bool:
    return "://" in name


def _canonical(encoding: str) -> str:
    name = codecs.lookup(encoding).name
    return "utf-8" if name in {"utf-8", "utf-8-sig", "ascii"} else name


def _skip_mark(file: io.BufferedReader) -> str | None:
    """Return the encoding of a byte order mark, and read over it."""
    beginning = file.peek(_MAX_MARK)[:_MAX_MARK]
    for mark, encoding in _MARKS.items():
        if beginning.startswith(mark):
            file.read(len(mark))
            return encoding
    return None


class _Native(io.RawIOBase):
    """A file of PyArrow as one of Python."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._native.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


class _Transcoded(io.RawIOBase):
    """A file in another encoding as UTF-8; undecodable bytes become a byte that is not UTF-8."""

    def __init__(self, file: io.BufferedReader, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)(_UNDECODABLE)
        self._ready = b""
        self._at_end = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._at_end:
            content = self._file.read(_CHUNK_BYTES)
            self._at_end = not content
            text = self._decoder.decode(content, final=self._at_end)
            self._ready = text.encode("utf-8", "surrogateescape")
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def _as_invalid_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end  # encoded as the byte 0xff, which no UTF-8 text has


_UNDECODABLE = "nearcast.undecodable"
codecs.register_error(_UNDECODABLE, _as_invalid_byte)
