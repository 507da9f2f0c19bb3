"""``nearcast serve`` and ``nearcast keys``: the live server and its keys."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from nearcast.cli.commands import FILE, FOLDER, NUMBER, add_command
from nearcast.cli.output import OneLineErrors, show_json, show_table
from nearcast.extras import require

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from nearcast.server.http.running import Ready
    from nearcast.server.opening import Where
    from nearcast.server.service import Service

T = TypeVar("T")

__all__ = ["DATA", "DATABASE", "DEFAULT_FOLDER", "SECRETS_KEY", "keys_app", "serve", "with_service"]

_SLOW_S = 5.0
_PROGRESS_S = 15.0
_NO_TLS = (
    "Warning: other machines can reach {host}, and there is no TLS: whoever is on the way reads "
    "keys and messages. Let only a proxy with TLS reach it, or listen on 127.0.0.1 behind one."
)
DEFAULT_FOLDER = Path("nearcast-data")
DATA = typer.Argument(metavar=FOLDER, help="The folder of the server; made if it is not there.")
DEFAULT_DATA = typer.Argument(
    metavar=FOLDER,
    help="The folder of the server; made if it is not there. With --demo, a temporary one unless "
    "you name one.",
    show_default=str(DEFAULT_FOLDER),
)
DATABASE = typer.Option(
    "--database",
    metavar="URL",
    help="Keep log and state in PostgreSQL (postgresql://user@host/name) instead of the folder.",
)
SECRETS_KEY = typer.Option(
    "--secrets-key-file",
    metavar=FILE,
    help="Encrypt secrets of webhooks and tokens with the key in this file, which must be outside "
    "of the folder; or name it in NEARCAST_SECRETS_KEY_FILE.",
)


def serve(
    data: Annotated[Path | None, DEFAULT_DATA] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar=NUMBER, help="The port; 0 chooses a free one.")
    ] = 8080,
    database: Annotated[str | None, DATABASE] = None,
    keep_days: Annotated[
        float,
        typer.Option(
            "--keep-days", metavar=NUMBER, min=0, help="How long messages and events are kept."
        ),
    ] = 7.0,
    keep_gb: Annotated[
        float | None,
        typer.Option(
            "--keep-gb", metavar=NUMBER, min=0, help="How large the log may become, about."
        ),
    ] = None,
    matches: Annotated[
        str | None,
        typer.Option(
            "--matches",
            metavar="kafka://HOST:PORT?...",
            help="Let Spark match: send messages and changes of subscriptions to topics of Kafka, "
            "and read the matches from one.",
        ),
    ] = None,
    allow_sink: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-sink",
            metavar="NETWORK",
            help="Let webhooks go to a private network, such as 10.0.0.0/8. Can be given again.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin",
            metavar="ORIGIN",
            help="Let pages of another origin use the API, such as https://example.com. "
            "Can be given again.",
        ),
    ] = None,
    tiles: Annotated[
        str | None,
        typer.Option(
            "--tiles",
            metavar="URL",
            help="The background of the map, such as https://example.com/{z}/{x}/{y}.png. Without "
            "it, the map needs no other server.",
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Begin with sample subscriptions and a stream of messages; browsers on this "
            "machine need no key.",
        ),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Skip damaged records of the log; subscribers see a gap."),
    ] = False,
    secrets_key_file: Annotated[Path | None, SECRETS_KEY] = None,
) -> None:
    """Run the live server: publish over HTTP, receive events over SSE, nothing acknowledged lost.

    It listens on this machine only unless --host says otherwise, and then warns that it has no TLS
    of its own: a proxy in front should. The first time it prints an admin key, which is shown only
    once; every time, a link with which a browser can sign in, once. Stop it with Ctrl-C.
    """
    require("server", "nearcast serve")
    from nearcast.server.http.context import Settings
    from nearcast.server.http.running import serve as run
    from nearcast.server.http.signing_in import is_loopback
    from nearcast.server.http.tiles import tile_origin
    from nearcast.server.matching.retention import Retention
    from nearcast.server.opening import Where, check_matches
    from nearcast.server.private import private_files

    if tiles is not None:
        tile_origin(tiles)
    if demo:
        _check_demo(host, matches)
    started = threading.Event()

    def is_ready(ready: Ready) -> None:
        started.set()
        typer.echo("\n".join(_announcement(ready, folder, demo=demo)))
        if not is_loopback(host):
            typer.echo(_NO_TLS.format(host=host), err=True)

    settings = Settings(
        allow_sinks=tuple(allow_sink or ()),
        allow_origins=tuple(allow_origin or ()),
        demo=demo,
        tiles=tiles,
    )
    keep = Retention(keep_days * 86_400, None if keep_gb is None else round(keep_gb * 1e9))
    with ExitStack() as stack:
        if data is None and demo:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="nearcast-demo-")))
            # Otherwise SIGTERM would end the process before the folder is removed.
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        else:
            folder = data or DEFAULT_FOLDER
        stack.enter_context(private_files())
        where = Where(folder, database, repair, keep, matches, secrets_key_file)
        if matches is not None:
            require("kafka", "nearcast serve --matches")
        if database is not None:
            require("postgres", "nearcast serve --database")
        check_matches(where)
        threading.Thread(target=_show_progress, args=(started,), daemon=True).start()
        try:
            run(where, host, port, settings, is_ready, _stream() if demo else None)
        except KeyboardInterrupt:
            if not started.is_set():
                raise
            # Ctrl-C is how a server that runs is stopped.


def _show_progress(started: threading.Event) -> None:
    """Say every few seconds what a server does that has not started yet."""
    from nearcast.compiled.cache import compiled_kernels

    began = time.monotonic()
    wait_s = _SLOW_S
    while not started.wait(wait_s):
        wait_s = _PROGRESS_S
        count, seconds = compiled_kernels(), time.monotonic() - began
        doing = f"{count} kernels compiled, once for this machine" if count else "reading the log"
        typer.echo(f"Starting, for {seconds:.0f} s: {doing}.", err=True)


def _check_demo(host: str, matches: str | None) -> None:
    """Check that a demo can run: it lets in everybody who can connect."""
    from nearcast.errors import InvalidInput
    from nearcast.server.http.signing_in import is_loopback

    require("datasets", "nearcast serve --demo")
    if not is_loopback(host):
        problem = "must be an address of this machine only, such as 127.0.0.1: the demo has no keys"
        raise InvalidInput("--host", host, problem)
    if matches is not None:
        raise InvalidInput("--matches", matches, "must be left out: the demo matches by itself")


def _stream() -> Callable[[Service], Coroutine[Any, Any, None]]:
    from nearcast.server.demo import play

    return play


def _announcement(ready: Ready, folder: Path, *, demo: bool) -> list[str]:
    """Return the lines to print when a server listens."""
    lines = [] if ready.key is None else [f"Admin key, shown only this once: {ready.key}"]
    lines.append(
        f"Nearcast is listening on {ready.url} with its data in {folder}. Ctrl-C stops it."
    )
    if demo:
        lines.append(f"The demo: open {ready.url} in a browser on this machine; it needs no key.")
    else:
        lines.append(f"Sign in with a browser once, within 15 minutes: {ready.link}")
    return lines


keys_app = typer.Typer(
    cls=OneLineErrors,
    help="Make, list and revoke the keys of a server that is not running.",
    no_args_is_help=True,
)


def create(
    data: Annotated[Path, DATA] = DEFAULT_FOLDER,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="What it may do: publish, subscribe or admin. Can be given again.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="What it is for.")] = "",
    subscriber: Annotated[
        str | None,
        typer.Option("--subscriber", metavar="NAME", help="Restrict it to one subscriber."),
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Whose it is; made if it is new.")
    ] = "default",
    database: Annotated[str | None, DATABASE] = None,
    secrets_key_file: Annotated[Path | None, SECRETS_KEY] = None,
) -> None:
    """Make a key and print it. The server keeps only a hash of it, so it is shown only once."""
    require("server", "nearcast keys")
    from nearcast.errors import InvalidInput
    from nearcast.server.opening import Where, make_tenant_key
    from nearcast.server.state.keys import ROLES

    roles = tuple(role or ("publish", "subscribe"))
    for one in roles:
        if one not in ROLES:
            raise InvalidInput("--role", one, f"must be one of {', '.join(ROLES)}")

    async def make(service: Service) -> str:
        numbers = {known.name: known.number for known in service.state.tenants()}
        if tenant not in numbers:
            change = {"op": "tenant", "name": tenant, "limits": {}}
            numbers[tenant] = (await service.administer(change)).handle
        return await make_tenant_key(service, numbers[tenant], roles, name, subscriber)

    typer.echo(with_service(Where(data, database, secrets_key=secrets_key_file), make))


def list_keys(
    data: Annotated[Path, DATA] = DEFAULT_FOLDER,
    database: Annotated[str | None, DATABASE] = None,
    secrets_key_file: Annotated[Path | None, SECRETS_KEY] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the keys, without their secrets."""
    require("server", "nearcast keys")
    from nearcast.server.delivery.rendering import rfc3339
    from nearcast.server.opening import Where

    async def read(service: Service) -> list[dict[str, object]]:
        tenants = {tenant.number: tenant.name for tenant in service.state.tenants()}
        return [
            {
                "id": key.id,
                "tenant": tenants[key.tenant],
                "roles": list(key.roles),
                "subscriber": key.subscriber,
                "name": key.name,
                "created": rfc3339(key.created_us),
                "revoked": None if key.revoked_us is None else rfc3339(key.revoked_us),
            }
            for key in service.state.keys()
        ]

    found = with_service(Where(data, database, secrets_key=secrets_key_file), read)
    if as_json:
        show_json(found)
        return
    rows = [
        [
            ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
            for value in key.values()
        ]
        for key in found
    ]
    names = ["id", "tenant", "roles", "subscriber", "name", "created", "revoked"]
    show_table("keys", names, rows)


def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, or the key.")],
    data: Annotated[Path, DATA] = DEFAULT_FOLDER,
    database: Annotated[str | None, DATABASE] = None,
    secrets_key_file: Annotated[Path | None, SECRETS_KEY] = None,
) -> None:
    """Revoke a key: requests with it are refused from now on."""
    require("server", "nearcast keys")
    from nearcast.errors import UnknownId
    from nearcast.server.opening import Where

    key_id = id.split("_")[1] if id.startswith("nc_") else id

    async def end(service: Service) -> None:
        if service.state.key(key_id) is None:
            raise UnknownId(f"there is no key with the id {key_id!r}; see nearcast keys list")
        await service.administer({"op": "revoke", "id": key_id})

    with_service(Where(data, database, secrets_key=secrets_key_file), end)
    typer.echo(f"Revoked {key_id}.")


def end_tokens(
    data: Annotated[Path, DATA] = DEFAULT_FOLDER,
    database: Annotated[str | None, DATABASE] = None,
    secrets_key_file: Annotated[Path | None, SECRETS_KEY] = None,
) -> None:
    """End all tokens: the secret that signs them is replaced. Keys stay as they are.

    Run it when somebody may have read the folder, who could sign tokens for everything.
    """
    require("server", "nearcast keys")
    from nearcast.server.opening import Where

    async def forget(service: Service) -> None:
        service.state.forget_secret("tokens")

    with_service(Where(data, database, secrets_key=secrets_key_file), forget)
    typer.echo("All tokens have ended; browsers and phones have to ask for new ones.")


def new_secrets_key(
    path: Annotated[
        Path, typer.Argument(metavar=FILE, help="Where to write it; it must not exist yet.")
    ],
) -> None:
    """Make a key for --secrets-key-file, in a file that only you can read.

    Keep a copy: without it, a server whose secrets were encrypted with it does not start.
    """
    require("server", "nearcast keys")
    from nearcast.server.state.vault import new_key_file

    new_key_file(path)
    typer.echo(f"Wrote {path}. Keep a copy in a safe place, apart from backups of the server.")


def with_service(where: Where, work: Callable[[Service], Awaitable[T]]) -> T:
    """Open a server that is not running, do something with it, and close it."""
    from nearcast.server.opening import first_key, open_service
    from nearcast.server.private import private_files

    async def run() -> T:
        service = await asyncio.to_thread(open_service, where)
        service.start()
        try:
            await first_key(service)
            return await work(service)
        finally:
            await service.close()

    with private_files():
        return asyncio.run(run())


add_command(
    keys_app,
    "create",
    create,
    "nearcast keys create --role publish --name 'city feed'",
    "nearcast keys create nearcast-data --role subscribe --subscriber ann",
)
add_command(keys_app, "list", list_keys, "nearcast keys list nearcast-data")
add_command(keys_app, "revoke", revoke, "nearcast keys revoke 4f6k0a9d2mxq")
add_command(keys_app, "end-tokens", end_tokens, "nearcast keys end-tokens nearcast-data")
add_command(
    keys_app,
    "new-secrets-key",
    new_secrets_key,
    "nearcast keys new-secrets-key /etc/nearcast/secrets.key",
)
