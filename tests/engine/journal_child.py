"""A process that changes an engine with a journal, and says what was acknowledged, until killed.

Run by `test_engine_killed.py`: python journal_child.py FOLDER SEED
"""

from __future__ import annotations

import random
import sys
import threading

from nearcast.engine import Engine, journal
from nearcast.model import Rect, Subscription

THREADS = 3


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def work(engine: Engine, thread: int, seed: int) -> None:
    """Change subscriptions of which no other thread knows; say before and after what is done."""
    rng = random.Random(f"{seed} {thread}")
    mine = {int(s.id): s for s in engine if int(s.id) % THREADS == thread}
    while True:
        id, west = THREADS * rng.randrange(15) + thread, rng.randrange(90)
        place = Rect(west, 0, west + 1, 1)
        if id not in mine:
            say("try", id, west)
            engine.subscribe(Subscription(id, place, "tea"))
        elif rng.random() < 0.3:
            say("try", id, -1)
            engine.unsubscribe(id)
            say("done", id)
            del mine[id]
            continue
        elif rng.random() < 0.5:
            say("try", id, west)
            engine.move(id, place)
        else:
            say("try", id, west)
            engine.replace(Subscription(id, place, "tea"))
        say("done", id)
        mine[id] = Subscription(id, place, "tea")


def main() -> None:
    journal.CHECKPOINT_BYTES = 5_000
    engine = Engine.open(sys.argv[1], journal=True)
    say("open")
    for thread in range(THREADS):
        arguments = engine, thread, int(sys.argv[2])
        threading.Thread(target=work, args=arguments, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
