"""A Kafka broker for the time of a test: one Java process, in KRaft mode, on this machine only."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import subprocess
import time
from typing import TYPE_CHECKING

from .jars import java

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 20.0

_CLUSTER = base64.urlsafe_b64encode(b"nearcast-testing").decode().rstrip("=")
_JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@contextlib.contextmanager
def running(folder: Path, jars: Sequence[Path]) -> Iterator[str]:
    """Start a broker that keeps its data in this folder; give its address, and stop it at last.

    A topic must be made before it is written to: nothing makes it on the way.

    Raises
    ------
    RuntimeError
        When the broker does not start, with the end of its log.
    """
    port, controller_port = _free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(_settings(folder / "data", port, controller_port), encoding="utf-8")
    program = [java(), *_JAVA_OPTIONS, "-cp", os.pathsep.join(map(str, jars))]
    log = folder / "broker.log"
    with log.open("wb") as out:
        storage = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
        if subprocess.run([*program, *storage], stdout=out, stderr=out).returncode != 0:
            raise _failure("could not make its storage", log)
        with subprocess.Popen(
            [*program, "kafka.Kafka", str(settings)], stdout=out, stderr=out
        ) as process:
            try:
                _await_answer(process, port, log)
                yield f"{HOST}:{port}"
            finally:
                _stop(process)


def _settings(data: Path, port: int, controller_port: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "log.dirs": data.as_posix(),
        "auto.create.topics.enable": "false",
        # What a single broker can give, and no more memory than it needs for a few records.
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:  # all at once, so that they differ
        sockets = [held.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in sockets]


def _await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not _answers(port):
        if process.poll() is not None:
            problem = f"ended with code {process.returncode}"
        elif time.monotonic() > deadline:
            problem = f"did not answer within {START_S:.0f} s"
        else:
            time.sleep(0.1)
            continue
        raise _failure(problem, log)


def _failure(problem: str, log: Path) -> RuntimeError:
    end = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    return RuntimeError(f"the Kafka broker {problem}; its log ends with:\n{end}")


def _answers(port: int) -> bool:
    """Ask for the versions of the protocol, as every client does first."""
    ask_versions, correlation = 18, 1
    request = struct.pack(">hhih", ask_versions, 0, correlation, -1)
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as link:
            link.sendall(struct.pack(">i", len(request)) + request)
            with link.makefile("rb") as stream:
                return stream.read(8)[4:] == struct.pack(">i", correlation)
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
