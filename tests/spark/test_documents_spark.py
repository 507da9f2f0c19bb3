"""The blocks of the pages about Spark run, from top to bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from java_folder import java_folder
from pages import PAGES, ROOT, is_about_kafka, is_about_spark, run_page

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ABOUT_SPARK = [page for page in PAGES if is_about_spark(page) and not is_about_kafka(page)]


@pytest.mark.parametrize("page", ABOUT_SPARK, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, spark: SparkSession, tmp_path: Path) -> None:
    """The commands and the Python of a page use the session of all tests."""
    with java_folder(spark, tmp_path):
        assert run_page(page, tmp_path) > 0
