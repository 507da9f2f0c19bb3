"""A folder on any file system: the local disk, or whatever PyArrow or fsspec can open.

On the local disk, stored arrays are written and memory-mapped in place. From other file systems, a
stored folder is copied once into a cache on the local disk and mapped there: it never changes, and
the cache names it by its digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.compiled.cache import cache_folder
from nearcast.errors import StorageError
from nearcast.storage import write_arrays
from nearcast.storage.temporary import TemporaryFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["Folder", "open_folder"]

MANIFEST = "manifest.json"
ARRAYS = "arrays.bin"


class Folder(ABC):
    """A folder of small files and stored folders; names are paths with slashes."""

    uri: str

    @abstractmethod
    def names(self, name: str = "") -> list[str]:
        """Return the sorted names in a folder; none if it does not exist."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Write a file in one step; raise `FileExistsError` if it exists."""

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Write a file in one step, replacing it if it exists."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""

    @abstractmethod
    def fetch(self, name: str, digest: str) -> Path:
        """Return the path on the local disk of a stored folder whose manifest has this digest."""

    def forget(self, digest: str) -> bool:
        """Remove the copy that `fetch` made; return whether `fetch` makes copies."""
        return False

    @abstractmethod
    def write_arrays(
        self, name: str, kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
    ) -> tuple[str, int]:
        """Write a stored folder; return the digest of its manifest and its size in bytes."""

    @abstractmethod
    def write_with(self, name: str, write: Callable[[Path], None]) -> tuple[str, int]:
        """Write a stored folder by a function that is given its path on the local disk."""

    @property
    @abstractmethod
    def local(self) -> Path | None:
        """The path of the folder on the local disk, None if it is elsewhere."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open_folder, (self.uri,)


def open_folder(uri: str | os.PathLike[str]) -> Folder:
    """Return a folder by its path or URI; it need not exist.

    Examples
    --------
    >>> folder = open_folder(tempfile.mkdtemp())
    >>> folder.create("versions/1.json", b"{}")
    >>> folder.names(), folder.names("versions")
    (['versions'], ['1.json'])
    """
    text = re.sub(r"^file:(//(?=/))?", "", os.fspath(uri))  # Hadoop writes file:/folder as well
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text):
        return _LocalFolder(Path(os.path.abspath(text)))
    return _RemoteFolder(text.rstrip("/"))


def digest_of(folder: Path) -> str:
    """Return the digest of a stored folder: that of its manifest, which has all others."""
    return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()


def _copy(digest: str) -> Path:
    """Return the path of the local copy of a stored folder of another file system."""
    return cache_folder("stored") / digest


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _check(folder: Path, digest: str) -> Path:
    try:
        found = digest_of(folder)
    except OSError as error:
        raise StorageError(
            f"{folder}: is missing or cannot be read ({error.strerror}); restore a backup, or "
            "build it again"
        ) from error
    if found != digest:
        raise StorageError(
            f"{folder}: does not match its checksum; restore a backup, or build it again"
        )
    return folder


def _link(part: Path, path: Path) -> None:
    """Give a complete file its name; unlike a rename, a link fails if the name is taken."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: check first, then rename
        if path.exists():
            raise FileExistsError(str(path)) from None
        os.rename(part, path)


class _LocalFolder(Folder):
    """A folder on the local disk, or one that is mounted there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.uri = str(path)

    @property
    def local(self) -> Path:
        return self._path

    def names(self, name: str = "") -> list[str]:
        try:
            return sorted(os.listdir(self._path / name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"{self._path / name}: {error.strerror}; check the path") from error

    def read(self, name: str) -> bytes:
        try:
            return (self._path / name).read_bytes()
        except OSError as error:
            raise StorageError(f"{self._path / name}: {error.strerror}") from error

    def create(self, name: str, content: bytes) -> None:
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        try:
            with open(part, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _link(part, path)
        finally:
            part.unlink(missing_ok=True)

    def put(self, name: str, content: bytes) -> None:
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(path) as temporary:
            temporary.path.write_bytes(content)
            temporary.publish()

    def remove(self, name: str) -> None:
        path = self._path / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def fetch(self, name: str, digest: str) -> Path:
        return _check(self._path / name, digest)

    def write_arrays(
        self, name: str, kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
    ) -> tuple[str, int]:
        return self.write_with(name, lambda path: write_arrays(path, kind, arrays, meta))

    def write_with(self, name: str, write: Callable[[Path], None]) -> tuple[str, int]:
        path = self._path / name
        write(path)
        return digest_of(path), _size(path)


class _RemoteFolder(Folder):
    """A folder on another file system."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._fs, self._root = _file_system(uri)

    @property
    def local(self) -> None:
        return None

    def names(self, name: str = "") -> list[str]:
        from pyarrow.fs import FileSelector

        found = self._fs.get_file_info(FileSelector(self._at(name), allow_not_found=True))
        return sorted(info.base_name for info in found)

    def read(self, name: str) -> bytes:
        try:
            with self._fs.open_input_stream(self._at(name)) as file:
                return bytes(file.read())
        except OSError as error:
            raise StorageError(f"{self.uri}/{name}: {error}") from error

    def create(self, name: str, content: bytes) -> None:
        # Object stores show a file when it is complete. PyArrow has no exclusive creation for them,
        # so users must make sure that there is one writer at a time.
        if self._exists(name):
            raise FileExistsError(f"{self.uri}/{name}")
        self.put(name, content)

    def put(self, name: str, content: bytes) -> None:
        self._fs.create_dir(self._at(name).rpartition("/")[0], recursive=True)
        part = f"{name}.{secrets.token_hex(6)}.part"
        with self._fs.open_output_stream(self._at(part)) as file:
            file.write(content)
        self._fs.move(self._at(part), self._at(name))

    def remove(self, name: str) -> None:
        from pyarrow.fs import FileType

        [info] = self._fs.get_file_info([self._at(name)])
        if info.type == FileType.Directory:
            self._fs.delete_dir(info.path)
        elif info.type == FileType.File:
            self._fs.delete_file(info.path)

    def fetch(self, name: str, digest: str) -> Path:
        target = _copy(digest)
        try:
            # Something that cleans up caches may have removed or truncated a file.
            if (target / ARRAYS).exists():
                return _check(target, digest)
        except StorageError:
            pass
        self.forget(digest)
        self._download(name, target, digest)
        return _check(target, digest)

    def forget(self, digest: str) -> bool:
        shutil.rmtree(_copy(digest), ignore_errors=True)
        return True

    def write_arrays(
        self, name: str, kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
    ) -> tuple[str, int]:
        return self.write_with(name, lambda path: write_arrays(path, kind, arrays, meta))

    def write_with(self, name: str, write: Callable[[Path], None]) -> tuple[str, int]:
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary, "stored")
            write(path)
            self._fs.create_dir(self._at(name), recursive=True)
            for file in path.iterdir():
                with (
                    open(file, "rb") as source,
                    self._fs.open_output_stream(self._at(f"{name}/{file.name}")) as out,
                ):
                    shutil.copyfileobj(source, out, 1 << 24)
            return digest_of(path), _size(path)

    def _download(self, name: str, target: Path, digest: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=target.parent))
        try:
            for file in self.names(name):
                with (
                    self._fs.open_input_stream(self._at(f"{name}/{file}")) as source,
                    open(fresh / file, "wb") as out,
                ):
                    shutil.copyfileobj(source, out, 1 << 24)
            if not (fresh / MANIFEST).exists() or digest_of(fresh) != digest:
                raise StorageError(
                    f"{self.uri}/{name}: is missing or does not match its checksum; restore a "
                    "backup, or build it again"
                )
            os.rename(fresh, target)
        except StorageError:
            raise
        except OSError as error:
            if not target.exists():  # another process may have been faster
                raise StorageError(f"{self.uri}/{name}: cannot be copied ({error})") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else str(self._root)

    def _exists(self, name: str) -> bool:
        from pyarrow.fs import FileType

        [info] = self._fs.get_file_info([self._at(name)])
        return bool(info.type != FileType.NotFound)


def _file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, from PyArrow or fsspec, and the path on it."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        found, path = FileSystem.from_uri(uri)
        return found, path.rstrip("/")
    except (ArrowException, OSError) as error:
        reason = str(error)
    try:
        import fsspec

        found, path = fsspec.core.url_to_fs(uri)
    except ImportError:
        raise StorageError(
            f"{uri}: {reason}; install fsspec and its driver for this file system"
        ) from None
    except (ValueError, OSError) as error:
        raise StorageError(f"{uri}: cannot open this file system ({error})") from error
    return PyFileSystem(FSSpecHandler(found)), str(path).rstrip("/")
