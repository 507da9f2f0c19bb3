"""How a server is told its topics, and which folders it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcast.errors import InvalidInput, StorageError
from nearcast.server.audit.audit import audit
from nearcast.server.kafka.topics import Topics
from nearcast.server.opening import Where, check_matches, open_service


def test_topics_have_names_that_can_be_chosen() -> None:
    assert Topics.parse("kafka://a:1,b:2") == Topics(
        "a:1,b:2", "nearcast-messages", "nearcast-changes", "nearcast-matches"
    )
    chosen = Topics.parse("kafka://a:1/?messages=m&changes=c&matches=f&config=x.properties")
    assert chosen == Topics("a:1", "m", "c", "f", Path("x.properties"))


@pytest.mark.parametrize(
    "url",
    [
        "http://a:1",
        "kafka://",
        "kafka:///topic",
        "kafka://a:1/topic",
        "kafka://a:1?topic=x",
        "kafka://a:1?matches=",
        "kafka://a:1?matches=x&messages=x",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        Topics.parse(url)


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# who we are\n\nsasl.username = ann\nsasl.password=a=b\n", encoding="utf-8")
    settings = Topics.parse(f"kafka://a:1?config={path}").settings(acks="all")
    assert settings["sasl.username"] == "ann"
    assert settings["sasl.password"] == "a=b"
    assert settings["bootstrap.servers"] == "a:1"
    assert settings["acks"] == "all"
    with pytest.raises(InvalidInput):
        Topics.parse(f"kafka://a:1?config={path}2").settings()


def test_a_folder_stays_what_it_is(tmp_path: Path) -> None:
    own = Where(tmp_path / "own")
    _open_and_close(own)
    with pytest.raises(InvalidInput, match="needs a new folder"):
        check_matches(Where(own.folder, matches="kafka://a:1"))
    remote = tmp_path / "remote"
    (remote / "kafka").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="is missing"):
        check_matches(Where(remote))
    assert _open_and_close(Where(remote))  # as `nearcast keys` does
    with pytest.raises(StorageError, match="matched by Spark"):
        audit(remote)


def _open_and_close(where: Where) -> bool:
    service = open_service(where)
    service.events.close()
    service.engine.close()
    service.log.close()
    service.state.close()
    return service.remote
