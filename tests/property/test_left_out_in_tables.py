"""Updates that leave values out, written into tables in drawn batches, against a reference that goes row by row."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketline.state.commit.author import Author
from bucketline.state.commit.change import AppendCheck
from bucketline.state.errors import CommitConflictError
from bucketline.state.lsm.merge.left_out import pack_left_out
from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.table import handle_of, open_table
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.store.write.write_plan import WriteScope
from bucketline.state.types.arrow import UNAVAILABLE
from tests.support.peers.our_tables import make_table

NAMES = ("k", "a", "b", "c")
COLUMNS = {"k": "INT NOT NULL", "a": "STRING", "b": "ARRAY<INT>", "c": "STRING NOT NULL"}
Row = tuple[int, int, tuple[Any, Any, Any], tuple[bool, bool, bool]]
KINDS = {
    "fixed": {"bucket": "2"},
    "small writes": {"bucket": "1", "compaction": "none"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
    "deletion vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "lookup": {"bucket": "2", "changelog-producer": "lookup"},
    "small runs": {"bucket": "1"},
}
OURS = ("compaction",)


def drawn_batches() -> st.SearchStrategy[list[list[Row]]]:
    text, numbers = st.text("abc", max_size=3), st.lists(st.integers(0, 9), max_size=3)
    values = st.tuples(st.none() | text, st.none() | numbers, text)
    left_out = st.tuples(*(st.booleans() for _ in range(3)))
    row = st.tuples(st.integers(0, 5), st.sampled_from((0, 2, 2, 3)), values, left_out)
    return st.lists(st.lists(row, min_size=1, max_size=12), min_size=1, max_size=6)


def as_table(rows: list[Row]) -> pa.Table:
    left_out = {n: np.array([r[3][i] and r[1] != 3 for r in rows]) for i, n in enumerate(NAMES[1:])}
    blanks = (None, None, "")
    kinds = (pa.string(), pa.list_(pa.int32()), pa.string())
    columns: dict[str, Any] = {"k": pa.array([r[0] for r in rows], pa.int32())}
    for i, name in enumerate(NAMES[1:]):
        shown = [blanks[i] if left_out[name][n] else r[2][i] for n, r in enumerate(rows)]
        columns[name] = pa.array(shown, kinds[i])
    columns["_row_kind"] = pa.array([r[1] for r in rows], pa.int8())
    columns[UNAVAILABLE] = pack_left_out(left_out, NAMES, len(rows))
    return pa.table(columns)


def follow(state: dict[int, list[Any]], rows: list[Row]) -> tuple[dict[int, list[Any]], list[int]]:
    """The table after a batch, and the keys whose last row finds no value: what is known of them before stays, unless a
    delete came before."""
    now: dict[int, list[Any] | None] = dict(state)
    for key, kind, values, left_out in rows:
        known = now.get(key)
        if kind == 3:
            now[key] = None
            continue
        now[key] = [(["?"] * 3 if known is None else known)[i] if left_out[i] else values[i] for i in range(3)]
    refused = [key for key, row in now.items() if row is not None and "?" in row]
    kept = {key: row for key, row in now.items() if row is not None and key not in refused}
    return kept, sorted(refused)


def plan(path: Path, options: dict[str, str]) -> TableAt:
    return table_at(handle_of(open_table(str(path))), options).refreshed()


def write(at: TableAt, tables: list[pa.Table], *, small_runs: bool = False) -> list[int]:
    """Writes the rows as a stream does; the keys of refused rows."""
    refused: list[pa.Table] = []
    stages = at.plan.mode.stages(at.plan, at, WriteScope(at.plan.trigger(0), "me"), Parts([GivenRows(tables)]))
    bucket_write = replace(stages.write.write, refuse=refused.append)
    stages = replace(
        stages, write=replace(stages.write, write=bucket_write, states=at.with_stored(stages.write.states))
    )
    if small_runs:
        stages = replace(stages, seal=replace(stages.seal, budget_bytes=1, run_bytes=1))
    outcome = LOCAL_ENGINE.run(stages)
    commit_change(at, appended(at, outcome.messages, check=AppendCheck.ROWS_READ), Author("me"))
    return sorted(key for table in refused for key in table["k"].to_pylist())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(batches=drawn_batches())
def test_tables_have_the_newest_value_that_was_sent(
    tmp_path_factory: pytest.TempPathFactory, kind: str, batches: list[list[Row]]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    stored = {n: text for n, text in KINDS[kind].items() if n not in OURS}
    own = {n: text for n, text in KINDS[kind].items() if n in OURS}
    make_table(folder / "t", COLUMNS, primary_key=["k"], options=stored)
    state: dict[int, list[Any]] = {}
    for rows in batches:
        half = len(rows) // 2 if kind == "small runs" else 0
        tables = [as_table(part) for part in (rows[:half], rows[half:]) if part]
        refused = write(plan(folder / "t", own), tables, small_runs=kind == "small runs")
        before = state
        state, expected = follow(state, rows)
        # A row that is refused leaves what the table has, unless a delete came before.
        for key in expected:
            deleted = any(r[0] == key and r[1] == 3 for r in rows)
            if key in before and not deleted:
                state[key] = before[key]
        assert refused == expected
    shown = open_table(str(folder / "t")).to_arrow().to_pylist()
    assert {row["k"]: [row[n] for n in NAMES[1:]] for row in shown} == state
    shutil.rmtree(folder)


def test_a_commit_fails_where_somebody_has_changed_the_row_since(tmp_path: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, primary_key=["k"], options={"bucket": "1"})
    write(plan(tmp_path / "t", {}), [as_table([(1, 0, ("old", [1], "x"), (False,) * 3)])])
    at = plan(tmp_path / "t", {})
    write(plan(tmp_path / "t", {}), [as_table([(1, 2, ("new", [2], "y"), (False,) * 3)])])
    update = as_table([(1, 2, (None, [3], ""), (True, False, True))])
    with pytest.raises(CommitConflictError) as raised:
        write(at, [update])
    assert raised.value.rule == "rows-changed"
    write(plan(tmp_path / "t", {}), [update])
    assert open_table(str(tmp_path / "t")).to_arrow().to_pylist() == [{"k": 1, "a": "new", "b": [3], "c": "y"}]
