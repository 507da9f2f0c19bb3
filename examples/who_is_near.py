"""Who is near me now: couriers ride through a town, and each has a list of what is near.

Run it: python examples/who_is_near.py
"""

import pyarrow as pa

from nearcast import Circle, Engine, Message, Subscription

START = 1_767_225_600.0  # 2026-01-01, midnight; any time will do
REACH_M = 700.0
ROUTES = {"ann": ((11.560, 48.135), (11.590, 48.150)), "ben": ((11.600, 48.130), (11.555, 48.140))}
WANTS = {"ann": "parcel", "ben": "parcel OR letter"}
MESSAGES = [
    # minute, life in minutes, place, text
    (0, 40, (11.570, 48.140), "Parcel at the old market"),
    (5, 10, (11.562, 48.136), "Letter for the town hall"),
    (10, 60, (11.585, 48.148), "Heavy parcel, ring twice"),
    (20, 30, (11.580, 48.136), "Letter and parcel at the theater"),
    (35, 20, (11.558, 48.139), "Letter to collect"),
]


def place_of(name: str, minute: int) -> tuple[float, float]:
    """Return where a courier is, who rides straight on for an hour."""
    (lon, lat), (to_lon, to_lat) = ROUTES[name]
    share = minute / 60
    return lon + share * (to_lon - lon), lat + share * (to_lat - lat)


def moves_at(minute: int) -> pa.Table:
    """Return one row for each courier."""
    places = [place_of(name, minute) for name in ROUTES]
    return pa.table(
        {
            "subscription_id": [*ROUTES],
            "time": [START + 60 * minute] * len(ROUTES),
            "lon": [lon for lon, _ in places],
            "lat": [lat for _, lat in places],
            "radius_m": [REACH_M] * len(ROUTES),
        }
    )


near: dict[str, set[str]] = {name: set() for name in ROUTES}


def tell(minute: int, name: str, message: str, sign: int, why: str) -> None:
    """Keep the list of a courier up to date, and say what has changed."""
    (near[name].add if sign > 0 else near[name].remove)(message)
    print(f"{minute:2} min  {'+' if sign > 0 else '-'} {name}: {message} ({why})")


minute = 0
engine = Engine(clock=lambda: START + 60 * minute)
engine.subscribe(
    Subscription(name, Circle(*place_of(name, 0), radius_m=REACH_M), expression=WANTS[name])
    for name in ROUTES
)
for minute in range(0, 61, 5):
    now = START + 60 * minute
    for row in engine.advance(now).to_pylist():
        tell(minute, row["subscription_id"], row["message_id"], row["sign"], "expired")
    for row in engine.move_table(moves_at(minute)).updates.to_pylist():
        why = "came near" if row["sign"] > 0 else "rode on"
        tell(minute, row["subscription_id"], row["message_id"], row["sign"], why)
    arriving = [
        Message(text, place, text, time=now, ttl_s=60 * life)
        for at, life, place, text in MESSAGES
        if at == minute
    ]
    for match in engine.publish(arriving):
        tell(minute, str(match.subscription_id), str(match.message_id), 1, "published")

for name, messages in near.items():
    print(f"near {name} at the end: {', '.join(sorted(messages)) or 'nothing'}")
