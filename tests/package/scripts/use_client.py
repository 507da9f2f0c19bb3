"""Publish to a server and receive, with both clients: python use_client.py URL KEY."""

from __future__ import annotations

import asyncio
import sys

from nearcast import Circle, Message
from nearcast.client import AsyncClient, Client

PARK = Circle(13.376, 52.514, radius_m=1500)
CONCERT = Message("m1", (13.377, 52.515), "Concert in the park at eight")


def blocking(url: str, key: str) -> list[str]:
    """Subscribe, publish and receive one event, waiting for each answer."""
    with Client(url, key) as client:
        client.subscribe(id="bo-concerts", subscriber="bo", keywords=["concert"], region=PARK)
        with client.events(subscriber="bo") as events:
            client.publish(CONCERT)
            return [match.subscription_id for match in next(events).matches]


async def waiting(url: str, key: str) -> list[str]:
    """Do the same with asyncio."""
    async with AsyncClient(url, key) as client:
        await client.subscribe(id="cy-concerts", subscriber="cy", keywords="concert", region=PARK)
        async with client.events(subscriber="cy") as events:
            await client.publish(CONCERT)
            event = await anext(events)
            return [match.subscription_id for match in event.matches]


if __name__ == "__main__":
    received = [*blocking(*sys.argv[1:]), *asyncio.run(waiting(*sys.argv[1:]))]
    sys.stdout.write(" ".join(received))
