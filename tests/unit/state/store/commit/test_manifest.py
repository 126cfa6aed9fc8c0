"""Manifests: versions, tolerance to other writers' schemas, and the bounds in metas."""

import copy
from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.avro.container import encode_records, iterate_records
from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource, SimpleStats
from bucketline.state.format.entries import FileKind, ManifestEntry, ManifestFileMeta
from bucketline.state.format.manifest import (
    decode_manifest,
    decode_manifest_list,
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
)
from bucketline.state.format.manifest_schema import ENTRY_FORMAT, LIST_FORMAT
from bucketline.state.format.partition_stats import collect_partition_stats, may_hold_any
from bucketline.state.types.binary_row import encode_row
from bucketline.state.types.logical import parse_type_text

FILE = DataFileMeta(
    "data-1.parquet", 10, 5, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 4, 0, 0,
    creation_time_ms=1700000000000, delete_row_count=0, file_source=FileSource.APPEND,
)  # fmt: skip
ENTRY = ManifestEntry(FileKind.ADD, EMPTY_ROW, 0, 1, FILE)
META = ManifestFileMeta("manifest-1", 100, 1, 0, EMPTY_STATS, 0, 0, 0, 0, 0)
INT, TEXT, DOUBLE = (parse_type_text(t) for t in ("INT", "STRING", "DOUBLE"))


def _written(schema: Any, records: list[Any]) -> bytes:
    out = BytesIO()
    fastavro.writer(out, schema, records)
    return out.getvalue()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("_VERSION", 1, "version 1"),
        ("_VERSION", 3, "version 3"),
        ("_KIND", 2, "kind 2"),
    ],
)
def test_entries_of_another_version_or_kind_are_corrupt(field: str, value: int, reason: str) -> None:
    (record,) = iterate_records(encode_manifest([ENTRY]), ENTRY_FORMAT)
    with pytest.raises(CorruptFileError, match=reason):
        decode_manifest(encode_records([{**record, field: value}], ENTRY_FORMAT))


@pytest.mark.parametrize(("field", "value"), [("_FILE_SOURCE", 2), ("_LEVEL", -1), ("_FILE_SIZE", -1)])
def test_file_members_out_of_range_are_corrupt(field: str, value: int) -> None:
    (record,) = iterate_records(encode_manifest([ENTRY]), ENTRY_FORMAT)
    file = record["_FILE"]
    assert isinstance(file, dict)
    with pytest.raises(CorruptFileError, match="entry 0"):
        decode_manifest(encode_records([{**record, "_FILE": {**file, field: value}}], ENTRY_FORMAT))


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "data\0-1.parquet", "a/b.parquet"])
def test_names_that_lead_elsewhere_are_corrupt(name: str) -> None:
    def entry(**members: object) -> bytes:
        return encode_manifest([replace(ENTRY, file=replace(ENTRY.file, **members))])

    for data in (entry(file_name=name), entry(extra_files=(name,))):
        with pytest.raises(CorruptFileError, match="is no plain file name"):
            decode_manifest(data)


def test_metas_of_another_version_are_corrupt() -> None:
    (record,) = iterate_records(encode_manifest_list([META]), LIST_FORMAT)
    with pytest.raises(CorruptFileError, match="version 1"):
        decode_manifest_list(encode_records([{**record, "_VERSION": 1}], LIST_FORMAT))


def test_a_manifest_of_an_older_writer_lacks_fields_and_is_read() -> None:
    schema: Any = copy.deepcopy(ENTRY_FORMAT.schema)
    file_fields = schema["fields"][-1]["type"]["fields"]
    del file_fields[12:]
    data = _written(schema, list(iterate_records(encode_manifest([ENTRY]), ENTRY_FORMAT)))
    (found,) = decode_manifest(data)
    assert found.file == replace(FILE, creation_time_ms=None, delete_row_count=None, file_source=None)


def test_a_manifest_list_of_pypaimon_has_more_fields_and_is_read() -> None:
    schema: Any = copy.deepcopy(LIST_FORMAT.schema)
    schema["fields"] += [
        {"name": "_TOTAL_BUCKETS", "type": ["null", "int"], "default": None},
        {"name": "_EXTRA_FILES", "type": ["null", {"type": "array", "items": "string"}], "default": None},
    ]
    records = list(iterate_records(encode_manifest_list([META]), LIST_FORMAT))
    assert decode_manifest_list(_written(schema, [{**r, "_EXTRA_FILES": ["x"]} for r in records])) == [META]


def test_every_nullable_is_a_union_with_null_first() -> None:
    for form in (ENTRY_FORMAT, LIST_FORMAT):
        assert b'"null"]' not in form.text


def _entry(
    partition: tuple[object, ...], *, kind: FileKind = FileKind.ADD, bucket: int = 0, **file: Any
) -> ManifestEntry:
    return ManifestEntry(kind, encode_row(partition, [INT, TEXT]), bucket, 4, replace(FILE, **file))


def test_a_meta_bounds_added_and_deleted_entries_alike() -> None:
    found = describe_manifest(
        "m",
        77,
        [
            _entry((3, None), bucket=2, level=5, schema_id=1),
            _entry((None, "b"), kind=FileKind.DELETE, bucket=1, schema_id=2),
            _entry((-1, "é"), bucket=3, level=1),
        ],
        [INT, TEXT],
        9,
    )
    bounds = SimpleStats(encode_row((-1, "b"), [INT, TEXT]), encode_row((3, "é"), [INT, TEXT]), (1, 1))
    assert found == ManifestFileMeta("m", 77, 2, 1, bounds, 2, 1, 3, 0, 5)


def test_row_ids_are_bounded_only_if_every_file_has_them() -> None:
    known = [_entry((1, "a"), first_row_id=100, row_count=5), _entry((1, "a"), first_row_id=10, row_count=1)]
    found = describe_manifest("m", 1, known, [INT, TEXT], 0)
    assert (found.min_row_id, found.max_row_id) == (10, 104)
    found = describe_manifest("m", 1, [*known, _entry((1, "a"))], [INT, TEXT], 0)
    assert (found.min_row_id, found.max_row_id) == (None, None)


def test_a_meta_of_an_unpartitioned_or_empty_manifest_has_empty_stats() -> None:
    assert describe_manifest("m", 1, [ENTRY], [], 0).partition_stats == EMPTY_STATS
    assert describe_manifest("m", 1, [], [], 4) == ManifestFileMeta("m", 1, 0, 0, EMPTY_STATS, 4)


def test_partition_bounds_order_floats_as_paimon_does() -> None:
    counts = {encode_row((v,), [DOUBLE]): 1 for v in (0.0, -0.0, float("nan"), None)}
    found = collect_partition_stats(counts, [DOUBLE])
    assert found == SimpleStats(encode_row((-0.0,), [DOUBLE]), encode_row((float("nan"),), [DOUBLE]), (1,))


def test_bounds_rule_out_partitions_only_when_they_are_known() -> None:
    types = [INT, TEXT]
    bounds = SimpleStats(encode_row((1, "b"), types), encode_row((5, "b"), types), (0, 2))
    assert may_hold_any(bounds, [(9, "b"), (3, "b")], types)
    assert may_hold_any(bounds, [(5, None)], types)
    assert not may_hold_any(bounds, [(6, "b"), (3, "c"), (None, "b")], types)
    assert not may_hold_any(bounds, [], types)
    unknown = SimpleStats(encode_row((None, None), types), encode_row((None, None), types), (0, 0))
    assert may_hold_any(unknown, [(6, "b")], types)
    assert may_hold_any(replace(bounds, null_counts=None), [(6, "b")], types)
    assert may_hold_any(EMPTY_STATS, [()], [])
