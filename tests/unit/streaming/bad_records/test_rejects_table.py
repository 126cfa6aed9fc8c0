"""Bad records in a table: each once, however often a batch is begun; and a table that does not take them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.bad_records.place import BatchName, settle_bad_records
from bucketline.streaming.bad_records.rejects_table import COLUMNS, KEY, RejectsTable
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA, pack_rejects
from bucketline.streaming.job.bad_place import ready_place

FIRST = BatchName("query", 3, "digest", "run 1")


def rejects(*offsets: int, **more: Any) -> bytes:
    rows = [
        {
            "topic": "orders",
            "partition": 0,
            "offset": at,
            "key": b"\xff",
            "value": b"{}",
            "headers": [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}],
            "code": "VALUE",
            "reason": f"field id: {at}",
            **more,
        }
        for at in offsets
    ]
    return pack_rejects(pa.Table.from_pylist(rows, schema=REJECTS_SCHEMA))


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_table(str(path)).to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["query_id"], row["batch_id"], row["input"], row["number"]))


def offsets(path: Path, **of: Any) -> list[int]:
    return [row["offset"] for row in rows(path) if all(row[name] == value for name, value in of.items())]


def test_a_table_is_made_and_has_the_whole_record_and_its_place(tmp_path: Path) -> None:
    path = tmp_path / "ops.db" / "rejects"
    aside = settle_bad_records(RejectsTable(str(path)), 5, [rejects(8, 7, source_table="shop.orders")], FIRST)
    assert aside is not None and (aside.count, aside.path) == (2, str(path))
    assert rows(path)[0] == {
        "query_id": "query",
        "table_name": "",
        "batch_id": 3,
        "input": "digest",
        "number": 0,
        "code": "VALUE",
        "reason": "field id: 7",
        "source_table": "shop.orders",
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "timestamp": None,
        "key": b"\xff",
        "value": b"{}",
        "headers": [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}],
        "replay": None,
    }


def test_a_batch_that_is_repeated_has_each_bad_record_once_and_those_alone(tmp_path: Path) -> None:
    path = tmp_path / "ops.db" / "rejects"
    place = RejectsTable(str(path))
    settle_bad_records(place, 5, [rejects(1, 2, 3)], FIRST)
    settle_bad_records(place, 5, [rejects(1, 2, 3)], replace(FIRST, run_id="run 2"))
    assert offsets(path) == [1, 2, 3]
    settle_bad_records(place, 5, [rejects(2)], replace(FIRST, run_id="run 3"))
    assert offsets(path) == [2]
    settle_bad_records(place, 5, [], replace(FIRST, run_id="run 4"))
    assert offsets(path) == []


def test_other_batches_writers_and_inputs_keep_their_bad_records(tmp_path: Path) -> None:
    path = tmp_path / "ops.db" / "rejects"
    place = RejectsTable(str(path))
    settle_bad_records(place, 5, [rejects(1)], FIRST)
    settle_bad_records(place, 5, [rejects(2)], replace(FIRST, batch_id=4))
    settle_bad_records(place, 5, [rejects(3)], replace(FIRST, user="other"))
    settle_bad_records(place, 5, [rejects(4)], replace(FIRST, digest="rewound"))
    settle_bad_records(place, 5, [], replace(FIRST, run_id="run 2"))
    assert offsets(path) == [3, 4, 2]


def test_a_batch_without_bad_records_costs_no_look_at_the_table_but_the_first_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "ops.db" / "rejects"
    place = RejectsTable(str(path))
    settle_bad_records(place, 5, [], FIRST)
    open_table(str(path))
    for file in path.rglob("schema*/*"):
        file.write_text("not read")
    settle_bad_records(place, 5, [], replace(FIRST, batch_id=4))
    with pytest.raises(Exception, match=r"."):
        settle_bad_records(place, 5, [], replace(FIRST, batch_id=5, run_id="run 2"))


def test_the_table_of_a_job_with_a_catalog_is_a_name_there(tmp_path: Path) -> None:
    config = resolve_job(
        read_settings(
            "table: default.orders\nsource: {format: rate}\ncheckpoint: /c\n"
            f"bad-records: {{table: default.rejects, max: 3}}\ncatalog: {{warehouse: {tmp_path}}}",
            name="job.yaml",
        )
    )
    place = ready_place(config, {})
    settle_bad_records(place, 5, [rejects(1)], FIRST)
    assert offsets(tmp_path / "default.db" / "rejects") == [1]


@pytest.mark.parametrize(
    ("columns", "key", "options", "why"),
    [
        ("id BIGINT NOT NULL", ("id",), {}, "it has no column query_id"),
        (COLUMNS.replace("value BYTES, headers", "value STRING, headers"), KEY, {}, "it has STRING for value BYTES"),
        (COLUMNS, (*KEY, "code"), {}, "its primary key is"),
        (f"{COLUMNS}, other INT NOT NULL", KEY, {}, "its column other is NOT NULL"),
        (COLUMNS, KEY, {"merge-engine": "first-row"}, "keep the newest row of each key"),
        (COLUMNS, KEY, {"ignore-delete": "true"}, "keep the newest row of each key"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    tmp_path: Path, columns: str, key: tuple[str, ...], options: dict[str, str], why: str
) -> None:
    path = str(tmp_path / "ops.db" / "other")
    create_table(path, columns, key, options={"bucket": "1", **options})
    with pytest.raises(OptionError, match=r"cannot hold bad records") as refused:
        settle_bad_records(RejectsTable(path), 5, [rejects(1)], FIRST)
    assert why in refused.value.message


def test_a_table_with_more_columns_and_other_options_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "ops.db" / "own"
    create_table(str(path), f"{COLUMNS}, seen_by STRING", KEY, options={"bucket": "2"})
    settle_bad_records(RejectsTable(str(path)), 5, [rejects(1)], FIRST)
    assert offsets(path) == [1]
