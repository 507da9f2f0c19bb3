"""A PostgreSQL of our own for tests: real, on a port of 127.0.0.1, in a temporary folder."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Postgres", "database", "postgres"]

_START_S = 60


class Postgres:
    """A server that tests may kill and start again.

    Parameters
    ----------
    binaries
        Where ``initdb`` and ``postgres`` are.
    folder
        Where its data will be.
    """

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._data = folder / "data"
        self._messages = folder / "messages"
        # PostgreSQL refuses to run as root.
        self._user: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
        if self._user:
            folder.chmod(0o755)
            shutil.chown(folder, "postgres")
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            [binaries / "initdb", "-D", self._data, *options],
            check=True,
            capture_output=True,
            cwd=folder,
            **self._user,
        )

    @property
    def dsn(self) -> str:
        """Where the server is."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def create_database(self) -> str:
        """Return how to connect to a new, empty schema, in which tables are made.

        It is as good as a database, and quicker: a database is hundreds of files, which a server
        that recovers brings to the disk one by one.
        """
        import psycopg

        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.dsn}?options=-csearch_path%3D{name}"

    def start(self) -> None:
        """Start the server, and return when it takes connections."""
        import psycopg

        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "on",
            "shared_buffers": "16MB",
            "max_connections": 40,
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with open(self._messages, "ab") as messages:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *arguments],
                stdout=messages,
                stderr=messages,
                cwd=self._data.parent,
                **self._user,
            )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(self._messages.read_text(errors="replace")) from None
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """Stop the server at once, as a crash would; it recovers at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_START_S)
            self._process = None


def _binaries() -> Path:
    """Return where the programs of PostgreSQL are; skip the test if there are none."""
    path = shutil.which("initdb")
    found = [Path(path)] if path else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("needs PostgreSQL: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin")
    if os.name != "posix":
        pytest.skip("starts PostgreSQL on POSIX systems only")
    return found[-1].parent


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for all tests."""
    pytest.importorskip("psycopg")
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="nearcast-postgres-"))
    server = None
    try:
        try:
            server = Postgres(binaries, folder)
            server.start()
        except (OSError, LookupError, RuntimeError, subprocess.CalledProcessError) as error:
            detail = getattr(error, "stderr", None) or error
            pytest.skip(f"PostgreSQL does not start here: {detail}")
        yield server
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(postgres: Postgres) -> str:
    """How to connect to an empty schema."""
    return postgres.create_database()
