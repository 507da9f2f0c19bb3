"""Servers as users install them: with the demo, with PostgreSQL, with Kafka, and until Ctrl-C."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .processes import Api, check_delivery, serving

if TYPE_CHECKING:
    from pathlib import Path

    from .environments import MakeEnvironment


def test_a_server_delivers_until_ctrl_c(environment: MakeEnvironment, tmp_path: Path) -> None:
    with serving(environment("server"), tmp_path) as server:
        check_delivery(server.api)
        code, said = server.process.interrupt()
        assert "Traceback" not in said
        assert server.process.is_gone()
        assert code == 0


def test_the_demo_shows_its_page_and_messages_flow(
    environment: MakeEnvironment, tmp_path: Path
) -> None:
    with serving(environment("server,datasets"), tmp_path, "--demo") as server:
        visitor = Api(server.api.url)
        with visitor.open("/") as page:
            assert page.status == 200
            assert b"Nearcast" in page.read()
        signed_in = Api(visitor.url, visitor.json("/v1/sign-in", {})["token"])
        cursor, types = "earliest", set[str]()
        while "org.nearcast.match" not in types:
            polled = signed_in.json(f"/v1/events?poll=1&waitS=30&cursor={cursor}")
            types |= {event["type"] for event in polled["events"]}
            cursor = polled["cursor"]
        code, said = server.process.interrupt()
        assert "Traceback" not in said
        assert code == 0


def test_a_server_keeps_its_log_in_postgresql(
    environment: MakeEnvironment, database: str, tmp_path: Path
) -> None:
    with serving(environment("server,postgres"), tmp_path, "--database", database) as server:
        check_delivery(server.api)
        assert not (server.folder / "log").exists()


def test_postgres_brings_the_library_of_postgresql(
    environment: MakeEnvironment, tmp_path: Path
) -> None:
    code = "import psycopg; print(psycopg.pq.__impl__)"
    assert environment("postgres").code(code, folder=tmp_path) == "binary\n"


def test_kafka_is_asked_with_the_settings_of_a_file(
    environment: MakeEnvironment, tmp_path: Path
) -> None:
    # Only librdkafka knows that there is no such setting. It would wait long for a broker.
    (tmp_path / "client.properties").write_text("no.such.setting=1\n")
    topics = "kafka://localhost:1?config=client.properties"
    words = ("serve", "data", "--port", "0", "--matches", topics)
    said = environment("server,kafka").nearcast(*words, folder=tmp_path, code=1)
    assert "Kafka at localhost:1" in said
    assert "no.such.setting" in said
    assert len(said.splitlines()) == 1


def test_kafka_brings_its_client(environment: MakeEnvironment, tmp_path: Path) -> None:
    code = "import confluent_kafka; print(confluent_kafka.libversion()[0])"
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", environment("kafka").code(code, folder=tmp_path))
