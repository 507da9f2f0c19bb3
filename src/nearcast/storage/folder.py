"""Write arrays to a folder atomically, and read them back without copying.

The new folder is written beside the old one, synced to the disk and renamed into its place, so a
reader finds either the old arrays or the new ones. Readers that mapped the old arrays keep them.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap as memory_map
import os
import shutil
import sys
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import InvalidInput, StorageError
from nearcast.storage.manifest import (
    HEADER_BYTES,
    REBUILD,
    Entry,
    Manifest,
    aligned,
    dtype_to_json,
    header,
)
from nearcast.storage.temporary import TemporaryFolder, remove_leftovers, sync_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

__all__ = ["fingerprint", "holds_arrays", "read_arrays", "sweep_arrays", "write_arrays"]

ARRAYS = "arrays.bin"
MANIFEST = "manifest.json"

_ATTEMPTS = 5
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # from Linux's fcntl.h and fs.h


def holds_arrays(folder: str | os.PathLike[str]) -> bool:
    """Return whether `write_arrays` wrote a folder."""
    return (Path(folder) / MANIFEST).exists()


def fingerprint(folder: str | os.PathLike[str]) -> int | None:
    """Return a number that changes when a folder is written again; None if there is no folder."""
    try:
        return zlib.crc32((Path(folder) / MANIFEST).read_bytes())
    except OSError:
        return None


def sweep_arrays(folder: str | os.PathLike[str]) -> None:
    """Remove what killed writers of a folder left beside it."""
    remove_leftovers(Path(os.path.realpath(folder)), ARRAYS)


def write_arrays(
    folder: str | os.PathLike[str],
    kind: str,
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
) -> None:
    """Write named arrays and some JSON values to a folder, replacing it if it exists.

    If the process is killed, the old folder stays as it was, and the next call for the same folder
    removes the temporary files.

    Parameters
    ----------
    folder
        The folder to write. Missing parents are created. An existing folder is replaced in one
        step, and only if this function wrote it (or it is empty).
    kind
        What the arrays are, for example ``"segment"``. `read_arrays` expects the same kind.
    arrays
        Arrays of booleans, integers, floats or records of them, of any shape.
    meta
        Values that JSON can represent.

    Raises
    ------
    StorageError
        When the folder cannot be written, or contains other files.
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
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target, ARRAYS)
        with TemporaryFolder(target, ARRAYS) as fresh:
            _write_files(fresh, kind, stored, meta)
            _put_in_place(fresh.path, target)
    except OSError as error:
        raise StorageError(
            f"{target}: cannot be written ({error.strerror or error}); "
            "check the free space and the permissions of its parent folder"
        ) from error


def read_arrays(
    folder: str | os.PathLike[str],
    kind: str,
    *,
    verify: bool | Collection[str] = True,
    mmap: bool = True,
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read the arrays, read-only, and the JSON values that `write_arrays` wrote.

    Parameters
    ----------
    folder
        The folder to read.
    kind
        The kind it was written with.
    verify
        Whether to verify the checksums of the arrays, or the names of those to verify. The
        manifest, the header and the file sizes are always checked.
    mmap
        Whether to map the file into memory instead of reading it. Mapped pages are loaded on
        first access and shared between processes.

    Raises
    ------
    StorageError
        When a file is missing or damaged, or has another kind or format version.
    """
    path = Path(folder)
    for attempt in range(_ATTEMPTS):
        raw = _read_manifest(path)
        try:
            return _read_folder(path, raw, kind, verify, mmap)
        except StorageError:
            # Try again if the folder was replaced after its manifest was read.
            if attempt + 1 == _ATTEMPTS or _read_manifest(path) == raw:
                raise
    raise AssertionError("unreachable")


def _storable(name: str, values: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(values, order="C")
    try:
        dtype_to_json(array.dtype)
    except ValueError as error:
        raise InvalidInput(f"arrays[{name!r}]", array.dtype, str(error)) from None
    if array.dtype.names is not None:  # a record keeps its layout
        return array
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


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
            f"{target}: contains other files ({', '.join(others[:3])}), which would be lost; "
            "choose an empty or new folder"
        )


def _write_files(
    fresh: TemporaryFolder, kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
) -> None:
    entries = []
    file = fresh.file
    file.write(bytes(HEADER_BYTES))
    for name, array in arrays.items():
        file.write(bytes(aligned(file.tell()) - file.tell()))
        content = array.reshape(-1).view(np.uint8).data
        entries.append(Entry(name, array.dtype, array.shape, file.tell(), zlib.crc32(content)))
        file.write(content)
    raw = Manifest(kind, _library(), tuple(entries), meta).render()
    file.seek(0)
    file.write(header(raw))
    fresh.sync()
    with open(fresh.path / MANIFEST, "wb") as manifest:
        manifest.write(raw)
        manifest.flush()
        os.fsync(manifest.fileno())
    sync_folder(fresh.path)


def _put_in_place(fresh: Path, target: Path) -> None:
    """Rename the fresh folder to the target; an old target gets the fresh folder's name."""
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
    sync_folder(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically; return False where the system cannot."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(AttributeError, OSError):
        rename = ctypes.CDLL(None).renameat2
        paths = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
        return bool(rename(*paths, _RENAME_EXCHANGE) == 0)
    return False


def _library() -> str:
    try:
        return version("nearcast")
    except PackageNotFoundError:
        return "unreleased"


def _read_manifest(path: Path) -> bytes:
    try:
        return (path / MANIFEST).read_bytes()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not (path / ARRAYS).exists():
            problem = "has nothing that Nearcast saved; check the path"
            raise StorageError(f"{path}: {problem}") from error
        raise StorageError(
            f"{path / MANIFEST}: cannot be read ({error.strerror}); "
            f"open a folder that Nearcast wrote, or {REBUILD}"
        ) from error


def _read_folder(
    path: Path, raw: bytes, kind: str, verify: bool | Collection[str], mmap: bool
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    manifest = Manifest.parse(raw, str(path / MANIFEST))
    if manifest.kind != kind:
        raise StorageError(
            f"{path}: contains {manifest.kind!r}, expected {kind!r}; open another folder"
        )
    content = _content(path / ARRAYS, manifest.end, mmap)
    if bytes(content[:HEADER_BYTES]) != header(raw):
        raise StorageError(f"{path / ARRAYS}: does not belong to its manifest; {REBUILD}")
    if verify:
        _verify(path / ARRAYS, content, manifest, None if verify is True else verify)
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


def _verify(
    path: Path, content: memoryview, manifest: Manifest, names: Collection[str] | None
) -> None:
    """Compare the checksums of some arrays, or of all."""
    end = HEADER_BYTES
    for entry in manifest.entries:
        padding = content[end : entry.offset]
        end = entry.end
        if names is not None and entry.name not in names:
            continue
        if zlib.crc32(content[entry.offset : entry.end]) != entry.crc32 or any(padding):
            raise StorageError(
                f"{path}: array {entry.name!r} (bytes {entry.offset} to {entry.end}) "
                f"does not match its checksum; {REBUILD}"
            )


def _array(content: memoryview, entry: Entry) -> NDArray[Any]:
    flat = np.frombuffer(content[entry.offset : entry.end], np.uint8)
    if len(flat):
        array = flat.view(entry.dtype).reshape(entry.shape)
    else:
        array = np.empty(entry.shape, entry.dtype)
    array.flags.writeable = False
    return array
