"""Attacks by those who receive: frames of WebSockets, streams, and webhooks that never answer."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

from attack.sending import Attack, Effort, Tally, head, statuses_of
from faulty_receivers import receiving
from tested_server import box, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attack.measuring import Target

__all__ = ["ATTACKS"]

_UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)
_DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
_TEXT, _MORE, _CLOSE, _PING = 1, 0, 8, 9
_LAST, _COMPRESSED = 0x80, 0x40
_LATEST_S = 5.0
_EVENTS = 20


def frame(opcode: int, content: bytes, flags: int = _LAST) -> bytes:
    """Return a frame of a client."""
    size = len(content)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + struct.pack("!H", size)
    else:
        length = b"\xff" + struct.pack("!Q", size)
    return bytes([flags | opcode]) + length + b"\0\0\0\0" + content


def websocket(target: Target, effort: Effort, tally: Tally) -> None:
    """Send frames that inflate to 15 MB, large frames, many small ones, and parts without end."""
    path = "/v1/events?all=1"
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    inflating = (bomb.compress(bytes(15_000_000)) + bomb.flush(zlib.Z_SYNC_FLUSH))[:-4]
    huge = b"\x81\xff" + struct.pack("!Q", 1 << 62) + b"\0\0\0\0"
    for frames in [
        [frame(_TEXT, inflating, _LAST | _COMPRESSED)] * 20,
        [frame(_TEXT, b"x" * 15_000_000)] * 3,
        [huge, *[b"x" * 1_000_000] * 20],
        [frame(_TEXT, b"x" * 4_000)] * effort.repeated(2_000, 20_000),
        [frame(_PING, b"x" * 100)] * effort.repeated(20_000, 200_000),
        [frame(_TEXT, b"x", 0), *[frame(_MORE, b"x" * 4_000, 0)] * 5_000],
        [frame(_TEXT, b"x", 0), *[frame(_MORE, b"", 0)] * 50_000],
        [os.urandom(1_000)] * 1_000,
        [frame(_CLOSE, b"\x03\xe8" + b"\xff" * 100)],
    ]:
        start = head("GET", path, *_UPGRADE, _DEFLATE, key=target.publisher.key)
        said = _talk(target, start, frames)
        tally.count(statuses_of(said), len(frames))
        if b"permessage-deflate" in said.partition(b"\r\n\r\n")[0].lower():
            tally.wrong.append("the server agrees to inflate what clients send")


def _talk(target: Target, start: bytes, frames: list[bytes]) -> bytes:
    """Send frames after a handshake, and return what the server says until a second has passed."""
    said = b""
    with socket.create_connection(target.address, timeout=30) as connection:
        connection.sendall(start)
        while b"\r\n\r\n" not in said and (more := connection.recv(1 << 16)):
            said += more
        reading = threading.Thread(target=_read_all, args=(connection,))
        reading.start()
        try:
            for part in _joined(frames):
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was closed meanwhile
        reading.join()
    return said


def _read_all(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 20):
            pass
    except OSError:
        pass


def _joined(frames: list[bytes]) -> Iterator[bytes]:
    for first in range(0, len(frames), 100):
        yield b"".join(frames[first : first + 100])


def slow_streams(target: Target, effort: Effort, tally: Tally) -> None:
    """Open 200 streams of everything that nobody reads, and publish 10 MB."""
    client = target.publisher
    client.put("stream", subscription("stream", ["flood"], box(0, 0, 1, 1)))
    message = {"text": "flood " + "x" * 2_000, "lon": 0.5, "lat": 0.5}
    with ExitStack() as stack:
        for _ in range(200):
            one = stack.enter_context(socket.create_connection(target.address, timeout=30))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.sendall(head("GET", "/v1/events?all=1", key=client.key))
            tally.count(())
        for _ in range(effort.repeated(25, 100)):
            tally.ask(client, "POST", "/v1/messages", [message] * 200)


def tarpits(target: Target, effort: Effort, tally: Tally) -> None:
    """Give one tenant 250 webhooks that never answer; a good one of another tenant is watched."""
    count = effort.repeated(250, 800)
    publisher, other = target.publisher, target.tenant("other")
    with ExitStack() as stack:
        good = stack.enter_context(receiving())
        for number in range(count):
            host = f"127.0.{1 + number // 250}.{1 + number % 250}"
            tarpit = stack.enter_context(socket.create_server((host, 0), backlog=64))
            sink = f"http://{host}:{tarpit.getsockname()[1]}/hook"
            made = subscription(f"tarpit-{number}", ["tar"], box(0, 0, 1, 1)) | {"sink": sink}
            tally.ask(publisher, "PUT", f"/v1/subscriptions/tarpit-{number}", made)
        made = subscription("good", ["tea"], box(0, 0, 1, 1)) | {"sink": good.url}
        tally.ask(other, "PUT", "/v1/subscriptions/good", made)
        tar, tea = ({"text": word, "lon": 0.5, "lat": 0.5} for word in ("tar", "tea"))
        times = []
        for number in range(1, _EVENTS + 1):
            tally.ask(publisher, "POST", "/v1/messages", [tar] * 5)
            time.sleep(0.2)
            begin = time.perf_counter()
            tally.ask(other, "POST", "/v1/messages", tea)
            good.wait_for(number)
            times.append(time.perf_counter() - begin)
    tally.note_worst("the good webhook of another tenant", times)
    if max(times) > _LATEST_S:
        tally.wrong.append(f"the good webhook of another tenant waited {max(times):.1f} s")


ATTACKS = [
    Attack("websocket", "frames that inflate, large ones, many, and parts without end", websocket),
    Attack("slow-streams", "200 streams that nobody reads", slow_streams),
    Attack(
        "tarpits",
        "250 webhooks that never answer",
        tarpits,
        arguments=("--allow-sink", "127.0.0.0/8"),
    ),
]
