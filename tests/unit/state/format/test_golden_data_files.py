"""Paimon's own tables: where their data files lie, what columns they have, and the statistics their manifests hold."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.table.table_settings import TableSettings
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema, decode_schema
from bucketline.state.format.manifest import decode_manifest
from bucketline.state.format.paths import bucket_path, extension_of, parse_schema_id
from bucketline.state.format.stats import KEY_MODE, collect_stats
from bucketline.state.types.arrow import arrow_schema, conform, key_value_fields
from bucketline.state.types.binary_row import decode_row, encode_rows
from bucketline.state.types.logical import TypeRoot
from bucketline.state.types.order import key_changes, key_order, sort_indices

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "data" / "shared.db"
TABLES = sorted(path.name for path in GOLDEN.glob("*"))
SYSTEM_COUNT = 2

pytestmark = pytest.mark.skipif(not TABLES, reason="the golden tables are not here")


def _data_files(name: str) -> Iterator[tuple[TableSchema, Path, DataFileMeta]]:
    schemas = {parse_schema_id(p.name): decode_schema(p.read_bytes()) for p in (GOLDEN / name / "schema").iterdir()}
    for manifest in sorted((GOLDEN / name / "manifest").glob("manifest-[!l]*")):
        for entry in decode_manifest(manifest.read_bytes()):
            schema = schemas[entry.file.schema_id]
            path = GOLDEN / name / bucket_path(schema, entry.partition, entry.bucket) / entry.file.file_name
            if path.exists():
                yield schema, path, entry.file


@pytest.mark.parametrize("name", TABLES)
def test_data_files_lie_and_look_as_we_would_make_them(name: str) -> None:
    found = list(_data_files(name))
    assert {path for _, path, _ in found} == set((GOLDEN / name).rglob("bucket-*/*.*"))
    for schema, path, meta in found:
        assert extension_of(meta.file_name) == "parquet"
        system = key_value_fields(schema) if schema.primary_keys else ()
        expected = arrow_schema((*system, *schema.fields))
        stored = pq.read_schema(path)
        assert stored.names == expected.names
        for column in expected:
            assert stored.field(column.name).metadata[b"PARQUET:field_id"] == column.metadata[b"PARQUET:field_id"]
        conform(pq.ParquetFile(path).read().select([f.name for f in schema.fields]), schema)


@pytest.mark.parametrize("name", TABLES)
def test_statistics_are_those_of_java(name: str) -> None:
    for schema, path, meta in _data_files(name):
        table = pq.ParquetFile(path).read()
        rows = conform(table.select([f.name for f in schema.fields]), schema)
        collected = collect_stats(rows, schema.fields, [TableSettings({}).files.stats_mode] * len(schema.fields))
        stats, columns = collected.to_simple_stats()
        assert columns == meta.value_stats_cols, meta.file_name
        types = [schema.field(c).type for c in columns] if columns is not None else [f.type for f in schema.fields]
        assert stats.null_counts == meta.value_stats.null_counts
        ours = (decode_row(stats.min_values, types), decode_row(stats.max_values, types))
        theirs = (decode_row(meta.value_stats.min_values, types), decode_row(meta.value_stats.max_values, types))
        for our_row, their_row in zip(ours, theirs, strict=True):
            assert our_row == tuple(None if _is_left_out(v) else v for v in their_row)
        if not any(_is_left_out(v) for row in theirs for v in row):
            assert stats == meta.value_stats
        keys = schema.select(schema.trimmed_primary_key)
        if keys and all(k.type.root not in (TypeRoot.BINARY, TypeRoot.VARBINARY) for k in keys):
            assert collect_stats(rows, keys, [KEY_MODE] * len(keys)).to_full_stats() == meta.key_stats


def _is_left_out(bound: object) -> bool:
    """Bounds of Java's that we do not write: NaN, and bytes, whose bounds older releases of it misread."""
    return bound != bound or isinstance(bound, bytes)


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_in_our_key_order_between_the_bounds(name: str) -> None:
    for schema, path, meta in _data_files(name):
        keys = schema.select(schema.trimmed_primary_key)
        if not keys:
            continue
        types = [f.type for f in keys]
        rows = conform(pq.ParquetFile(path).read().select([f.name for f in schema.fields]), schema)
        names = [f.name for f in keys]
        assert np.array_equal(sort_indices(rows, names), np.arange(rows.num_rows))
        if not meta.file_name.startswith("changelog-"):
            assert key_changes(rows, names).all()
        serialized = encode_rows([rows[n].combine_chunks() for n in names], types, with_arity=True)
        assert (serialized[0].as_py(), serialized[-1].as_py()) == (meta.min_key, meta.max_key)
        assert key_order(types)(meta.min_key) <= key_order(types)(meta.max_key)
        assert isinstance(serialized, pa.LargeBinaryArray)
