"""Values inside of nested Arrow columns: fields of structs, elements of lists, keys of maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import UnsupportedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nearcast.intake.names import Step

__all__ = ["follow", "nested_type"]


def follow(column: pa.ChunkedArray, path: tuple[Step, ...]) -> pa.ChunkedArray:
    """Return the values at the end of a path in each row; null where it leads nowhere.

    Examples
    --------
    >>> column = pa.chunked_array([[{"at": [13.4, 52.5]}, {"at": []}, None]])
    >>> follow(column, ("at", 0)).to_pylist()
    [13.4, None, None]
    """
    for step in path:
        column = _step(column, step)
    return column


def nested_type(
    paths: Mapping[str, tuple[Step, ...]],
    example: Any,
    leaf: Callable[[str, object], pa.DataType],
) -> pa.DataType:
    """Return the type of a column of JSON in which our columns are at the end of these paths.

    ``leaf`` returns the type of one of our columns, given an example.
    """
    for ours, path in paths.items():
        if not path:
            return leaf(ours, example)
    step = next(iter(paths.values()))[0]
    if isinstance(step, int):
        ours = next(iter(paths))
        inside = {ours: paths[ours][1:]}
        item = example[0] if isinstance(example, list) and example else None
        return pa.list_(nested_type(inside, item, leaf))
    fields = {}
    for name in dict.fromkeys(str(path[0]) for path in paths.values()):
        inside = {ours: path[1:] for ours, path in paths.items() if path[0] == name}
        value = example.get(name) if isinstance(example, dict) else None
        fields[name] = nested_type(inside, value, leaf)
    return pa.struct(list(fields.items()))


def _step(column: pa.ChunkedArray, step: Step) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_map(kind) and isinstance(step, str):
        return pc.map_lookup(column, pa.scalar(step, kind.key_type), "first")
    if isinstance(step, str):
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            raise UnsupportedFile(f"there is no field {step!r} in the column of type {kind}")
        return pc.struct_field(column, step)
    if not (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ):
        raise UnsupportedFile(f"there is no element [{step}] in the column of type {kind}")
    # Padded with null, because an element beyond the end would be an error.
    one = pc.list_slice(column, step, step + 1, return_fixed_size_list=True)
    return pc.list_element(one, 0)
