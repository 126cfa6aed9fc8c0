"""Bucket modes: each is an object of its own, and only cross-partition tables need RocksDB."""

import subprocess
import sys
from pathlib import Path

import pytest

from bucketline.state.bucket.mode import BucketMode, bucket_mode
from bucketline.state.store.table.table import create_table, handle_of
from bucketline.state.store.write.modes import mode_of

_WRITE = """
import sys
import pyarrow as pa
from bucketline.state.store.table.write import write_table
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.streaming.tasks import spark_engine
write_table(open_handle(sys.argv[1]), pa.table({"id": [1, 2], "p": [1, 2]}))
print("rocksdict" in sys.modules)
"""

OPTIONS = {
    BucketMode.FIXED: ("2", ("id",), ()),
    BucketMode.DYNAMIC: ("-1", ("id",), ()),
    BucketMode.CROSS_PARTITION: ("-1", ("id",), ("p",)),
    BucketMode.POSTPONE: ("-2", ("id",), ()),
    BucketMode.UNAWARE: ("-1", (), ()),
}


@pytest.mark.parametrize("mode", BucketMode, ids=lambda mode: mode.value)
def test_only_cross_partition_tables_load_rocksdb(tmp_path: Path, mode: BucketMode) -> None:
    bucket, keys, partitions = OPTIONS[mode]
    columns = "id BIGINT NOT NULL, p BIGINT NOT NULL"
    table = create_table(str(tmp_path / "shop.db" / "t"), columns, keys, partitions, {"bucket": bucket})
    assert bucket_mode(handle_of(table).table_schema) is mode
    command = [sys.executable, "-c", _WRITE, table.path]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.strip()
    assert found == str(mode is BucketMode.CROSS_PARTITION)
    assert table.to_arrow().num_rows == (0 if mode is BucketMode.POSTPONE and table.files().num_rows == 0 else 2)


def test_every_mode_has_an_object_of_its_own(tmp_path: Path) -> None:
    found = set()
    for number, (bucket, keys, partitions) in enumerate(OPTIONS.values()):
        columns = "id BIGINT NOT NULL, p BIGINT NOT NULL"
        table = create_table(str(tmp_path / "shop.db" / f"t{number}"), columns, keys, partitions, {"bucket": bucket})
        found.add(type(mode_of(handle_of(table).table_schema)))
    assert len(found) == len(BucketMode)
