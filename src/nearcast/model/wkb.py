"""A reader of well-known binary: points, polygons and multipolygons, ISO and extended.

Shapely reads WKB too, but nested collections in damaged or hostile bytes overflow its stack. This
reader does not recurse and never allocates more than the size of its input.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from nearcast.errors import RegionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_wkb"]

_NAMES = dict(
    enumerate(
        [
            "Geometry", "Point", "LineString", "Polygon", "MultiPoint", "MultiLineString",
            "MultiPolygon", "GeometryCollection", "CircularString", "CompoundCurve",
            "CurvePolygon", "MultiCurve", "MultiSurface", "Curve", "Surface",
            "PolyhedralSurface", "TIN", "Triangle",
        ]
    )
)  # fmt: skip
_Z, _M, _SRID = 0x80000000, 0x40000000, 0x20000000
_LONGITUDE_LATITUDE = (0, 4326)


class _Header(NamedTuple):
    name: str
    order: str
    dimensions: int


def read_wkb(data: bytes) -> tuple[float, float] | list[list[NDArray[np.float64]]]:
    """Return the place of a point, or the parts of a polygon: rings of lon, lat.

    Examples
    --------
    >>> read_wkb(bytes.fromhex("0101000000000000000000f03f0000000000000040"))
    (1.0, 2.0)
    """
    reader = _Reader(data)
    header = reader.header()
    if header.name == "Point":
        (place,) = reader.points(header, 1).tolist()
        result: tuple[float, float] | list[list[NDArray[np.float64]]] = (place[0], place[1])
    elif header.name == "Polygon":
        result = [reader.rings(header)]
    elif header.name == "MultiPolygon":
        result = [reader.part() for _ in range(reader.count(header))]
    else:
        problem = f"a {header.name} is not a region; give a Polygon, MultiPolygon or Point"
        raise RegionError("geometry", data, problem)
    reader.finish()
    return result


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def header(self) -> _Header:
        order = {0: ">", 1: "<"}.get(self._take(1)[0])
        if order is None:
            self._fail("must begin with the byte order, 0 or 1")
        (code,) = struct.unpack(order + "I", self._take(4))
        if code & _SRID:
            self._check_srid(*struct.unpack(order + "I", self._take(4)))
        variant, kind = divmod(code & ~(_Z | _M | _SRID), 1000)
        if kind not in _NAMES or variant > 3:
            self._fail(f"has the unknown geometry type {code}")
        has_z = bool(code & _Z) or variant in (1, 3)
        has_m = bool(code & _M) or variant in (2, 3)
        return _Header(_NAMES[kind], order, 2 + has_z + has_m)

    def count(self, header: _Header) -> int:
        (number,) = struct.unpack(header.order + "I", self._take(4))
        return int(number)

    def points(self, header: _Header, number: int) -> NDArray[np.float64]:
        taken = self._take(8 * header.dimensions * number)
        values = np.frombuffer(taken, header.order + "f8").astype(np.float64)
        return values.reshape(number, header.dimensions)[:, :2]

    def rings(self, header: _Header) -> list[NDArray[np.float64]]:
        number = self.count(header)
        return [self.points(header, self.count(header)) for _ in range(number)]

    def part(self) -> list[NDArray[np.float64]]:
        header = self.header()
        if header.name != "Polygon":
            self._fail(f"contains a {header.name} inside a MultiPolygon")
        return self.rings(header)

    def finish(self) -> None:
        if self._at != len(self._data):
            self._fail(f"has {len(self._data) - self._at} bytes after its end")

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            self._fail(f"ends early: {size} bytes expected at byte {self._at}")
        self._at += size
        return taken

    def _check_srid(self, srid: int) -> None:
        if srid not in _LONGITUDE_LATITUDE:
            self._fail(f"has SRID {srid}; convert it to longitude and latitude (SRID 4326)")

    def _fail(self, problem: str) -> NoReturn:
        raise RegionError("geometry", self._data, f"well-known binary {problem}")
