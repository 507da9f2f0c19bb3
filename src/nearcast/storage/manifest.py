"""The manifest of a stored folder: types, offsets and checksums of the arrays in ``arrays.bin``.

A manifest is JSON in one canonical form, so any change to the file is detected. The header of
``arrays.bin`` contains the digest of the manifest, so files of two folders cannot be mixed.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import InvalidInput, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ALIGNMENT",
    "FORMAT",
    "HEADER_BYTES",
    "REBUILD",
    "Entry",
    "Manifest",
    "aligned",
    "dtype_to_json",
    "header",
]

MAGIC = "nearcast"
FORMAT = 1
"""The version of the format; folders of other versions are refused."""

ALIGNMENT = 64
HEADER_BYTES = 64
REBUILD = "build it again, or restore a backup"

_MAX_AXES = 32
_NUMBERS = {np.dtype(t).newbyteorder("<").str for t in "?bBhHiIqQefd"}


def aligned(offset: int) -> int:
    """Round an offset up to the alignment of arrays."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Entry:
    """The place, type and checksum of one array."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    crc32: int

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """The offset of the first byte after the array."""
        return self.offset + self.nbytes

    def to_json(self) -> dict[str, Any]:
        """Return the entry in the form that the manifest has it."""
        return {
            "name": self.name,
            "dtype": dtype_to_json(self.dtype),
            "shape": list(self.shape),
            "offset": self.offset,
            "bytes": self.nbytes,
            "crc32": self.crc32,
        }


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``manifest.json``."""

    kind: str
    library: str
    entries: tuple[Entry, ...]
    meta: Mapping[str, Any]

    @property
    def end(self) -> int:
        """The size of ``arrays.bin``."""
        return self.entries[-1].end if self.entries else HEADER_BYTES

    def render(self) -> bytes:
        """Return the bytes of ``manifest.json``."""
        body = {
            "magic": MAGIC,
            "format": FORMAT,
            "kind": self.kind,
            "library": self.library,
            "arrays": [entry.to_json() for entry in self.entries],
            "meta": self.meta,
        }
        try:
            crc32 = zlib.crc32(json.dumps(body, allow_nan=False).encode())
            return json.dumps({**body, "crc32": crc32}, indent=1).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"must hold JSON values only (text, finite numbers, lists, mappings): {error}"
            raise InvalidInput("meta", self.meta, problem) from None

    @classmethod
    def parse(cls, raw: bytes, where: str) -> Manifest:
        """Parse the bytes of ``manifest.json``; raise `StorageError` for any kind of damage."""
        body = _read_json(raw, where)
        version = body.get("format")
        if version != FORMAT:
            writer = body.get("library")
            raise StorageError(
                f"{where}: format version is {version!r}, this library reads version {FORMAT}; "
                f"read it with the library that wrote it ({writer!r}), or build it again"
            )
        try:
            manifest = _read_body(body)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StorageError(f"{where}: not a valid manifest ({error!r}); {REBUILD}") from None
        if manifest.render() != raw:
            raise StorageError(f"{where}: checksum does not match, the file was changed; {REBUILD}")
        return manifest


def header(raw: bytes) -> bytes:
    """Return the header of ``arrays.bin`` for a manifest of these bytes."""
    version = FORMAT.to_bytes(4, "little")
    digest = hashlib.sha256(raw).digest()
    return (MAGIC.encode() + version + digest).ljust(HEADER_BYTES, b"\0")


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as JSON: a code such as ``<i4``, or the fields of a record."""
    if dtype.names is None:
        code = dtype.newbyteorder("<").str
        if code not in _NUMBERS:
            raise ValueError(f"type {dtype} cannot be stored; use booleans, integers or floats")
        return code
    fields = [(name, *dtype.fields[name][:2]) for name in dtype.names]  # type: ignore[index]
    return {
        "fields": [[n, dtype_to_json(t.base), list(t.shape), offset] for n, t, offset in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def dtype_from_json(value: Any) -> np.dtype[Any]:
    """Return the dtype that `dtype_to_json` wrote."""
    if isinstance(value, str):
        if value not in _NUMBERS:
            raise ValueError(f"unknown type {value!r}")
        return np.dtype(value)
    fields = value["fields"]
    return np.dtype(
        {
            "names": [name for name, _, _, _ in fields],
            "formats": [(dtype_from_json(t), tuple(shape)) for _, t, shape, _ in fields],
            "offsets": [offset for _, _, _, offset in fields],
            "itemsize": value["itemsize"],
        },
        align=value["aligned"],
    )


def _read_json(raw: bytes, where: str) -> dict[str, Any]:
    try:
        body = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or body.get("magic") != MAGIC:
        raise StorageError(f"{where}: not a Nearcast manifest; open another folder, or {REBUILD}")
    return body


def _read_body(body: dict[str, Any]) -> Manifest:
    entries: list[Entry] = []
    end = HEADER_BYTES
    for item in _typed(body["arrays"], list):
        shape = tuple(_natural(length) for length in _typed(item["shape"], list))
        dtype = dtype_from_json(item["dtype"])
        offset = _natural(item["offset"])
        entry = Entry(_typed(item["name"], str), dtype, shape, offset, _natural(item["crc32"]))
        largest = dtype.itemsize * math.prod(length or 1 for length in shape)
        if len(shape) > _MAX_AXES or largest >> 62:
            raise ValueError(f"array {entry.name!r} cannot have the shape {shape}")
        if entry.offset != aligned(end) or entry.nbytes != item["bytes"]:
            raise ValueError(f"array {entry.name!r} has the wrong offset or size")
        entries.append(entry)
        end = entry.end
    if len({entry.name for entry in entries}) != len(entries):
        raise ValueError("two arrays have the same name")
    kind, library = _typed(body["kind"], str), _typed(body["library"], str)
    return Manifest(kind, library, tuple(entries), _typed(body["meta"], dict))


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value


def _natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise TypeError(f"expected a natural number, got {value!r}")
    return value
