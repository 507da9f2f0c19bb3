"""Opening a server: where its log and its state are, and the first key."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.errors import InvalidInput, StorageError
from nearcast.extras import require
from nearcast.server.private import close_to_others
from nearcast.server.service import Service
from nearcast.server.shadow import Shadow, ShadowDisk, why_unwritable
from nearcast.server.state import Postgres, Sqlite, State
from nearcast.server.state.keys import ROLES, make_key
from nearcast.server.state.vault import KEY_VARIABLE, Vault, read_key
from nearcast.storage.log import Log

if TYPE_CHECKING:
    from nearcast.server.kafka.topics import Topics
    from nearcast.server.log import Log as AnyLog
    from nearcast.server.matching.retention import Retention
    from nearcast.server.service import Link
    from nearcast.server.state import Database
    from nearcast.storage.log.disk import Disk

__all__ = [
    "DEFAULT_TENANT",
    "KAFKA_FOLDER",
    "Where",
    "first_key",
    "make_tenant_key",
    "open_service",
]

_log = logging.getLogger("nearcast.server")
DEFAULT_TENANT = "default"
KAFKA_FOLDER = "kafka"
"""What a server keeps that does not match by itself; only its folder has one."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where a server keeps what it knows.

    Parameters
    ----------
    folder
        Everything, or, with a database, what can be computed again.
    database
        A connection string of PostgreSQL (``postgresql://…``) for log and state; None for files
        and SQLite.
    repair
        Whether damaged records of the log are skipped; subscribers get a counted gap.
    retention
        What is kept of the log; everything if it is None.
    matches
        Topics of Kafka (``kafka://…``), if a stream of Spark matches instead of the server; see
        `nearcast.server.kafka`.
    secrets_key
        The file of the key that secrets are encrypted with; see `nearcast.server.state.vault`.
        None reads its name from ``NEARCAST_SECRETS_KEY_FILE``, if that is set.
    """

    folder: Path
    database: str | None = None
    repair: bool = False
    retention: Retention | None = None
    matches: str | None = None
    secrets_key: Path | None = None


def open_service(where: Where) -> Service:
    """Open the log and the state, and bring matching to the end of the log.

    A folder that cannot be written, because its disk is full or read-only, is only read.
    """
    try:
        return _opened(where)
    except OSError as error:
        why = why_unwritable(error)
        known = (where.folder / "log").is_dir() and (where.folder / "state.db").exists()
        if why is None or not known or where.database or where.repair or _is_remote(where):
            raise
        return _only_read(where, why, error)


def _only_read(where: Where, why: str, error: OSError) -> Service:
    """Open the shadow of a folder that cannot be written."""
    _log.error("%s cannot be written, %s: it is only read (%s)", where.folder, why, error)
    shadow = Shadow(where.folder)
    try:
        service = _opened(replace(where, folder=shadow.path), ShadowDisk())
        service.only_read(f"{where.folder} cannot be written: {why}", shadow.close)
        return service
    except BaseException:
        shadow.close()
        raise


def _opened(where: Where, disk: Disk | None = None) -> Service:
    if where.database is not None:
        require("postgres", "--database")
    remote = _is_remote(where)
    vault = _vault(where)
    close_to_others(where.folder)
    if remote:
        (where.folder / KAFKA_FOLDER).mkdir(exist_ok=True)
    log = _open_log(where, disk)
    try:
        if where.database is None:
            database: Database = Sqlite(where.folder / "state.db")
        else:
            database = Postgres(where.database, schema=_state_schema(where.database))
        state = _open_state(database, vault)
        try:
            service = Service(where.folder, log, state, retention=where.retention, remote=remote)
            if where.matches is not None:
                service.link = _link(where.matches, service)
            return service
        except BaseException:
            state.close()
            raise
    except BaseException:
        log.close()
        raise


def _vault(where: Where) -> Vault:
    """Return what seals secrets: with the key that was given, if one was."""
    named = os.environ.get(KEY_VARIABLE)
    path = where.secrets_key or (Path(named) if named else None)
    return Vault() if path is None else Vault(read_key(path, where.folder))


def _open_state(database: Database, vault: Vault) -> State:
    try:
        return State(database, vault)
    except BaseException:
        database.close()
        raise


def _state_schema(database: str) -> str:
    """Return the schema of the state: one of its own beside each schema that has a log."""
    import psycopg

    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT current_schema()").fetchone()
    return "nearcast" if row is None or row[0] in (None, "public") else f"{row[0]}_state"


def check_matches(where: Where) -> None:
    """Check that a server which is about to run has somebody who matches.

    Raises
    ------
    InvalidInput
        If the folder is made for Spark, and no topics are given, or the other way round.
    NearcastError
        If Kafka does not have the topics.
    """
    if _is_remote(where) and where.matches is None:
        problem = f"is missing: Spark matches for the server in {where.folder}"
        raise InvalidInput("--matches", None, problem)
    if where.matches is not None:
        _topics(where.matches).check()


def _is_remote(where: Where) -> bool:
    """Return whether Spark matches; a folder is made for that, or not, and stays so."""
    made = (where.folder / KAFKA_FOLDER).exists()
    used = any((where.folder / name).exists() for name in ("log", "checkpoint"))
    if where.matches is not None and used and not made:
        raise InvalidInput(
            "--matches",
            where.matches,
            f"needs a new folder: the server in {where.folder} has matched by itself; start with "
            "another folder, and import the subscriptions there",
        )
    return made or where.matches is not None


def _topics(url: str) -> Topics:
    from nearcast.server.kafka.topics import Topics

    return Topics.parse(url)


def _link(url: str, service: Service) -> Link:
    from nearcast.server.kafka.link import KafkaLink

    return KafkaLink(_topics(url), service)


def _open_log(where: Where, disk: Disk | None) -> AnyLog:
    if where.database is None:
        options: dict[str, Any] = {} if disk is None else {"disk": disk}
        return Log(where.folder / "log", repair=where.repair, **options)
    if where.repair:
        raise StorageError("repair is for logs in files; PostgreSQL has its own tools")
    from nearcast.server.log.postgres import PostgresLog

    return PostgresLog(where.database)


async def first_key(service: Service) -> str | None:
    """Make the default tenant and an admin key if there is no tenant yet; return the key."""
    if service.state.tenants():
        return None
    await service.administer({"op": "tenant", "name": DEFAULT_TENANT, "limits": {}})
    return await make_tenant_key(service, 0, ROLES, "admin", None)


async def make_tenant_key(
    service: Service, tenant: int, roles: tuple[str, ...], name: str, subscriber: str | None
) -> str:
    """Make a key of a tenant, and return it: the server keeps only a hash of it."""
    key = make_key()
    change = {
        "op": "key",
        "id": key.id,
        "tenant": tenant,
        "sha256": key.hash,
        "roles": list(roles),
        "subscriber": subscriber,
        "name": name,
    }
    await service.administer(change)
    return key.text
