"""Changes of tenants, keys, subscribers and sinks that are records of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.server.matching.changes import Outcome, channel_of_sink
from nearcast.server.matching.registry import Channel
from nearcast.server.state import changes as stored
from nearcast.server.state.tables import Channel as StoredChannel
from nearcast.server.state.tables import Key, Subscriber, Tenant

if TYPE_CHECKING:
    from nearcast.server.matching.registry import Registry

__all__ = ["administer"]

_NO_SINK = Outcome("NOT_FOUND", "there is no such sink")


def administer(
    change: dict[str, Any],
    seq: int,
    time_us: int,
    tenants: dict[str, int],
    registry: Registry,
) -> tuple[Outcome, list[stored.Change]]:
    """Return what became of a change, and what has to be written to the state.

    Parameters
    ----------
    change
        ``op`` is ``tenant`` (``name``, ``limits``, and ``created_us`` if it exists), ``key``
        (``id``, ``tenant``, ``sha256``, ``roles``, ``subscriber``, ``name``), ``revoke`` (``id``),
        ``subscriber`` (``tenant``, ``name``, ``settings``; None keeps those it has), ``sink-gone``
        (``id``, ``reason``; its subscriptions have ended) or ``remove-sink`` (``id``).
    seq, time_us
        The number and the time of the record.
    tenants
        The numbers of tenants by name; a new one is added.
    registry
        Knows the channels.
    """
    match change["op"]:
        case "tenant":
            name = change["name"]
            number = tenants.setdefault(name, len(tenants))
            created_us = change.get("created_us")
            row = Tenant(
                number, name, change["limits"], time_us if created_us is None else created_us
            )
            return Outcome("", "", number, name, seq), [stored.PutTenant(seq, row)]
        case "key":
            key = Key(
                change["id"],
                change["tenant"],
                change["sha256"],
                tuple(change["roles"]),
                change["subscriber"],
                change["name"],
                time_us,
            )
            return Outcome("", "", 0, key.id, seq), [stored.PutKey(seq, key)]
        case "revoke":
            id = change["id"]
            return Outcome("", "", 0, id, seq), [stored.RevokeKey(seq, id, time_us)]
        case "subscriber":
            tenant, name = change["tenant"], change["name"]
            number, new = registry.add_channel(Channel(tenant, name))
            changes: list[stored.Change] = []
            if new or change["settings"] is not None:
                settings = Subscriber(tenant, name, number, change["settings"] or {})
                changes.append(stored.PutSubscriber(seq, settings))
            if new:
                changes.append(stored.PutChannel(seq, StoredChannel(number, tenant, name)))
            return Outcome("", "", number, name, seq), changes
        case "sink-gone":
            id, channel = change["id"], channel_of_sink(change["id"])
            if not registry.is_sink(channel):
                return _NO_SINK, []
            registry.retire(channel)
            gone = stored.DisableSink(seq, id, change["reason"])
            return Outcome("", "", channel, id, seq), [gone]
        case "remove-sink":
            id, channel = change["id"], channel_of_sink(change["id"])
            if not registry.is_sink(channel):
                return _NO_SINK, []
            if registry.sending_to(channel):
                return Outcome("CONFLICT", "a subscription has this sink; delete it first"), []
            registry.retire(channel)
            return Outcome("", "", channel, id, seq), [stored.RemoveSink(seq, id)]
        case unknown:
            raise RuntimeError(f"the log has a change of an unknown kind: {unknown!r}")
