"""The blocks of the pages about Kafka run, with a real broker."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

import pytest

from java_folder import java_folder
from pages import PAGES, ROOT, is_about_kafka, run_page

if TYPE_CHECKING:
    from pathlib import Path

    from .client import Kafka

ADDRESS = "localhost:9092"
ABOUT_KAFKA = [page for page in PAGES if is_about_kafka(page)]


@pytest.mark.parametrize("page", ABOUT_KAFKA, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(
    page: Path, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says that topics are created first; the session has the connector as jars."""
    kafka.create(*sorted(set(re.findall(rf"kafka://{ADDRESS}/([\w-]+)", page.read_text()))))
    own = importlib.import_module("nearcast.spark.session")
    monkeypatch.setattr(own, "_require_packages", lambda *_: None)
    with java_folder(kafka.spark, tmp_path):
        assert run_page(page, tmp_path, {ADDRESS: kafka.address}) > 0
