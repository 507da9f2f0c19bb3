"""Places from the columns of a table: boxes, circles and geometries, by whole columns.

Subscriptions get `Regions` (one or more boxes per row, and exact shapes), messages get one box
each. Rows with invalid numbers are passed to the constructors of the model for the reason.
"""

from __future__ import annotations

from itertools import accumulate, chain, count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import BOOLEAN, PROXIMITY, UNITS, WORLD, Regions, Shapes, starts
from nearcast.errors import RegionError
from nearcast.intake.arrow_columns import column_array, no_rows, not_null, read_numbers
from nearcast.intake.point_geometries import read_point_geometries
from nearcast.intake.rejects import cell_value
from nearcast.model import Circle, Point, Rect, region
from nearcast.model.checks import reading_stored
from nearcast.model.circles import circle_boxes
from nearcast.model.json_form import (
    BOX,
    CIRCLE,
    MESSAGE_PLACE,
    POINT,
    PROXIMITY_PLACE,
    RADIUS_OF_GEOMETRY,
    RADIUS_PROBLEM,
    SUBSCRIPTION_PLACE,
)
from nearcast.model.regions import NO_REACH

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.intake.rejects import RowErrors
    from nearcast.model import Region
    from nearcast.model.circles import Box

__all__ = [
    "BOX",
    "CIRCLE",
    "POINT",
    "Regions",
    "read_message_boxes",
    "read_regions",
    "region_lists",
    "regions_of",
    "split_meridian",
    "unite_meridian",
]


_NO_SHAPES = Shapes.empty()


class _Pieces(NamedTuple):
    """Boxes in any order, and the row of each."""

    row: NDArray[np.int64]
    box: NDArray[np.int32]


class _Circles(NamedTuple):
    """Circles, and the row of each."""

    row: NDArray[np.int64]
    center: NDArray[np.int32]
    radius_m: NDArray[np.float64]


class _PlaceColumns:
    """Columns that describe a place together, such as lon and lat."""

    def __init__(self, table: pa.Table, names: tuple[str, ...], errors: RowErrors) -> None:
        columns = [read_numbers(table, name, errors) for name in names]
        self.names = names
        self.values = [column.value for column in columns]
        self.each = [column.given for column in columns]
        self.complete = np.logical_and.reduce(self.each)

    def missing(self, row: int) -> list[str]:
        """Return the columns that are null in a row in which others of them are given."""
        absent = [n for n, given in zip(self.names, self.each, strict=True) if not given[row]]
        return absent if len(absent) < len(self.names) else []

    def of(self, row: int) -> list[float]:
        """Return the values of a row."""
        return [float(value[row]) for value in self.values]

    def leave_out(self, rows: NDArray[np.bool_]) -> None:
        """Treat the columns as null in these rows."""
        self.each = [given & ~rows for given in self.each]
        self.complete = self.complete & ~rows


def read_regions(
    table: pa.Table,
    errors: RowErrors,
    kind: NDArray[np.uint8] | None = None,
) -> Regions:
    """Return the regions of all rows; those of rejected rows are empty.

    Given the ``kind`` of the subscription of each row, those that are ranked by distance must have
    a point, and no radius; those that are boolean may not have a point.
    """
    boxes, circles = _PlaceColumns(table, BOX, errors), _PlaceColumns(table, CIRCLE, errors)
    geometry = column_array(table, "geometry")
    drawn = no_rows(table.num_rows) if geometry is None else not_null(geometry)
    parts = []
    placed = no_rows(table.num_rows) if kind is None else kind == PROXIMITY
    if placed.any():
        parts.append(_read_points(circles, boxes, drawn, placed, errors))
        boxes.leave_out(placed)
        circles.leave_out(placed)
    only_radius = circles.each[2] & ~circles.complete
    errors.add(drawn & only_radius & ~placed, "radius_m", RADIUS_OF_GEOMETRY)
    _one_place([boxes, circles], drawn, errors, SUBSCRIPTION_PLACE, placed)
    rectangle = _rectangles(boxes, errors)
    center = _points(circles, errors)
    radius_m = circles.values[2]
    errors.add_checked(
        circles.complete & ~((radius_m >= 0.0) & (radius_m < np.inf)),
        "radius_m",
        lambda row: Circle(*circles.of(row)),
        "must be a number of meters, 0 or more",
    )
    boolean = no_rows(table.num_rows)
    if kind is not None and not reading_stored():
        boolean = kind == BOOLEAN
    polygons = _geometries(table, drawn, errors, placed, boolean)
    with_box = np.flatnonzero(boxes.complete & errors.valid)
    with_circle = np.flatnonzero(circles.complete & errors.valid)
    parts.append(_split(with_box, rectangle[with_box]))
    if len(with_circle):
        piece, box = circle_boxes(center[with_circle], radius_m[with_circle])
        parts.append(_Pieces(with_circle[piece], box))
    found = _Circles(with_circle, center[with_circle], radius_m[with_circle])
    return _join(table.num_rows, parts, found, polygons)


def read_message_boxes(table: pa.Table, errors: RowErrors) -> NDArray[np.int32]:
    """Return the box of every message; those of rejected rows are undefined."""
    boxes, points = _PlaceColumns(table, BOX, errors), _PlaceColumns(table, POINT, errors)
    geometry = column_array(table, "geometry")
    drawn = no_rows(table.num_rows)
    if geometry is not None:  # only read where no other place is given
        drawn = not_null(geometry) & ~points.complete & ~boxes.complete
    _one_place([points, boxes], drawn, errors, MESSAGE_PLACE)
    place = _points(points, errors)
    box = np.concatenate([place, place], axis=1)
    if boxes.complete.any():
        box = np.where(boxes.complete[:, None], _rectangles(boxes, errors), box)
    if drawn.any():
        rows = np.flatnonzero(drawn & errors.valid)
        box[rows] = read_point_geometries(table, rows, errors)
    return unite_meridian(box)


def regions_of(places: Sequence[Region]) -> Regions:
    """Return regions as arrays.

    Examples
    --------
    >>> regions_of([Rect(170, 0, -170, 1), Circle(0, 0, 5.0)]).box_start.tolist()
    [0, 2, 3]
    """
    boxes, shape, shapes = region_lists(places)
    return Regions(
        np.array([0, *accumulate(map(len, boxes))]),
        np.array(list(chain.from_iterable(boxes)), np.int32).reshape(-1, 4),
        np.array(shape, np.int32),
        shapes,
    )


def region_lists(places: Sequence[Region]) -> tuple[list[list[Box]], list[int], Shapes]:
    """Return the boxes of each region, its shape or -1, and all shapes."""
    boxes = [place.boxes() for place in places]
    rings = [place.rings() for place in places]
    if all(outline is None for outline in rings):
        return boxes, [-1] * len(places), _NO_SHAPES
    number = count()
    shape = [-1 if outline is None else next(number) for outline in rings]
    outlines = [outline for outline in rings if outline is not None]
    points = [ring for outline in outlines for ring in outline]
    radius_m = [
        getattr(place, "radius_m", -1.0)
        for place, outline in zip(places, rings, strict=True)
        if outline is not None
    ]
    shapes = Shapes(
        np.array(radius_m, np.float64),
        starts(np.array([len(outline) for outline in outlines], np.int64)),
        starts(np.array([len(ring) for ring in points], np.int64)),
        np.concatenate(points),
    )
    return boxes, shape, shapes


def unite_meridian(box: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return message boxes in which those that touch the meridian 180 or -180 cross it.

    180 and -180 are the same meridian.

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
    """Cut boxes with west > east at the antimeridian; return the box of each piece, and the pieces.

    A piece without width is left out if the other piece has some.
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


def _read_points(
    circles: _PlaceColumns,
    boxes: _PlaceColumns,
    drawn: NDArray[np.bool_],
    rows: NDArray[np.bool_],
    errors: RowErrors,
) -> _Pieces:
    """Return the points of rows that are ranked by distance and have no geometry."""
    lon, lat, radius_m = circles.each
    errors.add(rows & radius_m, "radius_m", RADIUS_PROBLEM)
    given = (lon & lat).astype(np.int64) + drawn
    several = (given > 1) | np.logical_or.reduce(boxes.each)
    errors.add(rows & several, "place", f"is given twice; {PROXIMITY_PLACE}, and only that")
    for missing, name in ((~lon & lat, "lon"), (lon & ~lat, "lat"), (given == 0, "place")):
        errors.add(rows & missing & (given == 0), name, f"is missing; {PROXIMITY_PLACE}")
    x, x_in_range = _units(circles.values[0], 180)
    y, y_in_range = _units(circles.values[1], 90)
    wrong = rows & lon & lat & ~(x_in_range & y_in_range)
    errors.add_checked(wrong, "lon", lambda row: Point(*circles.of(row)[:2]), "is not a place")
    chosen = np.flatnonzero(rows & lon & lat & errors.valid)
    point = np.stack([x, y], axis=1)[chosen]
    return _Pieces(chosen, np.concatenate([point, point], axis=1))


def _one_place(
    forms: list[_PlaceColumns],
    other: NDArray[np.bool_],
    errors: RowErrors,
    wanted: str,
    placed: NDArray[np.bool_] | None = None,
) -> None:
    """Reject the rows without a place, or with more than one, unless they are placed already."""
    complete = np.sum([form.complete for form in forms] + [other], axis=0)
    if placed is not None:
        complete[placed] = 1

    def no_place(row: int) -> None:
        for form in forms:
            for name in form.missing(row):
                raise RegionError(name, None, f"is missing; {wanted}")
        raise RegionError("place", None, f"is missing; {wanted}")

    errors.add_checked(complete == 0, "place", no_place, f"is missing; {wanted}")
    errors.add(complete > 1, "place", f"is given twice; {wanted}, and only one of them")


def _units(degrees: NDArray[np.float64], limit: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return degrees in units (0 if out of range), and a mask of those in range."""
    in_range = np.abs(degrees) <= limit
    clean = degrees if in_range.all() else np.where(in_range, degrees, 0.0)
    return np.rint(clean * UNITS).astype(np.int32), in_range


def _rectangles(form: _PlaceColumns, errors: RowErrors) -> NDArray[np.int32]:
    west, south, east, north = form.values
    limits = ((west, 180), (south, 90), (east, 180), (north, 90))
    converted = [_units(value, limit) for value, limit in limits]
    box = np.stack([units for units, _ in converted], axis=1)
    in_range = np.logical_and.reduce([mask for _, mask in converted])
    wrong = form.complete & ~(in_range & (box[:, 1] <= box[:, 3]))
    errors.add_checked(wrong, "west", lambda row: Rect(*form.of(row)), "is not a rectangle")
    return box


def _points(form: _PlaceColumns, errors: RowErrors) -> NDArray[np.int32]:
    lon, lon_in_range = _units(form.values[0], 180)
    lat, lat_in_range = _units(form.values[1], 90)
    wrong = form.complete & ~(lon_in_range & lat_in_range)
    errors.add_checked(wrong, "lon", lambda row: Point(*form.of(row)[:2]), "is not a place")
    return np.stack([lon, lat], axis=1)


def _geometries(
    table: pa.Table,
    drawn: NDArray[np.bool_],
    errors: RowErrors,
    points: NDArray[np.bool_],
    no_points: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], Regions]:
    """Return the rows that have a geometry, and their regions.

    Those of ``points`` must be points, and those of ``no_points`` may not be.
    """
    rows, regions = [], []
    for row in np.flatnonzero(drawn & errors.valid).tolist():
        value = cell_value(table, "geometry", row)
        try:
            found = region(value)
            if points[row] and not isinstance(found, Point):
                problem = "must be a point; max_distance_m says how far"
                raise RegionError("geometry", value, problem)
            if no_points[row] and isinstance(found, Point):
                raise RegionError("geometry", value, NO_REACH)
            regions.append(found)
            rows.append(row)
        except RegionError as error:
            errors.add_error(row, error, "geometry")
    return np.array(rows, np.int64), regions_of(regions)


def _split(row: NDArray[np.int64], box: NDArray[np.int32]) -> _Pieces:
    piece, pieces = split_meridian(box)
    return _Pieces(row[piece], pieces)


def _join(
    count: int,
    parts: list[_Pieces],
    circles: _Circles,
    polygons: tuple[NDArray[np.int64], Regions],
) -> Regions:
    """Return the regions of all rows from their pieces."""
    drawn, regions = polygons
    of_drawn = _Pieces(np.repeat(drawn, np.diff(regions.box_start)), regions.box)
    row = np.concatenate([part.row for part in [*parts, of_drawn]])
    box = np.concatenate([part.box for part in [*parts, of_drawn]])
    if (row[1:] < row[:-1]).any():
        order = np.argsort(row, kind="stable")
        row, box = row[order], box[order]
    shape = np.full(count, -1, np.int32)
    shape[circles.row] = np.arange(len(circles.row))
    shape[drawn] = np.where(regions.shape >= 0, regions.shape + len(circles.row), -1)
    one_each = np.arange(len(circles.row) + 1)
    round_shapes = Shapes(circles.radius_m, one_each, one_each, circles.center)
    shapes = Shapes.concatenate([round_shapes, regions.shapes])
    return Regions(starts(np.bincount(row, minlength=count)), box, shape, shapes)
