"""A job cannot choose what only the table may decide: nothing is written then, whatever the way in."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.table.fixed_options import check_job_options
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.store.table.write import write_table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int32())])


def keyed(path: Path, **options: str) -> Table:
    return create_table(str(path / "shop.db" / "t"), COLUMNS, primary_key=("id",), options={"bucket": "2", **options})


def rows() -> pa.Table:
    return pa.table({"id": [1, 2], "name": ["a", "b"], "n": pa.array([1, 2], pa.int32())}, schema=COLUMNS)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("bucket", "-1"),
        ("bucket", "4"),
        ("bucket-key", "name"),
        ("bucket-function.type", "mod"),
        ("primary-key", "n"),
        ("merge-engine", "aggregation"),
        ("fields.n.aggregate-function", "sum"),
        ("sequence.field", "n"),
        ("sequence.field.sort-order", "descending"),
        ("rowkind.field", "name"),
        ("ignore-delete", "true"),
        ("deduplicate.ignore-delete", "true"),
        ("partition.default-name", "none"),
    ],
)
def test_options_that_shape_the_table_are_refused_in_a_job(tmp_path: Path, key: str, text: str) -> None:
    table = keyed(tmp_path)
    table.write(rows())
    for run in (write_table, compact_table):
        arguments = (handle_of(table), rows()) if run is write_table else (handle_of(table),)
        with pytest.raises(OptionError, match="cannot be set by a job") as caught:
            run(*arguments, options={key: text})  # type: ignore[operator]
        assert caught.value.fields["key"] == key
    assert table.snapshots().num_rows == 1


def test_a_job_may_repeat_what_the_table_says_and_set_the_rest(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    job = {
        "bucket": "2",
        "merge-engine": "deduplicate",
        "target-file-size": "1 mb",
    }
    assert write_table(handle_of(table), rows(), options=job) == 1
    check_job_options({"ignore-delete": "false"}, {})
    check_job_options({"ignore-delete": "true"}, {"deduplicate.ignore-delete": "true"})
