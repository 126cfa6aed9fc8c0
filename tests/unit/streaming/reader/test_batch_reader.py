"""The reader of a batch without Spark: what its processes do, one after the other."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.reader_options import reader_options
from bucketline.state.errors import SchemaMismatchError, SnapshotExpiredError, UnsupportedTableError
from bucketline.state.store.table.table import Table, create_table
from bucketline.streaming.reader.batch_reader import BatchReader, PushingReader, planned_schema, unchecked_read
from bucketline.streaming.reader.source import BucketlineSource
from tests.unit.streaming.reader.test_pushed_filters import named


def keyed(path: Path) -> Table:
    found = create_table(str(path / "w/s.db/t"), "id BIGINT NOT NULL, n INT", ["id"], options={"bucket": "1"})
    for first in (0, 100):
        found.write(pa.table({"id": range(first, first + 100), "n": pa.array([first] * 100, pa.int32())}))
    found.compact()
    return found


def rows(reader: BatchReader) -> list[dict[str, object]]:
    sent = pickle.loads(pickle.dumps(reader))
    batches = [b for p in pickle.loads(pickle.dumps(list(reader.partitions()))) for b in sent.read(p)]
    return [row for b in batches for row in b.to_pylist()]


def test_a_source_travels_between_its_processes(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    source = BucketlineSource({"path": table.path, "columns": "n,id"})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    assert type(reader) is BatchReader  # Spark refuses one that can push filters down, unless it has asked for it
    found = rows(reader)
    assert len(found) == 200
    assert found[0] == {"n": 0, "id": 0}


def test_versions_are_snapshots_tags_and_times(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.create_tag("first", 1)
    at = table.snapshots()["commit_time"][0].as_py().isoformat()
    for given in ({"tag": "first"}, {"snapshot": "1"}, {"timestamp": at}, {"scan.snapshot-id": "1"}):
        reader = BatchReader(unchecked_read(reader_options({"path": table.path, **given})))
        assert len(rows(reader)) == 100
    changes = {"path": table.path, "changes-since": "0", "changes-until": "first", "read.changelog": "false"}
    found = rows(BatchReader(unchecked_read(reader_options(changes))))
    assert (len(found), found[0]) == (100, {"id": 0, "n": 0})


def test_an_empty_table_has_no_splits_and_no_rows(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "w/s.db/t"), "id BIGINT")
    reader = BucketlineSource({"path": table.path}).reader(BucketlineSource({"path": table.path}).schema())
    assert list(reader.partitions()) == []
    assert list(reader.read(None)) == []


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_write_through_the_format_is_refused_with_the_ways_to_write(overwrite: bool, tmp_path: Path) -> None:
    source = BucketlineSource({"path": keyed(tmp_path).path})
    for writer in (source.writer, source.streamWriter):
        with pytest.raises(
            UnsupportedTableError, match=r"only reads\. To write a DataFrame, .* INSERT INTO .*TableSink"
        ):
            writer(source.schema(), overwrite)


def test_pushed_filters_leave_out_files_and_rows_and_stay_with_spark(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    reader = PushingReader(unchecked_read(reader_options({"path": table.path, "filter": "id <> 150"})))
    filters = [named("GreaterThan", "id", 148), named("LessThan", "id", 153)]
    assert reader.pushFilters(filters) is filters
    assert [row["id"] for row in rows(reader)] == [149, 151, 152]
    reader.pushFilters([named("EqualTo", "id", 1000)])
    assert list(reader.partitions()) == []


def test_files_that_expire_before_they_are_read_are_a_clear_error(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    reader = BatchReader(unchecked_read(reader_options({"path": table.path, "snapshot": "1"})))
    planned = list(reader.partitions())
    table.expire_snapshots(retain_max=1, retain_min=1)
    with pytest.raises(SnapshotExpiredError, match=r"snapshot 1 no longer exists.*run the action again") as caught:
        [b for p in planned for b in reader.read(p)]
    assert caught.value.fields["snapshot"] == 1


def test_change_columns_that_the_table_has_itself_are_refused(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "w/s.db/t"), "id BIGINT NOT NULL, _change_type STRING", ["id"])
    with pytest.raises(SchemaMismatchError, match=r"'_change_type', .*'read.changelog' = false"):
        planned_schema(unchecked_read(reader_options({"path": table.path, "changes-since": "0"})))
