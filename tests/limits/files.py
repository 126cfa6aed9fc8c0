"""Shapes of a table's files: many live data files.

The files are empty, and as large as their metadata says: no step reads one.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from bucketline.state.commit.author import Author
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import SYSTEM_IDS
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import bucket_path, data_file_name
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.table.table import create_table, open_table
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.types.binary_row import encode_row
from bucketline.state.types.logical import DataType
from tests.limits.rows import TABLE

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("number", pa.int64()), ("text", pa.string())])
BUCKETS = 100
COMMITS = 10
FILE_ROWS = 1000
FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FilesShape:
    """A table of 100 buckets with so many data files, which ten commits have added."""

    files: int

    @property
    def units(self) -> float:
        return self.files

    @property
    def of_a_bucket(self) -> int:
        return max(1, self.files // BUCKETS)

    def prepare(self, folder: Path) -> None:
        path = str(folder / TABLE)
        create_table(path, COLUMNS, ("id",), options={"bucket": str(BUCKETS), "write-only": "true"})
        at = table_at(open_handle(path), {}).refreshed()
        template = _template(folder)
        for turn in range(COMMITS):
            numbers = range(turn * self.of_a_bucket // COMMITS, (turn + 1) * self.of_a_bucket // COMMITS)
            if numbers:
                commit_change(at, appended(at, _messages(at, path, template, numbers)), Author("fill"))
                at = at.refreshed()


def plan_a_read(shape: FilesShape, folder: Path) -> None:
    """Opens the table and plans a read whose filter every file is compared with, and that no file passes."""
    assert open_table(str(folder / TABLE)).to_arrow(filter="id = -1").num_rows == 0


def list_files(shape: FilesShape, folder: Path) -> None:
    """Lists all live files with their bounds."""
    assert open_table(str(folder / TABLE)).files().num_rows == shape.of_a_bucket * BUCKETS


def find_orphans(shape: FilesShape, folder: Path) -> None:
    """Compares all files in the folders of the table with those that a snapshot names."""
    lost = folder / TABLE / "bucket-0" / "data-0-0.parquet"
    lost.write_bytes(b"lost")
    os.utime(lost, (0, 0))
    found = open_table(str(folder / TABLE)).remove_orphan_files(older_than=timedelta(days=1))
    assert [Path(file.path).name for file in found.files] == [lost.name]


def truncate(shape: FilesShape, folder: Path) -> None:
    """Commits that all files are gone."""
    table = open_table(str(folder / TABLE))
    table.truncate()
    assert table.files().num_rows == 0


def expire(shape: FilesShape, folder: Path) -> None:
    """Expires the snapshots that had the files, which are removed with them."""
    table = open_table(str(folder / TABLE))
    table.expire_snapshots(retain_min=1, retain_max=1)
    assert not list((folder / TABLE / "bucket-1").glob("data-*"))


def _template(folder: Path) -> DataFileMeta:
    """The metadata of a real file."""
    path = str(folder / "template.db" / "t")
    rows = {"id": np.arange(FILE_ROWS), "number": np.arange(FILE_ROWS), "text": ["text"] * FILE_ROWS}
    create_table(path, COLUMNS, ("id",), options={"bucket": "1"}).write(pa.table(rows, schema=COLUMNS))
    return table_at(open_handle(path), {}).refreshed().view.live_entries()[0].file


def _messages(at: TableAt, path: str, template: DataFileMeta, numbers: range) -> Iterator[CommitMessage]:
    schema = at.plan.schema
    types = [f.type for f in schema.select(schema.trimmed_primary_key)]
    for bucket in range(BUCKETS):
        files = tuple(_file(path, schema, template, bucket, number, types) for number in numbers)
        yield CommitMessage(EMPTY_ROW, bucket, BUCKETS, files)


def _file(
    path: str, schema: TableSchema, template: DataFileMeta, bucket: int, number: int, types: Sequence[DataType]
) -> DataFileMeta:
    low, high = (encode_row([number * FILE_ROWS + end], types) for end in (0, FILE_ROWS - 1))
    file = replace(
        template,
        file_name=data_file_name("data-", SYSTEM_IDS.new_uuid(), 0, "parquet"),
        file_size=FILE_BYTES,
        min_key=low,
        max_key=high,
        key_stats=replace(template.key_stats, min_values=low, max_values=high),
        min_sequence_number=number * FILE_ROWS,
        max_sequence_number=(number + 1) * FILE_ROWS - 1,
        level=0,
    )
    folder = f"{path}/{bucket_path(schema, EMPTY_ROW, bucket)}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{file.file_name}", "wb") as out:
        out.truncate(file.file_size)
    return file
