"""A live engine: threads publish while others subscribe, unsubscribe and replace.

The engine has a journal, so every change is on disk before its call returns. The script then shows
owners, what expires, and how the engine is opened again with everything in it.

Run it: python examples/live_engine.py
"""

import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nearcast import Circle, Engine, Match, Message, Rect, Subscription

MUNICH = Rect(11.3, 48.0, 11.8, 48.3)
MIDNIGHT = 1_767_225_600.0  # 2026-01-01; a clock of our own makes the output the same every time
EACH = 100
MESSAGES = 200


@dataclass
class Clock:
    """A clock that the script sets. Engines use the time of the machine by default."""

    now: float = MIDNIGHT

    def __call__(self) -> float:
        """Return the time, in seconds since 1970."""
        return self.now


def coffee(name: str, number: int) -> Subscription:
    """Return a subscription to coffee; each of three shops owns a third of them."""
    return Subscription(f"{name}-{number}", MUNICH, "coffee", owner=f"shop {number % 3}")


def add(engine: Engine) -> None:
    """Register subscriptions, one at a time."""
    for number in range(EACH):
        engine.subscribe(coffee("new", number))


def remove(engine: Engine) -> None:
    """Remove subscriptions, one at a time."""
    for number in range(EACH):
        engine.unsubscribe(f"old-{number}")


def edit(engine: Engine) -> None:
    """Replace subscriptions: same id, another expression."""
    for number in range(EACH):
        engine.replace(Subscription(f"edited-{number}", MUNICH, expression="tea NOT green"))


def publish(engine: Engine, first: int) -> list[Match]:
    """Publish messages, one at a time, and return all matches."""
    numbers = range(first, first + MESSAGES)
    each = [engine.publish(Message(n, (11.57, 48.14), "Coffee and cake")) for n in numbers]
    return [match for matches in each for match in matches]


def run_together(engine: Engine) -> None:
    """Let two threads publish while three others change subscriptions."""
    engine.subscribe(coffee(name, i) for name in ("old", "kept", "edited") for i in range(EACH))
    with ThreadPoolExecutor() as pool:
        changes = [pool.submit(writer, engine) for writer in (add, remove, edit)]
        published = [pool.submit(publish, engine, first) for first in (0, MESSAGES)]
        for change in changes:
            change.result()
    matches = [match for future in published for match in future.result()]

    # What the others got depends on who was faster. Those that nobody changed got every message.
    kept = Counter(m.message_id for m in matches if str(m.subscription_id).startswith("kept"))
    print(
        f"{len(kept)} messages reached all {min(kept.values())} subscriptions that nobody changed"
    )
    print(f"delivered twice: {len(matches) - len(set(matches))}")
    after = Counter(str(m.subscription_id).split("-")[0] for m in publish(engine, 2 * MESSAGES))
    print("matches per message after the changes:")
    for name in ("old", "kept", "edited", "new"):
        print(f"  {name}: {after[name] / MESSAGES:g}")


def show_owners(engine: Engine) -> None:
    """Ask for the owners of matches, and remove all that an owner has."""
    matches = engine.publish(Message("offer", (11.57, 48.14), "Coffee, half price"), owners=True)
    counts = Counter(str(match.owner) for match in matches)
    print("matches by owner:", ", ".join(f"{owner}: {counts[owner]}" for owner in sorted(counts)))
    print(f"shop 0 leaves with {engine.unsubscribe_owner('shop 0')} subscriptions")
    print(f"left: {len(engine)}")


def show_expiry(engine: Engine, clock: Clock) -> None:
    """Let a message and a subscription expire, and print what ends."""
    tram = Circle(11.56, 48.14, radius_m=300)
    engine.subscribe(Subscription("tonight", tram, "tram", expires_at=MIDNIGHT + 3600))
    engine.subscribe(Subscription("always", tram, "tram"))
    for name, minutes in (("delay", 30), ("closed", 120)):
        message = Message(name, (11.56, 48.14), "Tram 19", ttl_s=60 * minutes)
        print(f"{name}: {sorted(str(m.subscription_id) for m in engine.publish(message))}")
    clock.now = MIDNIGHT + 5400
    ended = engine.advance().sort_by([("time", "ascending"), ("subscription_id", "ascending")])
    for row in ended.to_pylist():
        minute = (row["time"].timestamp() - MIDNIGHT) / 60
        print(f"{minute:g} min: {row['message_id']} ends for {row['subscription_id']}")


def main(folder: Path) -> None:
    """Run everything on an engine in a folder."""
    clock = Clock()
    with Engine.open(folder, journal=True, clock=clock) as engine:
        run_together(engine)
        show_owners(engine)
        show_expiry(engine, clock)
        before = sorted(str(subscription.id) for subscription in engine)
    # A crash instead of the end of the "with" block would change nothing.
    with Engine.open(folder, journal=True, clock=clock) as engine:
        after = sorted(str(subscription.id) for subscription in engine)
        print(f"opened again: the same {len(after)} subscriptions: {after == before}")
        engine.settle()
        stats = engine.stats()
        print(f"segments: {stats.segments}, dead rows: {stats.tombstones}")
        print(f"tokens: {stats.tokens}, living messages: {stats.live_messages}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary) / "engine")
