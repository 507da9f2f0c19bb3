"""A server is killed at random moments under load; nothing acknowledged is lost or repeated."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from effort import repeated
from tested_server import LiveServer

KILLS = repeated("NEARCAST_SERVER_KILLS", 3, 12)
SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
CHECKER = Path(__file__).with_name("kill_checker.py")


def tell(url_file: Path, server: LiveServer) -> None:
    """Let the checker know where the server is now."""
    partial = url_file.with_suffix(".part")
    partial.write_text(server.url)
    partial.rename(url_file)


def ask(checker: subprocess.Popen[str], command: str) -> str:
    """Return what the checker answers to a command."""
    assert checker.stdin is not None
    assert checker.stdout is not None
    checker.stdin.write(command + "\n")
    checker.stdin.flush()
    return checker.stdout.readline()


WAYS = ("working", "ending", "starting")


def kill(server: LiveServer, way: str, rng: random.Random) -> None:
    """Kill a server: while it works, while it ends, or while it starts again."""
    if way == "ending":
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        time.sleep(rng.uniform(0, 0.5))
    server.kill()
    if way == "starting":
        server.launch()
        time.sleep(rng.uniform(0.5, 1.5))
        server.kill()


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    url_file = tmp_path / "url"
    # Checkpoints are written all the time, so that many of the kills come while one is written.
    with LiveServer(tmp_path / "data", checkpoint_bytes=10_000, beat_s=0.2) as server:
        server.start()
        tell(url_file, server)
        command = [sys.executable, str(CHECKER), str(url_file), str(server.key), str(SEED)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as checker:
            for number in range(KILLS):
                time.sleep(rng.uniform(0.1, 2))
                assert checker.poll() is None
                kill(server, WAYS[number % 3], rng)
                server.start()
                tell(url_file, server)
            answer = ask(checker, "finish").split()
            assert answer[:1] == ["checked"], "see the traceback of the checker"
            messages, events, retries = int(answer[1]), int(answer[3]), int(answer[7])
            assert messages > 10 * KILLS
            assert events > 10 * KILLS
            assert retries > 0

            server.kill()
            shutil.rmtree(server.folder / "checkpoint")
            shutil.rmtree(server.folder / "events")
            server.start()
            tell(url_file, server)
            assert ask(checker, "compare") == "same\n"
        assert checker.returncode == 0
