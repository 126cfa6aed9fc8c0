"""The sink with Spark's part played in this process: what a restart finds, and shares of keys."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table import Table, create_table, open_table
from bucketline.streaming.identity import BatchIdentity
from bucketline.streaming.live_table import MARKER_TAG, LiveTable, forget_table
from bucketline.streaming.sink import TableSink
from tests.support.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])


def as_is(records: pa.Table) -> tuple[pa.Table, None]:
    return records, None


def write(table: Table, number: int, **options: str) -> None:
    identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
    data = pa.table({"id": range(50), "v": [number] * 50, "pt": pa.array([(number + i) % 3 for i in range(50)])})
    frame = Cluster(random.Random(number), 4).frame(data.cast(COLUMNS), 2)
    TableSink(table.path, {k.replace("_", "-"): v for k, v in options.items()}, decode=as_is).write(frame, identity)


def test_a_batch_that_died_right_after_its_commit_moves_its_marker_when_it_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "2"})
    write(table, 0)

    class Died(BaseException):
        pass

    def die(self: LiveTable, snapshot: object) -> None:
        raise Died

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(LiveTable, "mark", die)
        write(table, 1)
    forget_table(table.path, "query")
    write(table, 1)
    assert [s["commit_identifier"] for s in table.snapshots().to_pylist() if s["commit_kind"] == "APPEND"] == [0, 1]
    tags = {t["tag_name"]: t["snapshot_id"] for t in table.tags().to_pylist()}
    assert tags[f"{MARKER_TAG}query"] == 2
    # Others expire what the batch left: the marker proves it all the same.
    forget_table(table.path, "query")
    open_table(table.path).compact()
    table.expire_snapshots(retain_max=1, retain_min=1)
    write(table, 2)
    assert set(table.to_arrow()["v"].to_pylist()) == {2}


def test_no_more_tasks_share_the_keys_than_buckets_may_exist(tmp_path: Path) -> None:
    options = {"bucket": "-1", "dynamic-bucket.max-buckets": "2"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), options)
    for number in range(3):
        write(table, number, local_directory=str(tmp_path / "local"), assigner_parallelism="7")
    assert {f["bucket"] for f in table.files().to_pylist()} == {0, 1}
    assert table.to_arrow().num_rows == 50
