"""An engine that matches nothing itself: another system does, and gets what changes from here.

The matcher calls it as it calls any engine. Changes of subscriptions become rows of
changes (``op``, ``id``, ``time`` and the columns of subscriptions), which somebody sends to the
other system, each after the messages that came before it. The matches come back as records of the
log.

Every definition gets an id of its own, ``<handle>.<version>``, and is inserted once and deleted
once. So it does no harm if rows are sent twice, and a match says which definition it is about: one
of a later definition than the message, or of an earlier one that was no longer in force, does not
count.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa

from nearcast.engine import Engine
from nearcast.engine.published import Moved, Published, Replaced
from nearcast.intake import Rejects
from nearcast.model.regions import region
from nearcast.storage import strings_from_arrays, strings_to_arrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from nearcast.model import Id

__all__ = ["Outgoing", "RemoteEngine", "parse_remote_id", "remote_id"]

_START = datetime(1970, 1, 1, tzinfo=UTC)
_MATCHES = pa.schema(
    [("message_id", pa.int64()), ("subscription_id", pa.int64()), ("score", pa.float64())]
)
_DIGITS = 18  # so that numbers fit into 64 bits
_encode = msgspec.json.Encoder().encode


class Outgoing(NamedTuple):
    """A row of changes that has to be sent.

    Attributes
    ----------
    number
        Counts the rows, from 1.
    after
        The number of the last message before it.
    handle
        The subscription.
    value
        The row, as JSON.
    """

    number: int
    after: int
    handle: int
    value: bytes


def remote_id(handle: int, version: int) -> str:
    """Return the id by which the other system knows a definition."""
    return f"{handle}.{version}"


def parse_remote_id(id: str) -> tuple[int, int] | None:
    """Return the handle and the version of an id; None if it is not one of ours.

    Examples
    --------
    >>> parse_remote_id(remote_id(7, 12)), parse_remote_id("ann")
    ((7, 12), None)
    """
    handle, _, version = id.partition(".")
    if len(handle) > _DIGITS or len(version) > _DIGITS:
        return None
    return (int(handle), int(version)) if handle.isdecimal() and version.isdecimal() else None


class RemoteEngine(Engine):
    """Keeps changes of subscriptions until they are sent, and knows which definitions count.

    Attributes
    ----------
    offsets
        How far the matches of the other system were read: the next offset by partition.
    """

    def __init__(self) -> None:
        super().__init__(report="moves", weights="manual")
        self.offsets: dict[int, int] = {}
        self._version = np.zeros(16, np.int64)  # by handle; 0 if it is not there
        self._since = np.zeros(16, np.int64)  # by handle, the last message before the definition
        self._rows = 0
        self._last_message = 0
        self._waiting: deque[Outgoing] = deque()
        self._lock = threading.Lock()

    # --- what the matcher calls ------------------------------------------------------------------

    def publish_table(self, table: Any, **settings: Any) -> Published:
        """Take note of messages: there are no matches yet."""
        self._last_message = int(table["id"][-1].as_py())
        return Published(_MATCHES.empty_table(), Rejects.empty(), table.num_rows, 0)

    def subscribe_table(self, table: Any, **settings: Any) -> Rejects:
        """Insert definitions, or replace them."""
        for row in table.to_pylist():
            self._insert(row.pop("id"), row)
        return Rejects.empty()

    def replace_table(self, table: Any, **settings: Any) -> Replaced:
        """Insert definitions, or replace them."""
        self.subscribe_table(table)
        return Replaced(pa.table({}), Rejects.empty(), table.num_rows, 0)

    def unsubscribe(self, ids: Id | Iterable[Id], **settings: Any) -> None:
        """Delete definitions."""
        for handle in [ids] if isinstance(ids, int | str) else ids:
            self._delete(int(handle))

    def move_table(self, table: Any, **settings: Any) -> Moved:
        """Move subscriptions."""
        for row in table.to_pylist():
            handle = row.pop("subscription_id")
            self._add("move", handle, int(self._version[handle]), row)
        return Moved(pa.table({}), Rejects.empty(), table.num_rows)

    def count_weights(self) -> None:
        """Do nothing: the other system has its own weights."""

    def __contains__(self, id: object) -> bool:
        return isinstance(id, int) and id < len(self._version) and bool(self._version[id])

    def _insert(self, handle: int, row: dict[str, Any]) -> None:
        while handle >= len(self._version):
            self._version = np.append(self._version, np.zeros_like(self._version))
            self._since = np.append(self._since, np.zeros_like(self._since))
        self._delete(handle)
        self._version[handle] = self._rows + 1
        self._since[handle] = self._last_message
        self._add("insert", handle, self._rows + 1, row)

    def _delete(self, handle: int) -> None:
        if handle in self:
            self._add("delete", handle, int(self._version[handle]), {})
            self._version[handle] = 0

    def _add(self, op: str, handle: int, version: int, row: Mapping[str, Any]) -> None:
        given = {name: value for name, value in row.items() if value is not None}
        if "geometry" in given:
            given["geometry"] = region(given["geometry"]).to_wkt()
        time = _START + timedelta(microseconds=self._clock.now_us())
        value = _encode({**given, "op": op, "id": remote_id(handle, version), "time": time})
        self._rows += 1
        with self._lock:
            self._waiting.append(Outgoing(self._rows, self._last_message, handle, value))

    # --- matches ---------------------------------------------------------------------------------

    def count_for(
        self,
        message: NDArray[np.int64],
        handle: NDArray[np.int64],
        version: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return which matches count: those of the definition in force when a message came."""
        known = handle < len(self._version)
        handle = np.where(known, handle, 0)
        since = self._since[handle]
        newest = version >= self._version[handle]
        counts: NDArray[np.bool_] = known & np.where(newest, message > since, message <= since)
        return counts

    # --- sending ---------------------------------------------------------------------------------

    def waiting(self) -> list[Outgoing]:
        """Return the rows that have not been sent, in their order; any thread may ask."""
        with self._lock:
            return [*self._waiting]

    def sent(self, number: int) -> None:
        """Forget the rows up to a number."""
        with self._lock:
            while self._waiting and self._waiting[0].number <= number:
                self._waiting.popleft()

    # --- on disk ---------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays, to be saved."""
        waiting = self.waiting()
        values = pa.array([row.value.decode() for row in waiting], pa.string())
        numbers = [row[:3] for row in waiting]
        return {
            "version": self._version.copy(),
            "since": self._since.copy(),
            "counts": np.array([self._rows, self._last_message], np.int64),
            "offsets": np.array([*self.offsets.items()], np.int64).reshape(-1, 2),
            "waiting": np.array(numbers, np.int64).reshape(-1, 3),
            **{f"values.{name}": array for name, array in strings_to_arrays(values).items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the engine that was saved."""
        engine = cls()
        engine._version, engine._since = arrays["version"].copy(), arrays["since"].copy()
        engine._rows, engine._last_message = arrays["counts"].tolist()
        engine.offsets = dict(arrays["offsets"].tolist())
        prefix = "values."
        own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
        values = strings_from_arrays(own).to_pylist()
        rows = zip(arrays["waiting"].tolist(), values, strict=True)
        engine._waiting = deque(
            Outgoing(number, after, handle, value.encode())
            for (number, after, handle), value in rows
        )
        return engine
