"""Data files of every format, written and read back by us, and those of the postpone bucket, which are Java's."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.determinism import World
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.avro.container import open_container
from bucketline.state.format.avro.data_schema import data_schema, is_representable
from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource
from bucketline.state.format.json_files.schema_json import TableSchema, decode_schema, encode_schema
from bucketline.state.format.manifest import decode_manifest
from bucketline.state.store.datafile.data_files import read_data_file
from bucketline.state.store.datafile.file_settings import Postponed
from bucketline.state.store.datafile.rolling_writer import RollingWriter
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND, arrow_schema, key_value_fields
from bucketline.state.types.columns_text import parse_columns
from tests.support.peers.arrow_text import table_of
from tests.support.peers.every_type import NANOSECONDS, VALUES, name_of, rows
from tests.support.peers.golden import GOLDEN
from tests.support.tables.commit_table import StillClock

FORMATS = ("parquet", "avro", "orc")
NESTED = {
    "l": "ARRAY<INT>",
    "deep": "ARRAY<ARRAY<STRING>>",
    "m": "MAP<STRING, DECIMAL(20, 2)>",
    "by": "MAP<INT, ARRAY<TIME(3)>>",
    "bag": "MULTISET<STRING>",
    "r": "ROW<a INT, b ROW<c STRING, d TIMESTAMP(3)>>",
    "rs": "ARRAY<ROW<a INT NOT NULL, b STRING>>",
}
NESTED_ROWS: list[dict[str, Any]] = [
    {
        "l": [1, None, -3],
        "deep": [["a", None], None, []],
        "m": [("x", None), ("", 1)],
        "by": [(1, [None, "00:00:00.005000"]), (-2, None), (3, [])],
        "bag": [("p", 2), ("q", 1)],
        "r": {"a": 1, "b": {"c": "é", "d": "1969-12-31T23:59:59"}},
        "rs": [{"a": 1, "b": None}, None, {"a": -1, "b": "z"}],
    },
    {"l": [], "deep": [], "m": [], "by": [], "bag": [], "r": {"a": None, "b": None}, "rs": []},
    dict.fromkeys(NESTED),
]
INSTANTS = [kind for kind in VALUES if "LOCAL" in kind]
FAR = [kind for kind in VALUES if kind.startswith("TIMESTAMP") and kind not in NANOSECONDS]


class CountedIds:
    """UUIDs that can be told apart at a glance."""

    def __init__(self) -> None:
        self._count = 0

    def new_uuid(self) -> str:
        self._count += 1
        return f"uuid{self._count}"


def schema_of(columns: str, primary_key: tuple[str, ...] = (), **options: str) -> TableSchema:
    fields = tuple(replace(f, type=f.type.not_null()) if f.name in primary_key else f for f in parse_columns(columns))
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=100,
        partition_keys=(),
        primary_keys=primary_key,
        options=options,
        comment=None,
        time_ms=0,
    )


def writer_of(path: Path, schema: TableSchema, **settings: Any) -> RollingWriter:
    io, root = file_io_for(str(path), {})
    return RollingWriter(io, root, schema, world=World(clock=StillClock(), ids=CountedIds()), **settings)


def read_back(path: Path, schema: TableSchema, files: list[DataFileMeta], bucket: str = "bucket-0") -> pa.Table:
    io, root = file_io_for(str(path), {})
    names = [f.name for f in schema.fields] + ([SEQUENCE, VALUE_KIND] if schema.primary_keys else [])
    batches = [
        batch
        for file in files
        for batch in read_data_file(io, f"{root}/{bucket}/{file.file_name}", file, schema, names, stored=schema)
    ]
    return pa.Table.from_batches(batches)


def kinds_for(form: str) -> list[str]:
    """The types that a format holds, with all their values."""
    left_out = {"parquet": NANOSECONDS, "avro": NANOSECONDS, "orc": (*NANOSECONDS, *FAR, *INSTANTS)}
    return [kind for kind in VALUES if kind not in left_out[form]]


@pytest.mark.parametrize("codec", ["zstd", "none", "snappy"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_type_comes_back_from_every_format(form: str, codec: str, tmp_path: Path) -> None:
    kinds = kinds_for(form)
    columns = ", ".join(f"{name_of(kind)} {kind}" for kind in kinds)
    schema = schema_of(columns, **{"file.format": form.upper(), "file.compression": codec})
    written = table_of(rows(kinds), arrow_schema(schema.fields))
    with writer_of(tmp_path, schema) as writer:
        writer.write(written)
        files = writer.close()
    assert [Path(f.file_name).suffix for f in files] == [f".{form}"]
    assert same(read_back(tmp_path, schema, files), written)


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether both hold the same values; NaN is the same as NaN."""
    return str(found.to_pylist()) == str(expected.to_pylist()) and found.schema == expected.schema


@pytest.mark.parametrize("form", FORMATS)
def test_nested_columns_come_back_from_every_format(form: str, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in NESTED.items())
    schema = schema_of(f"k INT, {columns}", ("k",), **{"file.format": form, "bucket": "1"})
    written = table_of([{"k": i, **row} for i, row in enumerate(NESTED_ROWS)], arrow_schema(schema.fields))
    written = written.append_column(SEQUENCE, pa.array([7, 8, 9])).append_column(
        VALUE_KIND, pa.array([0, 3, 0], pa.int8())
    )
    with writer_of(tmp_path, schema, level=5, source=FileSource.COMPACT) as writer:
        writer.write(written)
        (file,) = writer.close()
    assert same(read_back(tmp_path, schema, [file]).select(NESTED), written.select(list(NESTED)))
    assert (file.min_sequence_number, file.max_sequence_number, file.delete_row_count) == (7, 9, 1)
    assert file.value_stats_cols == ("k",)


@pytest.mark.parametrize("form", FORMATS)
def test_files_of_every_format_roll_at_the_target_size(form: str, tmp_path: Path) -> None:
    schema = schema_of("k BIGINT, v DOUBLE", **{"file.format": form, "target-file-size": "256 kb"})
    numbers = pc.random(200_000, initializer=1)
    written = pa.table({"k": pa.array(range(200_000)), "v": numbers})
    with writer_of(tmp_path, schema) as writer:
        for batch in written.to_batches(max_chunksize=10_000):
            writer.write(batch)
        files = writer.close()
    assert len(files) > 3
    assert all(f.file_size < 600_000 for f in files)
    assert [(tmp_path / "bucket-0" / f.file_name).stat().st_size for f in files] == [f.file_size for f in files]
    assert same(read_back(tmp_path, schema, files), written.cast(arrow_schema(schema.fields)))


def test_levels_have_formats_and_codecs_of_their_own(tmp_path: Path) -> None:
    options = {
        "file.format.per.level": "0:avro,5:orc",
        "file.compression.per.level": "0:snappy,5:zlib,3:none",
        "bucket": "1",
    }
    schema = schema_of("k INT, v INT", ("k",), **options)
    data = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([2], pa.int32())})
    data = data.append_column(SEQUENCE, pa.array([0])).append_column(VALUE_KIND, pa.array([0], pa.int8()))
    found = {}
    for level in (0, 1, 3, 5):
        with writer_of(tmp_path / f"{level}", schema, level=level) as writer:
            writer.write(data)
            (file,) = writer.close()
        assert read_back(tmp_path / f"{level}", schema, [file])["v"].to_pylist() == [2]
        found[level] = tmp_path / f"{level}" / "bucket-0" / file.file_name
    assert b"snappy" in found[0].read_bytes()
    assert found[5].read_bytes()[:3] == b"ORC"
    codecs = [pq.read_metadata(found[level]).row_group(0).column(0).compression for level in (1, 3)]
    assert codecs == ["ZSTD", "UNCOMPRESSED"]


def postponed_files(path: Path, schema: TableSchema, data: pa.Table) -> list[DataFileMeta]:
    with writer_of(path, schema, place=(EMPTY_ROW, -2), postponed=Postponed("user", 7)) as writer:
        for batch in data.to_batches():
            writer.write(batch)
        return writer.close()


def test_postponed_files_are_as_java_writes_them(tmp_path: Path) -> None:
    table = GOLDEN / "java.db" / "postponed"
    (entry,) = (e for m in (table / "manifest").glob("manifest-[!l]*") for e in decode_manifest(m.read_bytes()))
    schema = decode_schema((table / "schema" / "schema-0").read_bytes())
    javas = read_back(table, schema, [entry.file], "bucket-postpone")
    (file,) = postponed_files(tmp_path, schema, javas)
    assert file.file_name == "data--u-user-s-7-w-uuid1-0.avro"
    assert re.fullmatch(r"data--u-.*-s-\d+-w-.*-0\.avro", entry.file.file_name)
    ours = read_back(tmp_path, schema, [file], "bucket-postpone")
    assert same(ours, javas)
    unlike = {"file_name": "", "file_size": 0, "creation_time_ms": 0}
    assert replace(file, **unlike) == replace(entry.file, **unlike)


def test_postponed_rows_keep_their_order_and_need_no_sequence_number(tmp_path: Path) -> None:
    schema = schema_of("k INT, v STRING", ("k",), **{"bucket": "-2", "file.compression": "lz4", "file.format": "orc"})
    data = pa.table(
        {
            "k": pa.array([3, 1, 2, 1], pa.int32()),
            "v": ["a", None, "b", "c"],
            VALUE_KIND: pa.array([0, 0, 3, 1], pa.int8()),
        }
    )
    (file,) = postponed_files(tmp_path, schema, data)
    found = read_back(tmp_path, schema, [file], "bucket-postpone")
    assert same(found.select(["k", "v", VALUE_KIND]).cast(data.schema), data)
    assert found[SEQUENCE].to_pylist() == [-1] * 4
    assert (file.min_sequence_number, file.max_sequence_number, file.delete_row_count) == (-1, -1, 2)
    assert (file.level, file.file_source, file.value_stats, file.value_stats_cols) == (0, 0, EMPTY_STATS, ())
    assert file.key_stats.null_counts == (None,)


def test_postponed_rows_that_avro_cannot_hold_have_the_tables_format(tmp_path: Path) -> None:
    schema = schema_of("k INT, t TIMESTAMP(9)", ("k",), bucket="-2")
    data = pa.table(
        {"k": pa.array([1], pa.int32()), "t": pa.array([1], pa.timestamp("ns")), VALUE_KIND: pa.array([0], pa.int8())}
    )
    (file,) = postponed_files(tmp_path, schema, data)
    assert file.file_name.endswith(".parquet") and file.value_stats_cols == ()


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("k INT, t TIMESTAMP(7)", r"column t: TIMESTAMP\(7\)"),
        ("k INT, t ARRAY<TIMESTAMP_LTZ(9)>", "column t: TIMESTAMP"),
        ("k INT, r ROW<a TIME(6)>", r"column r_a: TIME\(6\)"),
        ("k INT, `a-b` INT", "column a-b"),
        ("k INT, `1a` INT", "column 1a"),
    ],
)
def test_what_avro_has_no_place_for_is_refused_by_name(columns: str, text: str, tmp_path: Path) -> None:
    schema = schema_of(columns, **{"file.format": "avro"})
    assert not is_representable(schema.fields)
    with pytest.raises(UnsupportedTableError, match=text):
        writer_of(tmp_path, schema)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "columns", ["t TIMESTAMP_LTZ(3)", "t ARRAY<ROW<a TIMESTAMP_LTZ(6)>>", "t MAP<INT, TIMESTAMP_LTZ>"]
)
@pytest.mark.parametrize("legacy", ["true", "false"])
def test_instants_come_back_from_orc_in_both_of_its_forms(columns: str, legacy: str, tmp_path: Path) -> None:
    schema = schema_of(columns, **{"file.format": "orc", "orc.timestamp-ltz.legacy.type": legacy})
    arrow = arrow_schema(schema.fields)
    instant = datetime(2024, 7, 1, 12, 0, 0, 123_000, UTC)
    value: Any = instant
    if "ROW" in columns:
        value = [{"a": instant}, None]
    elif "MAP" in columns:
        value = [(7, instant)]
    written = pa.table([pa.array([value, None], arrow.field("t").type)], schema=arrow)
    with writer_of(tmp_path, schema) as writer:
        writer.write(written)
        files = writer.close()
    assert same(read_back(tmp_path, schema, files), written)
    stored = orc.ORCFile(tmp_path / "bucket-0" / files[0].file_name).schema
    assert ("UTC" in str(stored)) == (legacy == "false"), "only the newer form is an instant to ORC"


@pytest.mark.parametrize(("millis", "text"), [(253_402_300_799_999, "2262-04-11"), (-1, "before 1970")])
@pytest.mark.parametrize("nested", [False, True])
def test_timestamps_that_orc_readers_cannot_read_are_refused(
    millis: int, text: str, nested: bool, tmp_path: Path
) -> None:
    kind = "MAP<INT, ROW<a TIMESTAMP(3)>>" if nested else "TIMESTAMP(3)"
    schema = schema_of(f"t {kind}", **{"file.format": "orc"})
    value = [(1, {"a": millis})] if nested else millis
    with pytest.raises(SchemaMismatchError, match=f"column t: .*{text}"), writer_of(tmp_path, schema) as writer:
        writer.write(pa.table([pa.array([None, value], arrow_schema(schema.fields).types[0])], ["t"]))
        writer.close()
    assert list((tmp_path / "bucket-0").iterdir()) == []


def test_a_column_that_one_level_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path, columns, level = tmp_path / "t", "k INT, t TIMESTAMP(9)", {"file.format.per.level": "5:avro"}
    with pytest.raises(UnsupportedTableError, match=r"column t: .* Avro"):
        create_table(str(path), columns, ("k",), options={"bucket": "1", **level})
    assert not path.exists()
    table = create_table(str(path), columns, ("k",), options={"bucket": "1"})
    # As a table that another writer made.
    schema = replace(handle_of(table).table_schema, options={"bucket": "1", **level})
    (path / "schema" / "schema-0").write_bytes(encode_schema(schema))
    data = pa.table({"k": pa.array([1], pa.int32()), "t": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(UnsupportedTableError, match=r"column t: .* Avro"):
        open_table(str(path)).write(data)
    assert handle_of(table).snapshot_store.latest() is None


def test_a_codec_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"'file.compression': avro files cannot be written with 'lz4'"):
        writer_of(tmp_path, schema_of("k INT", **{"file.format": "avro", "file.compression": "lz4"}))


@pytest.mark.parametrize("name", ["all_avro", "evolved", "postponed", "changes_input"])
def test_avro_schemas_are_javas(name: str) -> None:
    table = GOLDEN / "java.db" / name
    for file in sorted(table.rglob("data-*.avro")):
        stored = json.loads(open_container(file.read_bytes()).schema_text)
        schema = decode_schema((table / "schema" / "schema-0").read_bytes())
        fields = (*key_value_fields(schema), *schema.fields) if schema.primary_keys else schema.fields
        assert json.loads(data_schema(fields)) == stored


@pytest.mark.parametrize("form", FORMATS)
def test_compaction_keeps_nested_values_in_every_format(form: str, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in NESTED.items())
    options = {"bucket": "1", "file.format": form, "write-only": "true"}
    table = create_table(str(tmp_path / "t"), f"k INT, {columns}", ("k",), options=options)
    schema = arrow_schema(handle_of(table).table_schema.fields)
    for start in (0, 2, 4):
        table.write(table_of([{"k": start + i, **row} for i, row in enumerate(NESTED_ROWS)], schema))
    expected = [{"k": k, **NESTED_ROWS[k % 2 if k < 4 else k - 4]} for k in range(7)]
    before = open_table(table.path).to_arrow()
    assert same(before.sort_by("k"), table_of(expected, schema))
    table.compact()
    assert {f"{f}" for f in open_table(table.path).files()["level"].to_pylist()} == {"5"}
    assert same(open_table(table.path).to_arrow().sort_by("k"), table_of(expected, schema))
