"""Version files name stored folders inside of their index, and no others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nearcast.errors import StorageError
from nearcast.spark.artifact.versions import SegmentRef, ShardRef, Stored, Version

SOUND = Stored("data/0a1b2c", "d1" * 32, 1_000)
OUTSIDE = [
    "",
    "data",
    "data/",
    "data/..",
    "data/../..",
    "../data/0a1b2c",
    "data/../../other/data/0a1b2c",
    "/data/0a1b2c",
    "//data/0a1b2c",
    "data//0a1b2c",
    "data/.",
    "data/a/b",
    "data\\0a1b2c",
    "data/..\\..\\x",
    "data/0a\0",
    "data/0a\n",
    "work/0a1b2c",
    "versions/00000001.json",
    "C:/data/0a",
    "s3://data/0a",
]


def version_with(place: str, stored: Stored) -> Version:
    data = stored if place == "data" else SOUND
    dead = stored if place == "dead" else SOUND
    router = stored if place == "router" else SOUND
    shard = ShardRef((SegmentRef(data, 7, dead, 1),))
    return Version("trie-pyramid", {}, "string", (shard,), router, number=1)


@pytest.mark.parametrize("place", ["data", "dead", "router"])
def test_names_outside_of_the_index_are_refused(place: str) -> None:
    assert Version.parse(version_with(place, SOUND).render(), "x") == version_with(place, SOUND)
    for name in OUTSIDE:
        # The checksum of the file is right: only the name is wrong.
        crafted = version_with(place, replace(SOUND, name=name)).render()
        assert json.loads(crafted)["sha256"]
        with pytest.raises(StorageError):
            Version.parse(crafted, "versions/00000001.json")


@pytest.mark.parametrize("digest", ["", "../../x", "/etc", "D1" * 32, "d1" * 31, "d1" * 32 + "\n"])
def test_digests_that_are_no_digests_are_refused(digest: str) -> None:
    # Copies of remote folders have the digest as their name.
    crafted = version_with("data", replace(SOUND, digest=digest)).render()
    with pytest.raises(StorageError):
        Version.parse(crafted, "versions/00000001.json")
