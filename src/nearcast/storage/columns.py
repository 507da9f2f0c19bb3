"""Convert subscriptions, messages and ids to named arrays, and back without copying.

Names are nested with dots: ``ids.number``, ``clauses.shapes.point``. Kernels do not check bounds,
so arrays that come from a disk are checked here: starts ascend and end where their content ends,
rows and shapes exist, text is UTF-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import (
    KINDS,
    SHARE_UNITS,
    Clauses,
    Ids,
    Messages,
    Ranked,
    Rankings,
    Scoring,
    Shapes,
    Subscriptions,
)
from nearcast.errors import InvalidInput, StorageError
from nearcast.storage.manifest import REBUILD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

__all__ = [
    "clauses_from_arrays",
    "clauses_to_arrays",
    "content_from_arrays",
    "content_to_arrays",
    "holds_ranked",
    "ids_from_arrays",
    "ids_to_arrays",
    "messages_from_arrays",
    "messages_to_arrays",
    "nested",
    "prefixed",
    "strings_from_arrays",
    "strings_to_arrays",
    "subscriptions_from_arrays",
    "subscriptions_to_arrays",
]

_Layout = dict[str, tuple[type, int]]

# For each array its type, and the length of its second axis (0: it has none).
_CLAUSES: _Layout = {
    "token_start": (np.int64, 0),
    "token": (np.int32, 0),
    "negative_start": (np.int64, 0),
    "negative": (np.int32, 0),
    "box": (np.int32, 4),
    "row": (np.int32, 0),
    "shape": (np.int32, 0),
}
_SHAPES: _Layout = {
    "radius_m": (np.float64, 0),
    "ring_start": (np.int64, 0),
    "point_start": (np.int64, 0),
    "point": (np.int32, 2),
}
_RANKINGS: _Layout = {
    "kind": (np.uint8, 0),
    "text_share": (np.int32, 0),
    "threshold": (np.int32, 0),
    "max_distance_cm": (np.uint32, 0),
}
_MESSAGES: _Layout = {
    "token_start": (np.int64, 0),
    "token": (np.int32, 0),
    "box": (np.int32, 4),
    "time_us": (np.int64, 0),
    "ttl_us": (np.int64, 0),
}


def prefixed(name: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays with ``name.`` prepended to their names.

    Examples
    --------
    >>> list(prefixed("ids", {"number": np.arange(3)}))
    ['ids.number']
    """
    return {f"{name}.{key}": array for key, array in arrays.items()}


def nested(name: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names start with ``name.``, without that prefix.

    Examples
    --------
    >>> list(nested("ids", {"ids.number": np.arange(3), "token": np.arange(2)}))
    ['number']
    """
    head = f"{name}."
    return {key.removeprefix(head): a for key, a in arrays.items() if key.startswith(head)}


def strings_to_arrays(strings: pa.StringArray) -> dict[str, NDArray[Any]]:
    """Return a string column as its bytes, their start and, if there are nulls, a bitmap.

    Examples
    --------
    >>> {k: v.tolist() for k, v in strings_to_arrays(pa.array(["a", None, "bc"])).items()}
    {'text_start': [0, 1, 1, 3], 'text': [97, 98, 99], 'text_valid': [5]}
    """
    count = len(strings)
    _, offsets, content = strings.buffers()
    start = np.zeros(1, np.int32)
    if count:
        start = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + count + 1]
    text = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    arrays: dict[str, NDArray[Any]] = {
        "text_start": start - start[0],
        "text": text[start[0] : start[-1]],
    }
    if strings.null_count:
        valid = pc.is_valid(strings).to_numpy(zero_copy_only=False)
        arrays["text_valid"] = np.packbits(valid, bitorder="little")
    return arrays


def strings_from_arrays(arrays: Arrays) -> pa.StringArray:
    """Return the string column that `strings_to_arrays` converted.

    Examples
    --------
    >>> strings_from_arrays(strings_to_arrays(pa.array(["a", None, "bc"]))).to_pylist()
    ['a', None, 'bc']
    """
    start, text = _one(arrays, "text_start", np.int32), _one(arrays, "text", np.uint8)
    count = len(start) - 1
    _check_start("text_start", start, len(text))
    valid = None
    if "text_valid" in arrays:
        bits = _one(arrays, "text_valid", np.uint8)
        _require(len(bits) == -(-count // 8), "text_valid", "must have one bit per string")
        valid = pa.py_buffer(bits)
    strings = pa.StringArray.from_buffers(count, pa.py_buffer(start), pa.py_buffer(text), valid)
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _damaged("text", f"is not UTF-8 ({error})") from None
    return strings


def ids_to_arrays(ids: Ids) -> dict[str, NDArray[Any]]:
    """Return ids as named arrays."""
    text = {} if ids.text is None else strings_to_arrays(ids.text)
    return {"number": ids.number, **text}


def ids_from_arrays(arrays: Arrays) -> Ids:
    """Return the ids that `ids_to_arrays` converted.

    Examples
    --------
    >>> ids_from_arrays(ids_to_arrays(Ids.of(["a", 7]))).tolist()
    ['a', 7]
    """
    number = _one(arrays, "number", np.int64)
    if "text_start" not in arrays:
        return Ids(number)
    text = strings_from_arrays(arrays)
    _require(len(text) == len(number), "text_start", "must have one string per id")
    return Ids(number, text)


def clauses_to_arrays(clauses: Clauses) -> dict[str, NDArray[Any]]:
    """Return clauses, their shapes included, as named arrays."""
    own = {name: getattr(clauses, name) for name in _CLAUSES}
    shapes = {name: getattr(clauses.shapes, name) for name in _SHAPES}
    count = np.array([clauses.subscriptions], np.int64)
    return {**own, **prefixed("shapes", shapes), "subscriptions": count}


def clauses_from_arrays(arrays: Arrays) -> Clauses:
    """Return the clauses that `clauses_to_arrays` converted.

    Examples
    --------
    >>> clauses = Clauses.of([[1, 2]], [[0, 0, 5, 5]])
    >>> clauses_from_arrays(clauses_to_arrays(clauses)).token.tolist()
    [1, 2]
    """
    shapes = _shapes(nested("shapes", arrays))
    count = _one(arrays, "subscriptions", np.int64)
    _require(count.shape == (1,), "subscriptions", "must be one number")
    try:
        clauses = Clauses(**_all(arrays, _CLAUSES), shapes=shapes, subscriptions=int(count[0]))
    except InvalidInput as error:
        raise _damaged("clauses", f"are inconsistent ({error})") from None
    _check_start("token_start", clauses.token_start, len(clauses.token), len(clauses))
    _check_start("negative_start", clauses.negative_start, len(clauses.negative), len(clauses))
    _check_rows(clauses)
    return clauses


def rankings_to_arrays(rankings: Rankings) -> dict[str, NDArray[Any]]:
    """Return rankings as named arrays."""
    own = {name: getattr(rankings, name) for name in _RANKINGS}
    if rankings.condition is None:
        return own
    return {**own, **prefixed("condition", clauses_to_arrays(rankings.condition))}


def rankings_from_arrays(arrays: Arrays) -> Rankings:
    """Return the rankings that `rankings_to_arrays` converted.

    Examples
    --------
    >>> rankings_from_arrays(rankings_to_arrays(Rankings.boolean(2))).kind.tolist()
    [0, 0]
    """
    condition = nested("condition", arrays)
    rankings = Rankings(
        **_all(arrays, _RANKINGS), condition=clauses_from_arrays(condition) if condition else None
    )
    count = len(rankings)
    for name in _RANKINGS:
        _require(len(getattr(rankings, name)) == count, name, f"must have {count} rows")
    _require(bool((rankings.kind < len(KINDS)).all()), "kind", "has an unknown kind")
    for name in ("text_share", "threshold"):
        values = getattr(rankings, name)
        within = bool(((values >= 0) & (values <= SHARE_UNITS)).all())
        _require(within, name, f"must be from 0 to {SHARE_UNITS:,}")
    if rankings.condition is not None:
        fits = rankings.condition.subscriptions == count
        _require(fits, "condition", f"must have {count} rows")
    return rankings


def content_to_arrays(content: Clauses | Ranked) -> dict[str, NDArray[Any]]:
    """Return what an index was built over as named arrays."""
    if isinstance(content, Clauses):
        return prefixed("clauses", clauses_to_arrays(content))
    scoring = content.scoring
    return {
        **prefixed("clauses", clauses_to_arrays(content.clauses)),
        **prefixed("rankings", rankings_to_arrays(content.rankings)),
        "weight": content.weight,
        "unknown_weight": np.array([content.unknown_weight]),
        "scoring": np.array(scoring.codes, np.int64),
    }


def holds_ranked(arrays: Arrays) -> bool:
    """Whether stored content is ranked subscriptions, not clauses."""
    return "rankings.kind" in arrays


def content_from_arrays(arrays: Arrays) -> Clauses | Ranked:
    """Return what `content_to_arrays` converted.

    Examples
    --------
    >>> near = Ranked.of([[1]], [[0, 0]], kind="proximity", p=0.5, q=0.6, max_distance_m=9)
    >>> content_from_arrays(content_to_arrays(near)).rankings.threshold.tolist()
    [600000000]
    """
    clauses = clauses_from_arrays(nested("clauses", arrays))
    if not holds_ranked(arrays):
        return clauses
    rankings = nested("rankings", arrays)
    unknown, codes = _one(arrays, "unknown_weight", np.float64), _one(arrays, "scoring", np.int64)
    _require(len(unknown) == 1, "unknown_weight", "must be one number")
    try:
        return Ranked(
            clauses=clauses,
            rankings=rankings_from_arrays(rankings),
            weight=_one(arrays, "weight", np.float64),
            unknown_weight=float(unknown[0]),
            scoring=Scoring.of_codes(codes.tolist()),
        )
    except InvalidInput as error:
        raise _damaged("rankings", f"are inconsistent ({error})") from None


def messages_to_arrays(messages: Messages) -> dict[str, NDArray[Any]]:
    """Return a batch of messages as named arrays."""
    return {name: getattr(messages, name) for name in _MESSAGES}


def messages_from_arrays(arrays: Arrays) -> Messages:
    """Return the messages that `messages_to_arrays` converted.

    Examples
    --------
    >>> messages = Messages.of([[1, 2]], [[7, 8]])
    >>> messages_from_arrays(messages_to_arrays(messages)).box.tolist()
    [[7, 8, 7, 8]]
    """
    messages = Messages(**_all(arrays, _MESSAGES))
    _check_start("token_start", messages.token_start, len(messages.token), len(messages))
    for name in ("time_us", "ttl_us"):
        _require(
            len(getattr(messages, name)) == len(messages), name, "must have one value per message"
        )
    return messages


def subscriptions_to_arrays(subscriptions: Subscriptions) -> dict[str, NDArray[Any]]:
    """Return a set of subscriptions as named arrays."""
    owner, typed = subscriptions.owner, subscriptions.typed
    return {
        **prefixed("ids", ids_to_arrays(subscriptions.ids)),
        **prefixed("clauses", clauses_to_arrays(subscriptions.clauses)),
        "expires_us": subscriptions.expires_us,
        **({} if owner is None else prefixed("owner", strings_to_arrays(owner))),
        **({} if typed is None else prefixed("typed", strings_to_arrays(typed))),
        **(
            {}
            if subscriptions.rankings is None
            else prefixed("rankings", rankings_to_arrays(subscriptions.rankings))
        ),
    }


def subscriptions_from_arrays(arrays: Arrays) -> Subscriptions:
    """Return the subscriptions that `subscriptions_to_arrays` converted."""
    ids = ids_from_arrays(nested("ids", arrays))
    clauses = clauses_from_arrays(nested("clauses", arrays))
    expires_us = _one(arrays, "expires_us", np.int64)
    owners = nested("owner", arrays)
    owner = strings_from_arrays(owners) if owners else None
    texts = nested("typed", arrays)
    typed = strings_from_arrays(texts) if texts else None
    ranked = nested("rankings", arrays)
    rankings = rankings_from_arrays(ranked) if ranked else None
    columns = {"ids": ids, "expires_us": expires_us, "owner": owner, "rankings": rankings}
    for name, column in (*columns.items(), ("typed", typed)):
        fits = column is None or len(column) == clauses.subscriptions
        _require(fits, name, f"must have one row per subscription ({clauses.subscriptions})")
    return Subscriptions(
        ids=ids,
        clauses=clauses,
        expires_us=expires_us,
        owner=owner,
        rankings=rankings,
        typed=typed,
    )


def _shapes(arrays: Arrays) -> Shapes:
    shapes = Shapes(**_all(arrays, _SHAPES))
    rings = len(shapes.point_start) - 1
    _check_start("ring_start", shapes.ring_start, rings, len(shapes))
    _check_start("point_start", shapes.point_start, len(shapes.point))
    return shapes


def _check_rows(clauses: Clauses) -> None:
    row, shape = clauses.row, clauses.shape
    if len(row):
        ascending = (
            row[0] >= 0 and row[-1] < clauses.subscriptions and bool((row[1:] >= row[:-1]).all())
        )
        _require(ascending, "row", "must ascend within the subscriptions")
        exists = shape.min() >= -1 and shape.max() < len(clauses.shapes)
        _require(bool(exists), "shape", "refers to a shape that does not exist")


def _check_start(name: str, start: NDArray[Any], end: int, pieces: int | None = None) -> None:
    size = len(start) - 1 if pieces is None else pieces
    fits = len(start) == size + 1 and len(start) > 0 and start[0] == 0 and start[-1] == end
    ascending = bool((start[1:] >= start[:-1]).all())
    _require(bool(fits) and ascending, name, "does not match its content")


def _all(arrays: Arrays, layout: _Layout) -> dict[str, Any]:
    return {name: _one(arrays, name, dtype, width) for name, (dtype, width) in layout.items()}


def _one(arrays: Arrays, name: str, dtype: type, width: int = 0) -> NDArray[Any]:
    """Return the array of this name; it must have this type and this length of its second axis."""
    if name not in arrays:
        raise _damaged(name, f"is missing (found: {', '.join(sorted(arrays)) or 'nothing'})")
    array = arrays[name]
    expected = np.dtype(dtype)
    fits = array.dtype == expected and array.shape[1:] == ((width,) if width else ())
    _require(fits and array.ndim > 0, name, f"must be a column of {expected}")
    return array


def _require(valid: bool, name: str, problem: str) -> None:
    if not valid:
        raise _damaged(name, problem)


def _damaged(name: str, problem: str) -> StorageError:
    return StorageError(f"stored array {name!r} {problem}; {REBUILD}")
