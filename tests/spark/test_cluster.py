"""Everything that is distributed, on two executors that share nothing but the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from generated import message_table, scanned, subscription_table
from pyarrow import parquet

SPARK = Path(pyspark.__file__).parent


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which Spark lies in a folder of its own: workers write there."""
    home = folder / "spark"
    home.mkdir()
    for part in SPARK.iterdir():
        if part.name != "work":
            (home / part.name).symlink_to(part)
    return {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="the job looks at its processes in /proc")
def test_a_pipeline_on_separate_executors(tmp_path: Path) -> None:
    subscriptions = subscription_table(150, faulty=0.05)
    twice = pa.concat_tables([subscriptions, subscriptions.slice(0, 20)])
    messages = message_table(80, faulty=0.1)
    messages = messages.set_column(
        messages.column_names.index("time"),
        "time",
        messages["time"].fill_null(messages["time"].drop_null()[0]),
    )
    parquet.write_table(twice, tmp_path / "subscriptions.parquet")
    parquet.write_table(messages, tmp_path / "messages.parquet")
    installed = set(SPARK.iterdir())
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("cluster_job.py")), str(tmp_path)],
        env=_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    expected = [list(pair) for pair in scanned(subscriptions, messages)]
    assert told["executors"] == 2
    assert told["shards"] == 3
    assert told["replicated"] == told["sharded"] == expected
    clean = told["prepared"]["clean"]
    assert told["replicated messages"] == told["sharded messages"] == clean < len(messages)
    assert told["duplicates"] > 0
    assert told["rejected"] > 0
    assert (tmp_path / "spark" / "work").exists()
    assert set(SPARK.iterdir()) == installed
