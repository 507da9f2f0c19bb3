"""Each extra in an environment of its own: what it promises runs there."""

from __future__ import annotations

import json
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from .environments import EXTRAS, PROJECT, ROOT, SCRIPTS, run
from .processes import serving

if TYPE_CHECKING:
    from pathlib import Path

    from .environments import Environments, MakeEnvironment

USER_SCRIPT = SCRIPTS.with_name("user_script.py")
SIZE = ("--subscriptions", "1000", "--messages", "100")
OWN_MODULES = {
    "bench": {"bench", "datasets", "plots"},
    "client": {"client"},
    "plots": {"bench", "datasets", "plots"},
    "server": {"server"},
    "spark": {"spark"},
    "testing": {"testing"},
}
"""Extras with modules of their own, and the extras that are there with them."""


def test_all_extras_for_users_are_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*EXTRAS} == {*project["optional-dependencies"]} - {"dev", "docs"}


@pytest.mark.parametrize("extras", ["", *EXTRAS])
def test_an_environment_is_consistent(extras: str, environments: Environments) -> None:
    environments.uv("pip", "check", "--python", environments.get(extras).python)


@pytest.mark.parametrize("extras", ["", *OWN_MODULES])
def test_modules_are_imported_or_name_an_extra(extras: str, environments: Environments) -> None:
    there = OWN_MODULES.get(extras, set())
    known = {"", *(f"extra: {name}" for name in EXTRAS if name not in there)}
    found = environments.import_all(extras)
    assert not {module: said for module, said in found.items() if said not in known}


def test_a_users_script_is_typed_and_runs(environment: MakeEnvironment, tmp_path: Path) -> None:
    plain = environment("")
    strict: list[str | Path] = ["--strict", "--python-executable", plain.python]
    alone = ("--config-file", "", "--cache-dir", tmp_path / "cache")
    run(sys.executable, "-m", "mypy", *strict, *alone, USER_SCRIPT, folder=tmp_path)
    assert plain.script(USER_SCRIPT, folder=tmp_path).splitlines() == [
        "['ben', 'cid', 'dan']",
        "[('ben', -1)]",
        "['ann', 'cid', 'dan']",
        "4",
        "geometry",
    ]


def test_kernels_are_compiled_with_the_lowest_versions(
    environments: Environments, tmp_path: Path
) -> None:
    lowest = environments.lowest
    if lowest is None:
        pytest.skip("the lowest versions have wheels for the lowest Python only")
    (numba,) = (line for line in PROJECT["dependencies"] if line.startswith("numba>="))
    cache = tmp_path / "cache"
    settings = {"NEARCAST_COMPILE": "at-once", "NEARCAST_CACHE_DIR": str(cache)}
    kept = []
    for _ in range(2):  # compiled, then loaded
        said = run(lowest.python, SCRIPTS / "match_one.py", folder=tmp_path, settings=settings)
        version, matched = said.splitlines()
        assert version.startswith(numba), said
        assert matched == "['ann']"
        kept.append({path.name for path in cache.rglob("*.nbc")})
    assert kept[0] == kept[1] != set()


@pytest.fixture(scope="module")
def sample(environment: MakeEnvironment, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Generate files without extras, and return the options with which `match` reads them."""
    folder = tmp_path_factory.mktemp("sample")
    environment("").nearcast("generate", *SIZE, "--out", ".", folder=folder)
    kinds = ("subscriptions", "messages")
    return [word for kind in kinds for word in (f"--{kind}", f"{folder}/{kind}.parquet")]


def test_commands_run_without_extras(
    environment: MakeEnvironment, sample: list[str], tmp_path: Path
) -> None:
    plain = environment("")
    assert "Usage: nearcast" in plain.nearcast("--help", folder=tmp_path)
    assert "matches" in plain.nearcast("match", *sample, "--out", "m.csv", folder=tmp_path)
    assert (tmp_path / "m.csv").read_text().startswith('"message_id","subscription_id","score"\n')
    listed = json.loads(plain.nearcast("indexes", "--json", folder=tmp_path))
    assert "trie-pyramid" in json.dumps(listed)


@pytest.mark.parametrize(
    "command", ["plot index scan --out x.png", "plot moving --ticks 2 --width 160 --out x.gif"]
)
def test_plots_draws(command: str, environment: MakeEnvironment, tmp_path: Path) -> None:
    environment("plots").nearcast(*command.split(), folder=tmp_path)
    (picture,) = tmp_path.iterdir()
    assert picture.read_bytes().startswith((b"\x89PNG", b"GIF8"))


def test_plots_draws_a_map_of_matches(
    environment: MakeEnvironment, sample: list[str], tmp_path: Path
) -> None:
    options = ("--out", "matches.csv", "--map", "map.png")
    environment("plots").nearcast("match", *sample, *options, folder=tmp_path)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_datasets_has_the_places_of_the_world(environment: MakeEnvironment, tmp_path: Path) -> None:
    options = ("--dataset", "places", *SIZE, "--out", ".")
    environment("datasets").nearcast("generate", *options, folder=tmp_path)
    assert (tmp_path / "messages.parquet").exists()


def test_bench_compares_indexes(environment: MakeEnvironment, tmp_path: Path) -> None:
    # Two of all the indexes: a new machine compiles each of them for many seconds.
    options = (*SIZE, "--index", "scan,trie-pyramid", "--out", ".")
    said = environment("bench").nearcast("bench", "compare", *options, folder=tmp_path)
    assert "checked against the scan" in said
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".png"}


def test_spark_builds_and_matches(environment: MakeEnvironment, tmp_path: Path) -> None:
    script = SCRIPTS / "use_spark.py"
    said = environment("spark").script(script, tmp_path / "index", folder=tmp_path)
    assert "m1 ann" in said
    assert "ben" not in said


def test_client_publishes_and_receives(environment: MakeEnvironment, tmp_path: Path) -> None:
    script = SCRIPTS / "use_client.py"
    with serving(environment("server"), tmp_path) as server:
        said = environment("client").script(script, *server.api, folder=tmp_path)
    assert said == "bo-concerts cy-concerts"


def test_geo_converts_coordinates(environment: MakeEnvironment, tmp_path: Path) -> None:
    files = write_mercator(tmp_path)
    environment("geo").nearcast("match", *files, "--out", "matches.csv", folder=tmp_path)
    rows = (tmp_path / "matches.csv").read_text().splitlines()
    assert rows[1:] == ['"m1","ann",']


def test_without_geo_other_coordinates_are_refused(
    environment: MakeEnvironment, tmp_path: Path
) -> None:
    files = write_mercator(tmp_path)
    said = environment("").nearcast(
        "match", *files, "--out", "matches.csv", folder=tmp_path, code=1
    )
    assert "pip install 'nearcast[geo]'" in said
    assert len(said.splitlines()) == 1


def write_mercator(folder: Path) -> list[str]:
    """Write a message as GeoParquet in Web Mercator, and a subscription around it as CSV."""
    import geopandas
    from shapely import Point

    rows = {"id": ["m1"], "text": ["Fresh coffee"], "geometry": [Point(13.4, 52.51)]}
    frame = geopandas.GeoDataFrame(rows, crs="OGC:CRS84")
    frame.to_crs("EPSG:3857").to_parquet(folder / "messages.parquet")
    head = "id,keywords,lon,lat,radius_m"
    (folder / "subscriptions.csv").write_text(f"{head}\nann,coffee,13.4,52.5,2000\n")
    return ["--subscriptions", "subscriptions.csv", "--messages", "messages.parquet"]


def test_stem_matches_words_by_their_stems(environment: MakeEnvironment, tmp_path: Path) -> None:
    code = (
        "from nearcast import Engine, Message, Rect, Subscription\n"
        "engine = Engine(tokenizer='stem:english')\n"
        "engine.subscribe(Subscription('ann', Rect(0, 0, 1, 1), 'floods'))\n"
        "print(engine.publish(Message('m1', (0.5, 0.5), 'Flooding'))[0].subscription_id)"
    )
    assert environment("stem").code(code, folder=tmp_path) == "ann\n"


def test_testing_draws_examples(environment: MakeEnvironment, tmp_path: Path) -> None:
    code = (
        "from hypothesis import find, settings\n"
        "from nearcast.testing import strategies\n"
        "quiet = settings(database=None, deadline=None)\n"
        "drawn = find(strategies.tokens(), lambda tokens: len(tokens) == 2, settings=quiet)\n"
        "print(len(drawn))"
    )
    assert environment("testing").code(code, folder=tmp_path) == "2\n"
