"""Ranked subscriptions: scores from words and place, why they are what they are, and two sliders.

Ann ranks by distance (Proximity), Ben by the share of his district that a message covers (Overlap).
The script prints the best matches of each message, explains one score, and counts what Ann would
get with other values of delta and tau, without registering anything.

Run it: python examples/ranking.py
"""

from nearcast import Engine, Message, Overlap, Proximity, Rect, Subscription

HOME = (11.57, 48.14)
DISTRICT = Rect(11.56, 48.13, 11.60, 48.15)
SUBSCRIPTIONS = [
    # delta: how much words count against distance; tau: the score that a match must reach.
    Subscription("ann", HOME, ["flat", "white"], ranking=Proximity(0.5, 0.6, max_distance_m=5000)),
    # alpha: how much the covered area counts against words; theta: the score to reach.
    Subscription("ben", DISTRICT, ["street", "closed"], ranking=Overlap(alpha=0.6, theta=0.7)),
    # Only messages that fulfill the expression get a score.
    Subscription(
        "cid",
        HOME,
        ["coffee", "cake"],
        expression="NOT decaf",
        ranking=Proximity(0.8, 0.4, max_distance_m=20_000),
    ),
]
MESSAGES = [
    Message("near", (11.575, 48.141), "Flat white and cake, two for one"),
    Message("far", (11.65, 48.20), "The best flat white in town, and coffee cake"),
    Message("decaf", (11.571, 48.139), "Coffee cake and decaf"),
    Message("parade", Rect(11.56, 48.13, 11.59, 48.16), "Street closed for the parade"),
    Message("works", Rect(11.59, 48.14, 11.62, 48.16), "Water pipe: one street closed"),
]
DELTAS = (0.2, 0.5, 0.8)
TAUS = (0.4, 0.5, 0.6, 0.7, 0.8)


def show_best(engine: Engine) -> None:
    """Print the best match of each message, then all matches of one."""
    print("The best match of each message:")
    for match in engine.publish(MESSAGES, top=1):
        print(f"  {match.message_id}: {match.subscription_id} {match.score:.3f}")
    print("All matches of near:")
    for match in engine.publish(MESSAGES[0], top=10):
        print(f"  {match.subscription_id} {match.score:.3f}")


def show_why(engine: Engine) -> None:
    """Print where two scores come from, and use the numbers of two others."""
    print("Why ann does not get far:")
    print(engine.explain(MESSAGES[1], "ann"))
    print("Why ben gets parade:")
    print(engine.explain(MESSAGES[3], "ben"))
    # An explanation also has the numbers, for programs.
    works = engine.explain(MESSAGES[4], "ben")
    print(f"ben does not get works: its score is {works.score:.3f} of {works.threshold:.1f}")
    decaf = engine.explain(MESSAGES[2], "cid")
    words = ", ".join(word.word for word in decaf.shared)
    print(f"cid does not get decaf: it has {words}, but the condition is {decaf.condition}")


def show_sliders(engine: Engine) -> None:
    """Count what ann would get for each delta and tau: the content of a settings page."""
    # A message every 450 m to the east; every second one shares only one of the two words.
    texts = ("Flat white", "Flat rate")
    recent = [Message(i, (HOME[0] + 0.006064 * i, HOME[1]), texts[i % 2]) for i in range(20)]
    print("Matches of ann by delta and tau:")
    print("delta \\ tau" + "".join(f"{tau:6}" for tau in TAUS))
    for delta in DELTAS:
        counts = []
        for tau in TAUS:
            ranking = Proximity(delta, tau, max_distance_m=5000)
            draft = Subscription("ann", HOME, ["flat", "white"], ranking=ranking)
            counts.append(len(engine.preview(draft, recent)))
        print(f"{delta:<11}" + "".join(f"{count:6}" for count in counts))


if __name__ == "__main__":
    engine = Engine()
    engine.subscribe(SUBSCRIPTIONS)
    show_best(engine)
    show_why(engine)
    show_sliders(engine)
