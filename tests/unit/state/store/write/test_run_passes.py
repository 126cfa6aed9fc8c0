"""A bucket with more runs than a merge can hold gets the same rows, whatever the merge engine does with them."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.bucket.accept_rows import accept_rows
from bucketline.state.commit.author import Author
from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.local_engine import seal_in_process
from bucketline.state.store.table.table import Table, create_table
from bucketline.state.store.write import bucket_writer
from bucketline.state.store.write.bucket_writer import CompactTrigger, read_alone
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.state.store.write.grouping import GivenBuckets
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.run_passes import few_runs, runs_at_once
from bucketline.state.store.write.sealed_runs import RunForm, RunSealer, SealedRun, seal, unseal
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_plan import WriteScope

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string()), ("n", pa.int64())])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sequence.field": "n"},
        {"merge-engine": "partial-update"},
        {"merge-engine": "aggregation", "fields.s.aggregate-function": "listagg", "fields.n.aggregate-function": "sum"},
        {"merge-engine": "first-row"},
        {"changelog-producer": "input"},
    ],
)
@pytest.mark.parametrize("limit", [2, 3, 7])
def test_passes_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], limit: int
) -> None:
    expected = written(tmp_path / "whole", options)
    monkeypatch.setattr(bucket_writer, "runs_at_once", lambda memory_bytes: limit)
    assert written(tmp_path / "passes", options) == expected
    assert list((tmp_path / "passes" / "spill").iterdir()) == []


def written(path: Path, options: dict[str, str]) -> tuple[object, list[object]]:
    """Rows and file counts of a table that got one batch of 17 runs."""
    table: Table = create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1", **options})
    session = table_at(open_handle(table.path), {"local-directory": str(path / "spill")}).refreshed()
    scope = WriteScope(CompactTrigger.NONE, "u")
    stages = session.plan.mode.stages(session.plan, session, scope, NO_ROWS)
    random = np.random.default_rng(5)
    with RunBuffer(budget_bytes=0, directory=str(path / "spill")) as buffer:
        for origin in range(17):
            sealer = RunSealer(stages.seal, origin=origin)
            ids, values = random.integers(0, 40, 60), random.integers(0, 9, 60)
            texts = [None if v % 3 == 0 else f"{origin}-{i}" for i, v in enumerate(values)]
            rows = pa.table({"id": ids, "s": texts, "n": pa.array(values, mask=values % 4 == 0)}, schema=COLUMNS)
            for run in (*sealer.add(accept_rows(rows, session.plan.schema)), *sealer.finish()):
                buffer.add(run)
        messages = [m for m in write_buckets(stages.write, buffer) if isinstance(m, CommitMessage)]
    commit_change(session, appended(session, messages), Author("u"))
    counts: list[object] = [
        (f.row_count, f.min_sequence_number, f.max_sequence_number)
        for m in messages
        for f in (*m.new_files, *m.changelog_files)
    ]
    return table.to_arrow().sort_by("id").to_pylist(), counts


def test_neighbours_are_merged_and_only_as_many_as_needed(tmp_path: Path) -> None:
    merged: list[int] = []

    def merge(runs: object) -> object:
        found = [b for run in runs for b in run]  # type: ignore[attr-defined]
        merged.append(len(found))
        return iter(found)

    def left(count: int, limit: int) -> list[list[int]]:
        runs = [iter([pa.record_batch({"n": [i]})]) for i in range(count)]
        with ExitStack() as stack:
            few = few_runs(runs, limit, merge, None, stack)  # type: ignore[arg-type]
            return [[n for b in run for n in b["n"].to_pylist()] for run in few]

    assert left(4, 4) == [[0], [1], [2], [3]] and merged == []
    assert left(5, 4) == [[0, 1], [2], [3], [4]] and merged == [2]
    assert left(9, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert [n for run in left(100, 3) for n in run] == list(range(100))
    assert runs_at_once(256 << 20) == 42 and runs_at_once(1 << 20) == 8


@pytest.mark.parametrize("run_bytes", [1 << 20, 100])
def test_rows_stay_rows_unless_they_are_cut_into_several_runs(run_bytes: int, tmp_path: Path) -> None:
    """A run that is a slice of rows would keep all of them in memory, also those that went to disk."""
    table: Table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    session = table_at(open_handle(table.path), {}).refreshed()
    stages = session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "u"), NO_ROWS)
    sealer = RunSealer(replace(stages.seal, form=RunForm.ROWS, run_bytes=run_bytes), origin=0)
    rows = pa.table({"id": range(60), "s": ["x"] * 60, "n": [1] * 60}, schema=COLUMNS)
    runs = [*sealer.add(accept_rows(rows, session.plan.schema)), *sealer.finish()]
    assert (len(runs) > 1) == (run_bytes == 100)
    assert {isinstance(run.blob, pa.Table) for run in runs} == {run_bytes > 100}
    assert pa.concat_tables([unseal(run.blob).read_all() for run in runs])["id"].to_pylist() == list(range(60))


def test_what_a_process_sorts_together_of_a_bucket_is_one_run_unless_the_source_gives_much_at_once(
    tmp_path: Path,
) -> None:
    """A bucket with most of the rows came in so many runs that they were merged twice."""
    table: Table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    session = table_at(open_handle(table.path), {}).refreshed()
    stages = session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "u"), NO_ROWS)
    rows = pa.table({"id": range(1000), "s": ["x" * 50] * 1000, "n": [1] * 1000}, schema=COLUMNS)
    sent = replace(stages.seal, budget_bytes=rows.nbytes // 4, run_bytes=rows.nbytes // 40)

    def runs_of(batch_rows: int) -> list[SealedRun]:
        given = (pa.Table.from_batches([batch]) for batch in rows.to_batches(max_chunksize=batch_rows))
        found = list(GivenRows(given).runs(seal_in_process(sent, 1, 1, sorting_bytes=1 << 20)))
        assert pa.concat_tables([unseal(run.blob).read_all() for run in found])["id"].to_pylist() == [*range(1000)]
        return found

    few, cut = runs_of(90), runs_of(1000)
    assert len(few) == 4 and all(isinstance(run.blob, pa.Table) for run in few)
    assert len(cut) == 3 and not any(isinstance(run.blob, pa.Table) for run in cut)


def test_the_only_run_of_a_bucket_is_read_in_large_batches() -> None:
    """A file of 1,000 columns was written in parts of 149 rows, each with a header for each column."""
    rows = pa.table({f"c{n}": pa.array(range(20_000), pa.int64()) for n in range(200)})
    assert [b.num_rows for b in read_alone(rows)] == [10_485, 9_515]
    assert len(list(unseal(rows))) > 20
    assert read_alone(seal(rows)).read_all() == rows


@pytest.mark.parametrize("buckets", [[3, 0, 3, 1, 0], [70_000, 3, 70_000, 9, 3], [-2, 5, -2, -1, 5]])
def test_runs_come_by_bucket_with_their_rows_in_order_however_large_the_numbers_are(
    buckets: list[int], tmp_path: Path
) -> None:
    table: Table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    session = table_at(open_handle(table.path), {}).refreshed()
    stages = session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "u"), NO_ROWS)
    sealer = RunSealer(replace(stages.seal, grouping=GivenBuckets(), keep_order=True), origin=0)
    rows = pa.table({"id": range(5), "s": ["x"] * 5, "n": [1] * 5}, schema=COLUMNS)
    accepted = accept_rows(rows, session.plan.schema)
    placed = replace(accepted, rows=accepted.rows.append_column(GivenBuckets.column, pa.array(buckets)))
    runs = [*sealer.add(placed), *sealer.finish()]
    expected = {b: [i for i, bucket in enumerate(buckets) if bucket == b] for b in sorted(set(buckets))}
    assert [run.bucket for run in runs] == list(expected)
    assert {run.bucket: unseal(run.blob).read_all()["id"].to_pylist() for run in runs} == expected
