"""Calls that change an engine, as a journal has them, and how they are made once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.engine.journal import Call
from nearcast.errors import NearcastError, StorageError
from nearcast.intake import messages_from, read_messages
from nearcast.model import Message, Point, Subscription, region, time_from_us
from nearcast.model.checks import stored_before
from nearcast.model.close_names import COLUMNS
from nearcast.model.json_form import place_fields, subscription_region

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from nearcast.columns import Ids
    from nearcast.engine.engine import Engine
    from nearcast.engine.journal import Journal
    from nearcast.model import Id

__all__ = [
    "advance_call",
    "move_call",
    "move_table_call",
    "publish_call",
    "publish_table_call",
    "replace_call",
    "replace_table_call",
    "replay",
    "subscribe_call",
    "subscribe_table_call",
    "unsubscribe_call",
    "unsubscribe_owner_call",
    "unsubscribe_table_call",
]


def subscribe_call(given: Sequence[Subscription], time_us: int | None, *, initial: bool) -> Call:
    """Return a call of `Engine.subscribe`."""
    records = [one.to_dict() for one in given]
    return Call("subscribe", {"given": records, "time_us": time_us, "initial": initial})


def subscribe_table_call(table: pa.Table, time_us: int | None, *, initial: bool) -> Call:
    """Return a call of `Engine.subscribe_table`."""
    return Call(
        "subscribe_table", {"time_us": time_us, "initial": initial}, _ours(table, "subscriptions")
    )


def unsubscribe_call(ids: Ids, time_us: int | None) -> Call:
    """Return a call of `Engine.unsubscribe`."""
    return Call("unsubscribe", {"ids": ids.tolist(), "time_us": time_us})


def unsubscribe_owner_call(owner: str, time_us: int | None) -> Call:
    """Return a call of `Engine.unsubscribe_owner`."""
    return Call("unsubscribe_owner", {"owner": owner, "time_us": time_us})


def unsubscribe_table_call(table: pa.Table, time_us: int | None) -> Call:
    """Return a call of `Engine.unsubscribe_table`."""
    return Call("unsubscribe_table", {"time_us": time_us}, table)


def move_call(id: Id, place: Any, time_us: int | None) -> Call:
    """Return a call of `Engine.move`."""
    where = place_fields(region(place) if not isinstance(place, tuple) else Point(*place))
    return Call("move", {"id": id, "place": where, "time_us": time_us})


def move_table_call(table: pa.Table) -> Call:
    """Return a call of `Engine.move_table`."""
    return Call("move_table", {}, _ours(table, "moves"))


def replace_call(given: Subscription, time_us: int | None, *, upsert: bool) -> Call:
    """Return a call of `Engine.replace`."""
    return Call("replace", {"given": given.to_dict(), "time_us": time_us, "upsert": upsert})


def replace_table_call(table: pa.Table, time_us: int | None, *, upsert: bool) -> Call:
    """Return a call of `Engine.replace_table`."""
    return Call(
        "replace_table", {"time_us": time_us, "upsert": upsert}, _ours(table, "subscriptions")
    )


def publish_call(given: Sequence[Message], read_us: int) -> Call:
    """Return a call of `Engine.publish`, with the messages that stay alive."""
    records = [one.to_dict() for one in given if one.ttl_s > 0]
    return Call("publish", {"given": records, "read_us": read_us})


def publish_table_call(table: pa.Table, read_us: int) -> Call:
    """Return a call of `Engine.publish_table`."""
    return Call("publish_table", {"read_us": read_us, "unique": False}, _ours(table, "messages"))


def advance_call(time_us: int | None) -> Call:
    """Return a call of `Engine.advance`."""
    return Call("advance", {"time_us": time_us})


def _ours(table: pa.Table, kind: str) -> pa.Table:
    """Return the columns that matter: others may be called nearly as ours, and be asked about."""
    return table.select([name for name in COLUMNS[kind] if name in table.column_names])


def replay(engine: Engine, journal: Journal) -> int:
    """Make the calls of a journal once more, with the clock of then; return how many there are."""
    count = 0
    # Versions before this one took ids that are written alike.
    engine._store.allow_alike(True)
    try:
        for seq, now_us, call in journal.calls():
            engine._clock.set(now_us)
            count += 1
            try:
                with stored_before():
                    _make(engine, call)
            except (NearcastError, KeyError, TypeError, ValueError) as error:
                problem = (
                    f"{journal.folder}: record {seq:,} ({call.method}) cannot be replayed: {error}"
                )
                raise StorageError(problem) from error
    finally:
        engine._clock.set(None)
        engine._store.allow_alike(False)
    return count


def _make(engine: Engine, call: Call) -> None:
    arguments, table = call.arguments, call.table
    time_us = arguments.get("time_us")
    time = None if time_us is None else time_from_us(time_us)
    match call.method:
        case "subscribe":
            several = [Subscription.from_dict(one) for one in arguments["given"]]
            engine.subscribe(several, initial=arguments["initial"], time=time)
        case "subscribe_table":
            engine.subscribe_table(table, initial=arguments["initial"], time=time)
        case "unsubscribe":
            engine.unsubscribe(arguments["ids"], time=time)
        case "unsubscribe_owner":
            engine.unsubscribe_owner(arguments["owner"], time=time)
        case "unsubscribe_table":
            engine.unsubscribe_table(table, time=time)
        case "move":
            engine.move(arguments["id"], subscription_region(arguments["place"]), time)
        case "move_table":
            engine.move_table(table)
        case "replace":
            given = Subscription.from_dict(arguments["given"])
            engine.replace(given, time, upsert=arguments["upsert"])
        case "replace_table":
            engine.replace_table(table, upsert=arguments["upsert"], time=time)
        case "publish":
            messages = [Message.from_dict(one) for one in arguments["given"]]
            batch = messages_from(messages, engine._tokenizer, now_us=arguments["read_us"])
            engine._publish(batch, arguments["read_us"], skip=False)
        case "publish_table":
            # Earlier versions rejected an id that occurred again in a table.
            unique = arguments.get("unique", True)
            batch, _ = read_messages(
                table, engine._tokenizer, now_us=arguments["read_us"], unique=unique
            )
            engine._publish(batch, arguments["read_us"], skip=True)
        case "advance":
            engine.advance(time)
        case unknown:
            raise StorageError(
                f"is a call of {unknown!r}, which this version of Nearcast does not know"
            )
