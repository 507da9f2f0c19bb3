"""What an environment does not have says which extra it needs, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .environments import Environments, MakeEnvironment

FILES = "--subscriptions s.csv --messages m.csv --out o.csv"
DATABASE = "serve --port 0 --database postgresql://nobody@localhost:1/nothing"
MATCHES = "serve --port 0 --matches kafka://localhost:1"
STATISTICS = "spark statistics --input m.csv --kind messages --out x"

COMMANDS = [
    ("", "plot index scan --out index.png", "plots"),
    ("", "plot moving --out moving.gif", "plots"),
    ("", f"match {FILES} --map map.png", "plots"),
    ("", f"{STATISTICS} --plot x.png", "plots"),
    ("", "bench sliders --out x", "plots"),
    ("", "generate --dataset places --out data", "datasets"),
    ("", "bench compare", "bench"),
    ("", "bench start", "bench"),
    ("", "spark build --subscriptions s.csv --out index", "spark"),
    ("", "spark match --index-path index --messages m.csv --out matches", "spark"),
    ("", "serve --port 0", "server"),
    ("", "serve --port 0 --demo", "server"),
    ("", DATABASE, "server"),
    ("", MATCHES, "server"),
    ("", "keys create", "server"),
    ("", "audit data", "server"),
    ("", f"match {FILES} --tokenizer stem:english", "stem"),
    ("server", "serve --port 0 --demo", "datasets"),
    ("server", DATABASE, "postgres"),
    ("server", "keys list --database postgresql://nobody@localhost:1/nothing", "postgres"),
    ("server", MATCHES, "kafka"),
    ("server", "bench server", "bench"),
    ("postgres", DATABASE, "server"),
    ("kafka", MATCHES, "server"),
    ("datasets", "serve --port 0 --demo", "server"),
    ("datasets", f"match {FILES} --map map.png", "plots"),
    ("plots", f"{STATISTICS} --plot x.png", "spark"),
    ("bench", "bench start", "server"),
    ("bench", "bench server", "server"),
    ("bench", "bench spark", "spark"),
    ("spark", f"{STATISTICS} --plot x.png", "plots"),
]
"""An environment, a command, and the extra that it names."""

MODULES = {
    "nearcast.benchmarks": "bench",
    "nearcast.client": "client",
    "nearcast.plots": "plots",
    "nearcast.server": "server",
    "nearcast.spark": "spark",
    "nearcast.testing.strategies": "testing",
}


@pytest.mark.parametrize(("extras", "command", "needed"), COMMANDS)
def test_a_command_names_the_extra(
    extras: str,
    command: str,
    needed: str,
    environment: MakeEnvironment,
    tmp_path: Path,
) -> None:
    for name in ("s.csv", "m.csv"):
        (tmp_path / name).write_text("id,text,lon,lat,radius_m\n1,tea,0,0,10\n")
    said = environment(extras).nearcast(*command.split(), folder=tmp_path, code=1)
    assert f"pip install 'nearcast[{needed}]'" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("module", MODULES)
def test_an_import_names_the_extra(module: str, environments: Environments) -> None:
    assert environments.import_all("")[module] == f"extra: {MODULES[module]}"


@pytest.mark.parametrize(
    ("module", "needed"),
    [("nearcast.server.log.postgres", "postgres"), ("nearcast.server.kafka", "kafka")],
)
def test_a_part_of_the_server_names_the_extra(
    module: str, needed: str, environments: Environments
) -> None:
    assert environments.import_all("server")[module] == f"extra: {needed}"
