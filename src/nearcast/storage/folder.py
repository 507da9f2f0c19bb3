"""A stored folder, written as a whole or not at all, and read without copying.

The new folder is made beside the old one, brought to the disk and renamed into its place: whoever
reads finds either the old arrays or the new ones. Readers that hold the old arrays keep them.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap as memory_map
import os
import secrets
import shutil
import sys
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from nearcast.errors import InvalidInput, StorageError
from nearcast.storage.manifest import (
    HEADER_BYTES,
    REBUILD,
    Entry,
    Manifest,
    aligned,
    digest,
    dtype_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["read_arrays", "write_arrays"]

ARRAYS = "arrays.bin"
MANIFEST = "manifest.json"

_ATTEMPTS = 5
_AT_WORKING_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def write_arrays(
    folder: str | os.PathLike[str],
    kind: str,
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
) -> None:
    """Write named arrays and a few JSON values as a folder, replacing it if it exists.

    Parameters
    ----------
    folder
        Where to write. Missing parents are made. An existing folder is replaced in one step, and
        only if it was written by this function (or is empty).
    kind
        What the arrays are, for example ``"segment"``; it has to be named again when reading.
    arrays
        Arrays of booleans, integers, floats or records of them, of any shape.
    meta
        Values that JSON can hold.

    Raises
    ------
    StorageError
        When the folder cannot be written, or holds other things that would be lost.
    InvalidInput
        When an array or a value of ``meta`` cannot be stored.

    Examples
    --------
    >>> import tempfile
    >>> where = tempfile.mkdtemp() + "/squares"
    >>> write_arrays(where, "example", {"square": np.arange(4) ** 2}, {"made": "today"})
    >>> arrays, meta = read_arrays(where, "example")
    >>> arrays["square"].tolist(), meta
    ([0, 1, 4, 9], {'made': 'today'})
    """
    target = Path(os.path.realpath(folder))
    _refuse_foreign(target)
    stored = {name: _storable(name, array) for name, array in arrays.items()}
    fresh = target.parent / f".{target.name}.{secrets.token_hex(6)}.new"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.mkdir()
        _write_files(fresh, kind, stored, meta)
        _put_in_place(fresh, target)
    except OSError as error:
        raise StorageError(
            f"{target}: cannot be written ({error.strerror or error}); "
            "check the free space and the permissions of its parent folder"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read_arrays(
    folder: str | os.PathLike[str], kind: str, *, verify: bool = True, mmap: bool = True
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `write_arrays` wrote: the arrays, read-only, and the JSON values.

    Parameters
    ----------
    folder
        The folder that was written.
    kind
        What it must hold.
    verify
        Whether to compare every byte with its checksum. Without that the sizes, the header and
        the manifest are still checked.
    mmap
        Whether to map the file into memory (pages are loaded when touched and shared between
        processes) instead of reading it.

    Raises
    ------
    StorageError
        When anything is missing, damaged, of another kind or of another version.
    """
    path = Path(folder)
    for attempt in range(_ATTEMPTS):
        raw = _read_manifest(path)
        try:
            return _read_folder(path, raw, kind, verify, mmap)
        except StorageError:
            # The folder may have been replaced between the two files: then look again.
            if attempt + 1 == _ATTEMPTS or _read_manifest(path) == raw:
                raise
    raise AssertionError("unreachable")


def _storable(name: str, values: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(values, order="C")
    try:
        dtype_to_json(array.dtype)
    except ValueError as error:
        raise InvalidInput(f"arrays[{name!r}]", array.dtype, str(error)) from None
    plain = array.dtype.names is None
    return array.astype(array.dtype.newbyteorder("<"), copy=False) if plain else array


def _refuse_foreign(target: Path) -> None:
    try:
        names = set(os.listdir(target))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(
            f"{target}: cannot be replaced ({error.strerror}); choose another folder"
        ) from error
    if others := sorted(names - {ARRAYS, MANIFEST}):
        raise StorageError(
            f"{target}: holds other files ({', '.join(others[:3])}) that would be lost; "
            "choose a folder of its own"
        )


def _write_files(
    fresh: Path, kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
) -> None:
    entries = []
    with open(fresh / ARRAYS, "wb") as file:
        file.write(bytes(HEADER_BYTES))
        for name, array in arrays.items():
            file.write(bytes(aligned(file.tell()) - file.tell()))
            content = array.reshape(-1).view(np.uint8).data
            entries.append(Entry(name, array.dtype, array.shape, file.tell(), zlib.crc32(content)))
            file.write(content)
        raw = Manifest(kind, _library(), tuple(entries), meta).render()
        file.seek(0)
        file.write(digest(raw))
        _sync(file)
    with open(fresh / MANIFEST, "wb") as file:
        file.write(raw)
        _sync(file)
    _sync_folder(fresh)


def _put_in_place(fresh: Path, target: Path) -> None:
    """Rename the fresh folder to the target; what stood there has the fresh one's name after."""
    if not target.exists():
        os.rename(fresh, target)
    elif not _exchange(fresh, target):
        old = fresh.with_suffix(".old")
        os.rename(target, old)
        try:
            os.rename(fresh, target)
        except OSError:
            os.rename(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    _sync_folder(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; return False where the system cannot."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(AttributeError, OSError):
        rename = ctypes.CDLL(None).renameat2
        here = _AT_WORKING_FOLDER
        return bool(rename(here, os.fsencode(one), here, os.fsencode(other), _EXCHANGE) == 0)
    return False


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _library() -> str:
    try:
        return version("nearcast")
    except PackageNotFoundError:
        return "unreleased"


def _read_manifest(path: Path) -> bytes:
    try:
        return (path / MANIFEST).read_bytes()
    except OSError as error:
        raise StorageError(
            f"{path / MANIFEST}: cannot be read ({error.strerror}); "
            f"name a folder that Nearcast wrote, or {REBUILD}"
        ) from error


def _read_folder(
    path: Path, raw: bytes, kind: str, verify: bool, mmap: bool
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    manifest = Manifest.parse(raw, str(path / MANIFEST))
    if manifest.kind != kind:
        raise StorageError(f"{path}: holds {manifest.kind!r}, not {kind!r}; name another folder")
    content = _content(path / ARRAYS, manifest.end, mmap)
    if bytes(content[:HEADER_BYTES]) != digest(raw):
        raise StorageError(f"{path / ARRAYS}: does not belong to its manifest; {REBUILD}")
    if verify:
        _verify(path / ARRAYS, content, manifest)
    return {entry.name: _array(content, entry) for entry in manifest.entries}, dict(manifest.meta)


def _content(path: Path, size: int, mmap: bool) -> memoryview:
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise StorageError(f"{path}: has {found} bytes, expected {size}; {REBUILD}")
            if mmap:
                mapped = memory_map.mmap(file.fileno(), size, access=memory_map.ACCESS_READ)
                return memoryview(mapped)
            return memoryview(file.read())
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror}); {REBUILD}") from error


def _verify(path: Path, content: memoryview, manifest: Manifest) -> None:
    end = HEADER_BYTES
    for entry in manifest.entries:
        sound = zlib.crc32(content[entry.offset : entry.end]) == entry.crc32
        if not sound or any(content[end : entry.offset]):
            raise StorageError(
                f"{path}: array {entry.name!r} (bytes {entry.offset} to {entry.end}) "
                f"does not fit its checksum; {REBUILD}"
            )
        end = entry.end


def _array(content: memoryview, entry: Entry) -> NDArray[Any]:
    flat = np.frombuffer(content[entry.offset : entry.end], np.uint8)
    array = flat.view(entry.dtype).reshape(entry.shape) if len(flat) else _nothing(entry)
    array.flags.writeable = False
    return array


def _nothing(entry: Entry) -> NDArray[Any]:
    return np.empty(entry.shape, entry.dtype)
