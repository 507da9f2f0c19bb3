"""The same rows in every format: Spark accepts and rejects what `nearcast.intake` does."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from same_rows import FORMATS, KINDS, rows_of, write

from effort import examples
from nearcast.intake import Rejects, open_table, read_messages, read_subscriptions
from nearcast.spark import prepare, read_files
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = 12
Reject = tuple[int, str, str, str]


def content(table: pa.Table, kind: str) -> tuple[list[str], Any]:
    """Return the ids of valid rows, and what is known of these."""
    vocabulary = Vocabulary()
    if kind == "messages":
        batch, rejects = read_messages(table, now_us=7, unique=False)
        numbered = batch.number(vocabulary, add=True)
        tokens = [sorted(numbered.token[a:b].tolist()) for a, b in pairwise(numbered.token_start)]
        found: Any = batch.box.tolist(), batch.time_us.tolist(), batch.ttl_us.tolist(), tokens
        return [str(id) for id in batch.ids.tolist()], (found, len(rejects))
    read, rejects = read_subscriptions(table, vocabulary, unique=False)
    arrays = [getattr(read.clauses, field.name) for field in fields(read.clauses)]
    found = [one.tolist() for one in arrays if isinstance(one, np.ndarray)]
    found += [read.owner and read.owner.to_pylist(), read.expires_us.tolist()]
    return [str(id) for id in read.ids.tolist()], (found, len(rejects))


def by_intake(path: Path, kind: str) -> tuple[list[str], Any, list[Reject]]:
    """Return the valid rows of a file and its rejects, as ``nearcast match`` reads it."""
    tables, rejects = [], []
    for batch in open_table(path, kind=kind):
        if kind == "messages":
            _, wrong = read_messages(batch.table, now_us=7, source=batch, unique=False)
        else:
            _, wrong = read_subscriptions(batch.table, Vocabulary(), source=batch, unique=False)
        valid = ~np.isin(batch.rows, wrong.row)
        tables.append(batch.table.filter(pa.array(valid)))
        rejects += [batch.rejects, wrong]
    ids, known = content(pa.concat_tables(tables, promote_options="default"), kind)
    found = Rejects.concatenate(rejects)
    return ids, known, sorted(zip(found.row.tolist(), *_texts(found), strict=True))


def _texts(rejects: Rejects) -> tuple[tuple[str, ...], ...]:
    return rejects.field, rejects.reason, rejects.record


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(
    max_examples=examples(2), deadline=None, suppress_health_check=[*HealthCheck], derandomize=False
)
def test_spark_reads_every_format_as_intake_does(
    spark: SparkSession, kind: str, data: st.DataObject
) -> None:
    """Many cases in one job, because a job takes longer than all of them."""
    case = st.tuples(rows_of(kind), st.booleans())
    cases = data.draw(st.lists(case, min_size=CASES, max_size=CASES))
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for number, (rows, typed) in enumerate(cases):
            own = Path(folder, f"case{number}")
            own.mkdir()
            for extension in FORMATS:
                path = write(own, kind, rows, extension, typed=typed)
                paths[path.relative_to(folder).as_posix()] = path
        frame = read_files(spark, folder, kind)
        table = frame.toArrow()
        prepared = prepare(frame, kind, duplicates="keep")
        clean = prepared.rows.toArrow()
        counts = prepared.check()
        rejects = prepared.rejects.toArrow().to_pylist()
        accepted: Counter[str] = Counter()
        for name, path in paths.items():
            ids, known, wanted = by_intake(path, kind)
            own_rows = table.filter(pc.equal(table["_file"], name)).sort_by("_line")
            valid = own_rows.filter(pc.is_null(own_rows["_rejected"]))
            assert content(valid, kind) == (ids, known), name
            found = [
                (row["row"], row["field"], row["reason"], row["record"])
                for row in rejects
                if row["file"] == name
            ]
            assert sorted(found) == wanted, name
            accepted.update(ids)
    assert (
        counts["read"]
        == counts["clean"] + counts["rejected"]
        == len(FORMATS) * sum(len(rows) for rows, _ in cases)
    )
    cleaned, (_, invalid) = content(clean, kind)
    assert Counter(cleaned) == accepted
    assert invalid == 0
