"""Places from the columns of a table: boxes, circles and geometries, whole columns at a time.

Subscriptions get `Regions` (one or more boxes a row, and exact shapes), messages one box each. A
row that the arithmetic refuses is shown to the model once more, which words the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import UNITS, WORLD, Regions, Shapes, starts
from nearcast.errors import RegionError
from nearcast.intake.cells import nowhere, plain, read_numbers, valid
from nearcast.intake.circles import circle_boxes
from nearcast.intake.rejects import cell
from nearcast.model import Circle, Point, Rect, region

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.intake.rejects import Faults
    from nearcast.model import Region

__all__ = [
    "BOX",
    "CIRCLE",
    "POINT",
    "Regions",
    "read_message_boxes",
    "read_regions",
    "regions_of",
    "split_meridian",
    "unite_meridian",
]

BOX = ("west", "south", "east", "north")
CIRCLE = ("lon", "lat", "radius_m")
POINT = ("lon", "lat")

_PLACE = "give west, south, east, north; or lon, lat, radius_m; or geometry"
_MESSAGE_PLACE = "give lon, lat; or west, south, east, north"


class _Pieces(NamedTuple):
    """Boxes in any order, and the row of each."""

    row: NDArray[np.int64]
    box: NDArray[np.int32]


class _Form:
    """One way to give a place: columns that must all be given."""

    def __init__(self, table: pa.Table, names: tuple[str, ...], faults: Faults) -> None:
        columns = [read_numbers(table, name, faults) for name in names]
        self.names = names
        self.values = [column.value for column in columns]
        self.each = [column.given for column in columns]
        self.complete = np.logical_and.reduce(self.each)

    def missing(self, row: int) -> list[str]:
        """Return the columns that a row should have given, if it has given another of them."""
        absent = [n for n, given in zip(self.names, self.each, strict=True) if not given[row]]
        return absent if len(absent) < len(self.names) else []

    def of(self, row: int) -> list[float]:
        """Return the values of a row."""
        return [float(value[row]) for value in self.values]


def read_regions(table: pa.Table, faults: Faults) -> Regions:
    """Return the regions of all rows; those of refused rows are empty."""
    boxes, circles = _Form(table, BOX, faults), _Form(table, CIRCLE, faults)
    geometry = plain(table, "geometry")
    drawn = nowhere(table.num_rows) if geometry is None else valid(geometry)
    _one_place([boxes, circles], drawn, faults, _PLACE)
    rectangle = _rectangles(boxes, faults)
    centre = _points(circles, faults)
    radius_m = circles.values[2]
    faults.explain(
        circles.complete & ~((radius_m >= 0.0) & (radius_m < np.inf)),
        "radius_m",
        lambda row: Circle(*circles.of(row)),
        "must be a number of metres, 0 or more",
    )
    polygons = _geometries(table, drawn, faults)
    plainly = np.flatnonzero(boxes.complete & faults.sound)
    around = np.flatnonzero(circles.complete & faults.sound)
    parts = [
        _split(plainly, rectangle[plainly]),
        _Pieces(around[:0], rectangle[:0]),
    ]
    if len(around):
        piece, box = circle_boxes(centre[around], radius_m[around])
        parts[1] = _Pieces(around[piece], box)
    return _join(table.num_rows, parts, (around, centre[around], radius_m[around]), polygons)


def read_message_boxes(table: pa.Table, faults: Faults) -> NDArray[np.int32]:
    """Return the box of every message; those of refused rows mean nothing."""
    boxes, points = _Form(table, BOX, faults), _Form(table, POINT, faults)
    _one_place([points, boxes], nowhere(table.num_rows), faults, _MESSAGE_PLACE)
    place = _points(points, faults)
    box = np.concatenate([place, place], axis=1)
    if boxes.complete.any():
        box = np.where(boxes.complete[:, None], _rectangles(boxes, faults), box)
    return unite_meridian(box)


def regions_of(places: Sequence[Region]) -> Regions:
    """Return regions as arrays.

    Examples
    --------
    >>> regions_of([Rect(170, 0, -170, 1), Circle(0, 0, 5.0)]).box_start.tolist()
    [0, 2, 3]
    """
    boxes = [place.boxes() for place in places]
    rings = [place.rings() for place in places]
    shaped = [number for number, outline in enumerate(rings) if outline is not None]
    shape = np.full(len(places), -1, np.int32)
    shape[shaped] = np.arange(len(shaped))
    outlines = [outline for outline in rings if outline is not None]
    points = [ring for outline in outlines for ring in outline]
    shapes = Shapes(
        np.array([getattr(places[number], "radius_m", -1.0) for number in shaped], np.float64),
        starts(np.array([len(outline) for outline in outlines], np.int64)),
        starts(np.array([len(ring) for ring in points], np.int64)),
        np.concatenate([np.empty((0, 2), np.int32), *points]),
    )
    box = np.array([box for some in boxes for box in some], np.int32).reshape(-1, 4)
    return Regions(starts(np.array([len(b) for b in boxes], np.int64)), box, shape, shapes)


def unite_meridian(box: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return message boxes that touch 180 or -180, one and the same, as boxes that cross it.

    Examples
    --------
    >>> unite_meridian(np.array([[1800000000, 5, 1800000000, 5]], np.int32)).tolist()
    [[1800000000, 5, -1800000000, 5]]
    """
    west, east = box[:, 0], box[:, 2]
    eastern = (east == WORLD[2]) & (west != WORLD[0])
    western = (west == WORLD[0]) & (east != WORLD[2])
    if not (eastern.any() or western.any()):
        return box
    united = box.copy()
    united[eastern, 2] = WORLD[0]
    united[western, 0] = WORLD[2]
    return united


def split_meridian(box: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Cut boxes whose west > east at the antimeridian; return the pieces and the box of each.

    A piece without width says nothing new where the other one has some, and is left out.
    """
    west, east = box[:, 0], box[:, 2]
    crossing = west > east
    row = np.arange(len(box))
    if not crossing.any():
        return row, box
    left = ~crossing | (west < WORLD[2]) | (east == WORLD[0])
    right = crossing & (east > WORLD[0])
    first, second = box[left], box[right]
    first[crossing[left], 2] = WORLD[2]
    second[:, 0] = WORLD[0]
    number = np.concatenate([row[left], row[right]])
    order = np.argsort(number, kind="stable")
    return number[order], np.concatenate([first, second])[order]


def _one_place(forms: list[_Form], other: NDArray[np.bool_], faults: Faults, wanted: str) -> None:
    """Refuse the rows that give no place, or more than one."""
    complete = np.sum([form.complete for form in forms] + [other], axis=0)

    def no_place(row: int) -> None:
        for form in forms:
            for name in form.missing(row):
                raise RegionError(name, None, f"is missing; {wanted}")
        raise RegionError("place", None, f"is missing; {wanted}")

    faults.explain(complete == 0, "place", no_place, f"is missing; {wanted}")
    faults.add(complete > 1, "place", f"is given twice; {wanted}, and only one of them")


def _units(degrees: NDArray[np.float64], limit: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return degrees in units (0 where they are wrong), and where they are right."""
    right = np.abs(degrees) <= limit
    held = degrees if right.all() else np.where(right, degrees, 0.0)
    return np.rint(held * UNITS).astype(np.int32), right


def _rectangles(form: _Form, faults: Faults) -> NDArray[np.int32]:
    west, south, east, north = form.values
    limits = ((west, 180), (south, 90), (east, 180), (north, 90))
    converted = [_units(value, limit) for value, limit in limits]
    box = np.stack([units for units, _ in converted], axis=1)
    right = np.logical_and.reduce([right for _, right in converted]) & (box[:, 1] <= box[:, 3])
    wrong = form.complete & ~right
    faults.explain(wrong, "west", lambda row: Rect(*form.of(row)), "is no rectangle")
    return box


def _points(form: _Form, faults: Faults) -> NDArray[np.int32]:
    lon, right_lon = _units(form.values[0], 180)
    lat, right_lat = _units(form.values[1], 90)
    wrong = form.complete & ~(right_lon & right_lat)
    faults.explain(wrong, "lon", lambda row: Point(*form.of(row)[:2]), "is no place")
    return np.stack([lon, lat], axis=1)


def _geometries(
    table: pa.Table, drawn: NDArray[np.bool_], faults: Faults
) -> tuple[NDArray[np.int64], Regions]:
    """Return the rows that have a geometry, and their regions."""
    rows, regions = [], []
    for row in np.flatnonzero(drawn & faults.sound).tolist():
        value = cell(table, "geometry", row)
        try:
            regions.append(region(value))
            rows.append(row)
        except RegionError as error:
            faults.refuse(row, error, "geometry")
    return np.array(rows, np.int64), regions_of(regions)


def _split(row: NDArray[np.int64], box: NDArray[np.int32]) -> _Pieces:
    piece, pieces = split_meridian(box)
    return _Pieces(row[piece], pieces)


def _join(
    count: int,
    parts: list[_Pieces],
    circles: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]],
    polygons: tuple[NDArray[np.int64], Regions],
) -> Regions:
    """Put the pieces of all rows into the order of their rows."""
    around, centre, radius_m = circles
    drawn, regions = polygons
    of_drawn = _Pieces(np.repeat(drawn, np.diff(regions.box_start)), regions.box)
    row = np.concatenate([part.row for part in [*parts, of_drawn]])
    box = np.concatenate([part.box for part in [*parts, of_drawn]])
    if (row[1:] < row[:-1]).any():
        order = np.argsort(row, kind="stable")
        row, box = row[order], box[order]
    shape = np.full(count, -1, np.int32)
    shape[around] = np.arange(len(around))
    shape[drawn] = np.where(regions.shape >= 0, regions.shape + len(around), -1)
    one_each = np.arange(len(around) + 1)
    shapes = Shapes.concatenate([Shapes(radius_m, one_each, one_each, centre), regions.shapes])
    return Regions(starts(np.bincount(row, minlength=count)), box, shape, shapes)
