"""A PostgreSQL server of our own for tests, on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_USER = "postgres"


def postgres_folder() -> Path | None:
    """Return the folder of PostgreSQL's programs; None if it is not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


class PostgresServer:
    """A PostgreSQL server in a folder; `start` returns when it takes connections."""

    def __init__(self, folder: Path) -> None:
        programs = postgres_folder()
        assert programs is not None
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self._options: dict[str, str] = {}
        if os.geteuid() == 0:
            # PostgreSQL does not run as root.
            self._options = {"user": _USER}
            os.chown(folder, pwd.getpwnam(_USER).pw_uid, -1)
            for parent in folder.parents[:-2]:
                parent.chmod(parent.stat().st_mode | 0o011)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--data-checksums")

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -c unix_socket_directories=''"
        log = self._folder / "server.log"
        self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", log, "-o", options)

    def kill(self) -> None:
        """Stop as a crash would: nothing is written any more."""
        self._run("pg_ctl", "stop", "-w", "-D", self._data, "-m", "immediate")

    def _run(self, program: str, *arguments: str | Path) -> None:
        command: Sequence[str | Path] = [self._programs / program, *arguments]
        done = subprocess.run(
            command,
            check=False,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._options.get("user"),
            timeout=60,
        )
        assert done.returncode == 0, f"{program} failed: {done.returncode}"
