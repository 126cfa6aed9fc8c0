"""Dynamic buckets through table.write: keys stay where they are, buckets fill up, one writer at a time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.author import Author
from bucketline.state.commit.message import CommitMessage
from bucketline.state.errors import CommitConflictError
from bucketline.state.format.entries import CommitKind
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.state.store.write.table_at import table_at

COLUMNS = pa.schema([pa.field("p", pa.int32(), nullable=False), pa.field("id", pa.int64(), nullable=False),
                     ("v", pa.string())])  # fmt: skip


def dynamic(path: Path, **options: str) -> Table:
    chosen = {"bucket": "-1", **{k.replace("_", "-"): v for k, v in options.items()}}
    chosen = {("dynamic-bucket." + k if k in ("target-row-num", "max-buckets") else k): v for k, v in chosen.items()}
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("p", "id"), ("p",), chosen)


def rows(ids: np.ndarray, tag: str) -> pa.Table:
    return pa.table(
        {"p": pa.array(ids % 2, pa.int32()), "id": ids, "v": [f"{tag}-{i}" for i in range(len(ids))]}, schema=COLUMNS
    )


def index_of(table: Table) -> dict[tuple[bytes, int], int]:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    found = handle_of(table).manifests.read_index(newest.index_manifest)
    return {(e.partition, e.bucket): e.row_count for e in found}


def test_keys_keep_their_bucket_and_buckets_are_filled_to_the_target(tmp_path: Path) -> None:
    table, expected = dynamic(tmp_path, target_row_num="50"), dict[int, str]()
    random = np.random.default_rng(3)
    for batch in range(8):
        ids = random.integers(0, 600, 150)
        data = rows(ids, str(batch))
        table.write(data)
        expected |= dict(zip(ids.tolist(), data["v"].to_pylist(), strict=True))
        found = [(r["id"], r["v"]) for r in table.to_arrow().to_pylist()]
        assert len(found) == len(expected) and dict(found) == expected
    counts = index_of(table)
    assert max(counts.values()) == 50
    assert sum(counts.values()) == len(expected)
    for partition in {p for p, _ in counts}:
        assert sum(c < 50 for (p, _), c in counts.items() if p == partition) <= 1


def test_a_small_batch_opens_one_bucket(tmp_path: Path) -> None:
    table = dynamic(tmp_path)
    table.write(rows(np.arange(5), "a"))
    assert sorted(index_of(table).values()) == [2, 3]
    files = table.files().to_pylist()
    assert {f["bucket"] for f in files} == {0}


def test_deletes_and_updates_go_where_the_key_lives(tmp_path: Path) -> None:
    table = dynamic(tmp_path, target_row_num="2")
    table.write(rows(np.arange(8), "a"))
    table.write(rows(np.array([0, 7]), "b"), pa.array([3, 2], pa.int8()))
    table.compact()
    assert {r["id"]: r["v"] for r in table.to_arrow().to_pylist() if r["id"] in (0, 7)} == {7: "b-1"}
    assert sum(index_of(table).values()) == 8


def test_the_limit_on_buckets_is_per_partition(tmp_path: Path) -> None:
    table = dynamic(tmp_path, target_row_num="1", max_buckets="2")
    table.write(rows(np.arange(12), "a"))
    assert {bucket for _, bucket in index_of(table)} == {0, 1}
    assert table.to_arrow().num_rows == 12
    with pytest.raises(OptionError, match="max-buckets"):
        dynamic(tmp_path / "other", max_buckets="0")


def test_a_second_writer_at_the_same_time_is_refused(tmp_path: Path) -> None:
    table = dynamic(tmp_path)
    table.write(rows(np.arange(4), "a"))
    session = table_at(open_handle(table.path), {}).refreshed()
    write_table(handle_of(open_table(table.path)), rows(np.arange(4, 8), "b"))
    partition, bucket = next(session.view.buckets())
    with pytest.raises(CommitConflictError, match="one writer at a time"):
        commit_change(session, appended(session, [CommitMessage(partition, bucket, -1)]), Author("slow", 1))
    session = session.refreshed()
    table.compact()
    commit_change(session, appended(session, []), Author("slow", 1))


def test_statistics_that_somebody_commits_are_no_second_writer(tmp_path: Path) -> None:
    """Source: Paimon 2.0 AnalyzeTable commits a snapshot of kind ANALYZE that changes no row."""
    table = dynamic(tmp_path)
    table.write(rows(np.arange(4), "a"))
    session = table_at(open_handle(table.path), {}).refreshed()
    table.compact()
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None and newest.commit_kind is CommitKind.COMPACT
    analyzed = replace(newest, commit_kind=CommitKind.ANALYZE)
    handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(newest.id), encode_snapshot(analyzed))
    done = commit_change(session, appended(session, [], ignore_empty=False), Author("job", 1))
    assert done.snapshots[0].id == newest.id + 1
