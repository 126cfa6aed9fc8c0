"""Reading a whole table at once gives the rows of the stream of batches, in its order."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.state.sql.compute.condition import ALL_ROWS
from bucketline.state.store.read.merge_read import parts_of, read_buckets
from bucketline.state.store.read.projection import plan_projection
from bucketline.state.store.read.table_read import ReadRequest, file_access, index_entries, plan_rows
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("p", pa.string())])
_ROWS = 75_000


def _rows(seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    ids, values = draw.permutation(2 * _ROWS)[:_ROWS], draw.integers(0, 2**62, (4, _ROWS))
    return pa.table([ids, values[0], pa.array(["".join(map(str, v)) for v in values.T.tolist()])], schema=SCHEMA)


def _made(path: Path, name: str) -> Table:
    """A table of several megabytes: files that overlap and files that do not, on several levels."""
    keyed = name != "append"
    options = {"bucket": "3", "target-file-size": "600 kb"} | ({} if keyed else {"bucket-key": "id"})
    if name == "deletion vectors":
        options["deletion-vectors.enabled"] = "true"
    if name == "merge on read":
        options["write-only"] = "true"
    table = create_table(str(path), SCHEMA, ["id"] if keyed else [], options=options)
    table.write(_rows(0))
    if keyed:
        table.compact()
    for seed in (1, 2):
        table.write(_rows(seed).filter(pc.field("id") < _ROWS // 2))
    return open_table(str(path))


@pytest.mark.parametrize("name", ["merge on read", "deletion vectors", "append"])
def test_a_whole_read_equals_the_stream_of_batches_part_by_part(tmp_path: Path, name: str) -> None:
    table = _made(tmp_path / "t", name)
    assert sum(table.files()["file_size_in_bytes"].to_pylist()) > 4 << 20
    for columns, condition in ((None, None), (["v"], pc.field("id") < _ROWS)):
        streamed = table.to_batches(columns, condition).read_all()
        assert table.to_arrow(columns, condition).equals(streamed)
        assert streamed.num_rows > 1000
    plan = plan_rows(handle_of(table), ReadRequest())
    (planned,) = plan.planned
    access = file_access(handle_of(table), planned.view.schema, index_entries(planned.view))
    projection = plan_projection(planned.view.schema, None, ALL_ROWS)
    for bucket in planned.buckets:
        parts = parts_of(access.schema, bucket)
        assert len(parts) > 1
        assert sorted(f.file_name for p in parts for f in p.files) == sorted(f.file_name for f in bucket.files)
        found = pa.Table.from_batches([b for p in parts for b in read_buckets(access, [p], projection)])
        assert found.equals(pa.Table.from_batches(read_buckets(access, [bucket], projection)))
