"""The live server with a sample stream: subscriptions and places of the world, messages that flow.

Run it: python examples/live_server.py FOLDER [--subscriptions N] [--seconds S] [--port P]. FOLDER
has subscriptions.parquet, as `nearcast generate --dataset places` writes it. Without --seconds it
goes on until Ctrl-C. It says what it does, and a summary at the end. The messages and the
subscriptions that are yours are those of `nearcast serve --demo`.
"""

import argparse
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pyarrow import parquet

from nearcast.client import Client, NearcastClientError
from nearcast.server.demo import sample_messages, sample_movers, sample_subscriptions

RATE = 100
"""Messages a second."""

MOVE_EVERY = RATE
"""After how many messages the subscriptions that move do so."""


def main() -> None:
    """Start the server, show what it does, and stop it."""
    given = arguments()
    data, folder = Path(given.folder), Path(given.folder) / "server"
    shutil.rmtree(folder, ignore_errors=True)  # a sample starts from nothing
    print("The live server: the same engine behind an HTTP API, durable, with streams of events.")
    print(f"1. It starts, with its log and its state in {folder}. Every answer to a publisher")
    print("   means that the messages are on disk.")
    command = [
        sys.executable,
        "-m",
        "nearcast.cli",
        "serve",
        str(folder),
        "--port",
        str(given.port),
    ]
    folder.mkdir(parents=True)
    requests = open(data / "server.log", "w")  # what it writes about every request
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=requests, text=True)
    try:
        url, key = started(server)
        with Client(url, key) as client:
            show(client, data, given.subscriptions, given.seconds, url, key)
    finally:
        server.terminate()
        server.wait()
    print("The server has stopped; what was acknowledged is on disk.")


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--subscriptions", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--port", type=int, default=8080)
    return parser.parse_args()


def started(server: "subprocess.Popen[str]") -> tuple[str, str]:
    """Return the URL and the key that the server prints when it is ready."""
    assert server.stdout is not None
    key = url = None
    for line in server.stdout:
        key = key or found(r"nc_\S+", line)
        url = url or found(r"http://\S+", line)
        if url and key:
            return url, key
    sys.exit("The server did not start; see above. Is the port taken? Choose one: make run PORT=0")


def found(pattern: str, line: str) -> str | None:
    """Return the first part of a line that fits a pattern."""
    match = re.search(pattern, line)
    return match[0] if match else None


def show(client: Client, data: Path, count: int, seconds: float | None, url: str, key: str) -> None:
    """Register subscriptions, let messages flow, and say what happens."""
    table = parquet.read_table(data / "subscriptions.parquet").slice(0, count)
    imported = client.import_(table.to_pylist())
    print(
        f"2. {imported.accepted:,} subscriptions are registered: words in a region, of many people."
    )
    yours = client.import_(sample_subscriptions()).accepted
    print(
        f"3. {yours} more are yours, of all kinds: 'pharmacy OR clinic' in Europe, whatever is near"
    )
    print(f"   and relevant, one that is paused, and {len(sample_movers())} that move.")
    print(
        "4. A subscriber connects. Should it lose the connection, it goes on after the last event."
    )
    heard = Heard(Client(url, key))
    heard.start()
    print(f"5. {RATE} messages a second are published, each at a place of the world.")
    print(f"   Watch matches arrive, subscribe and publish at {url} with the key")
    print(f"   {key}")
    print("   Ctrl-C stops everything." if seconds is None else f"   It ends in {seconds:g} s.")
    messages = sample_messages()
    began = time.monotonic()
    published = 0
    try:
        for batch in batches(messages, RATE // 10):
            published += len(client.publish(batch).ids)
            if published % MOVE_EVERY == 0:
                step = published // MOVE_EVERY
                client.move_many([(mover.id, mover.region(step)) for mover in sample_movers()])
            due = began + published / RATE
            if seconds is not None and due > began + seconds:
                break
            time.sleep(max(due - time.monotonic(), 0))
    except KeyboardInterrupt:
        print()
    heard.settle()
    print(f"{published:,} messages published, {heard.events:,} of them matched a subscription of")
    print(f"yours and arrived; half of them within {heard.median_ms():.0f} ms. In all there were")
    print(f"{metric(url, 'nearcast_matches_total'):,} matches. Last: {heard.last}")


def batches(messages: Iterator[dict[str, object]], size: int) -> Iterator[list[dict[str, object]]]:
    """Yield messages a few at a time, each with the time at which it is sent."""
    while True:
        yield [{**m, "properties": {"sent": time.time()}} for m in islice(messages, size)]


def metric(url: str, name: str) -> int:
    """Return a counter of the server, of those for Prometheus."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name):
                return int(float(line.split()[-1]))
    return 0


class Heard(threading.Thread):
    """A subscriber in a thread of its own: counts events, and how long they took."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._stream = client.events()
        self._delay_s: dict[tuple[str, float], float] = {}
        self.last = "none"

    def run(self) -> None:
        """Receive events until the server stops."""
        try:
            for event in self._stream:
                if event.type == "match" and event.message is not None:
                    sent = event.message.get("properties", {}).get("sent", time.time())
                    # A message may come again, when a subscription moves near to it.
                    self._delay_s.setdefault((event.message["text"], sent), time.time() - sent)
                    names = ", ".join(match.subscription_id for match in event.matches)
                    self.last = f"{event.message['text']!r} for {names}"
        except NearcastClientError as error:
            print(f"The subscriber has stopped: {error}")

    @property
    def events(self) -> int:
        """How many messages have arrived."""
        return len(self._delay_s)

    def median_ms(self) -> float:
        """Return how long half of them took at most, from publishing to receiving."""
        ordered = sorted(self._delay_s.values()) or [0.0]
        return 1000 * ordered[len(ordered) // 2]

    def settle(self) -> None:
        """Wait until no event has come for half a second."""
        before = -1
        while before != self.events:
            before = self.events
            time.sleep(0.5)


if __name__ == "__main__":
    main()
