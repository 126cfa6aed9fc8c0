"""Records that cannot be written: what the job says of them, and which setting it names."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.bad_records.place import BatchName, settle_bad_records
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA, RejectedRecordsError, pack_rejects


def rejects(count: int) -> bytes:
    rows = [
        {"topic": "orders", "partition": 0, "offset": i, "reason": "field id: no number", "value": b"{}"}
        for i in reversed(range(count))
    ]
    return pack_rejects(pa.Table.from_pylist(rows, schema=REJECTS_SCHEMA))


@pytest.mark.parametrize(
    ("path", "most", "says", "does_not_say"),
    [
        (None, 0, "set bad-records.path and bad-records.max", "which is"),
        (None, 5, "set bad-records.path, the folder that stores them", "raise"),
        ("folder", 0, "raise bad-records.max, which is 0", "set bad-records.path"),
        ("folder", 2, "raise bad-records.max, which allows 2 bad records in a batch", "bad-records.path"),
    ],
)
def test_the_error_names_the_setting_that_helps_given_what_is_set(
    tmp_path: Path, path: str | None, most: int, says: str, does_not_say: str
) -> None:
    place = None if path is None else Folder(str(tmp_path / path))
    with pytest.raises(RejectedRecordsError) as caught:
        settle_bad_records(place, most, [rejects(3)], BatchName("u", 7))
    message = caught.value.message
    assert says in message and does_not_say not in message
    assert "batch 7 has at least 3 bad records; first: topic orders partition 0 offset 0" in message
    assert not (tmp_path / "folder").exists()


def test_one_record_is_no_records(tmp_path: Path) -> None:
    with pytest.raises(RejectedRecordsError, match="at least 1 bad record"):
        settle_bad_records(None, 0, [rejects(1)], BatchName("u", 0))


def test_rejects_that_are_let_through_are_kept_and_told_with_their_place(tmp_path: Path) -> None:
    found = settle_bad_records(Folder(f"{tmp_path}/"), 2, [rejects(2)], BatchName("u", 7))
    assert found is not None and found.count == 2
    assert found.path == f"{tmp_path}/u/batch-7.parquet"
    assert pq.read_table(found.path)["offset"].to_pylist() == [0, 1]
    assert found.line() == (
        f"2 records rejected and written to {found.path}; first: topic orders partition 0 offset 0: "
        "field id: no number ('{}')"
    )
    assert settle_bad_records(Folder(str(tmp_path)), 2, [], BatchName("u", 8)) is None
