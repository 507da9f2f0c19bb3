"""A script as a user writes it; checked by a strict mypy against the installed package, and run."""

from __future__ import annotations

from pathlib import Path

import nearcast
from nearcast import Circle, Engine, Match, Message, Overlap, Proximity, Rect, Subscription, Update


def deliver(engine: Engine, message: Message) -> dict[str, float | None]:
    """Return the score of every subscription that a message matches."""
    matches: list[Match] = engine.publish(message)
    return {str(match.subscription_id): match.score for match in matches}


def main(folder: Path) -> None:
    """Subscribe, publish, move, save and open."""
    engine = Engine()
    engine.subscribe(Subscription("ann", Circle(11.57, 48.14, radius_m=2000), "ipad discount"))
    engine.subscribe(Subscription("ben", Rect(10, 47, 13, 50), expression="storm NOT drill"))
    near = Proximity(delta=0.4, tau=0.6, max_distance_m=5000)
    engine.subscribe(Subscription("cid", (11.57, 48.14), ["storm"], ranking=near))
    area = Overlap(alpha=0.5, theta=0.5)
    engine.subscribe(Subscription("dan", Rect(11, 48, 12, 49), ["storm"], ranking=area))
    storm = Message("m1", (11.57, 48.14), "Storm warning", time=0.0, ttl_s=60)
    print(sorted(deliver(engine, storm)))
    updates: list[Update] = engine.move("ben", Rect(0, 0, 1, 1), time=1.0)
    print([(update.subscription_id, update.sign) for update in updates])
    row = {"id": "m2", "text": "iPad discount", "lon": 11.57, "lat": 48.14}
    print(sorted(deliver(engine, Message.from_dict(row))))
    engine.save(folder / "engine")
    print(len(Engine.open(folder / "engine")))
    try:
        nearcast.region("nowhere")
    except nearcast.errors.RegionError as error:
        print(error.field)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
