"""Tables on Google's storage, as far as an emulator shows it; a store that cannot keep the condition is only read."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import create_table, handle_of, open_table
from tests.support.servers.fake_gcs import FakeGcs

pytestmark = pytest.mark.stores

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string()), ("n", pa.int32())])


def test_a_table_on_a_store_without_the_condition_is_read_and_not_written(fake_gcs: FakeGcs, tmp_path: Path) -> None:
    made = create_table(str(tmp_path / "t"), COLUMNS, ("id", "day"), ("day",), {"bucket": "1"})
    for n in range(4):
        made.write(pa.table({"id": range(20), "day": [f"a b%{i % 2}" for i in range(20)], "n": [n] * 20}, COLUMNS))
    uri = fake_gcs.new_copy(tmp_path / "t")
    table = open_table(uri, storage_options=fake_gcs.bare_storage)
    assert table.to_arrow().sort_by("id")["n"].to_pylist() == [3] * 20
    assert table.to_arrow(columns=["id"], filter="day = 'a b%1' AND id > 10")["id"].to_pylist() == [11, 13, 15, 17, 19]
    assert examine(open_to_examine(uri, storage_options=fake_gcs.bare_storage), rows=True) == []
    before = [f.path for f in handle_of(table).io.list_files(table.path)]
    with pytest.raises(UnsupportedTableError, match="'lake'"):
        table.write(pa.table({"id": [1], "day": ["x"], "n": [1]}, COLUMNS))
    assert [f.path for f in handle_of(table).io.list_files(table.path)] == before


def test_files_on_fake_gcs_are_read_by_ranges_and_listed(fake_gcs: FakeGcs, tmp_path: Path) -> None:
    content = bytes(range(256)) * 16_384
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "large").write_bytes(content)
    (tmp_path / "empty").write_bytes(b"")
    uri = fake_gcs.new_copy(tmp_path)
    io, root = file_io_for(uri, fake_gcs.storage)
    assert io.list_names(root) == ["empty", "sub"] and io.read(f"{root}/empty") == b""
    with io.open_input(f"{root}/sub/large") as source:
        assert source.read_at(1000, 77) == content[77:1077] and source.size() == len(content)
    with pytest.raises(StorageError) as caught:
        io.read(f"{root}/none")
    assert caught.value.fields["missing"] is True
