"""Metadata files of the golden tables, written by Paimon Java: all decode, and decode again from our bytes."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketline.state.commit.manifest_merge import live_entries, merge_entries
from bucketline.state.format.avro.container import MAGIC, container_header, open_container
from bucketline.state.format.entries import ManifestEntry, ManifestFileMeta, Snapshot
from bucketline.state.format.index.deletion_vector import (
    DELETION_VECTORS,
    decode_deletion_vector,
    decode_deletion_vectors,
    encode_deletion_vectors,
    read_span,
)
from bucketline.state.format.index.hash_index import HASH, decode_hash_index, encode_hash_index
from bucketline.state.format.index.index_manifest import decode_index_manifest, encode_index_manifest
from bucketline.state.format.json_files.schema_json import decode_schema
from bucketline.state.format.json_files.snapshot_json import decode_snapshot, encode_snapshot
from bucketline.state.format.manifest import (
    decode_manifest,
    decode_manifest_list,
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "data"
TABLES = sorted((GOLDEN / "shared.db").glob("*")) if GOLDEN.exists() else []

pytestmark = pytest.mark.skipif(not TABLES, reason="the golden tables are not beside the repository")
each_table = pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)


def _snapshots(table: Path) -> list[Snapshot]:
    files = sorted((table / "snapshot").glob("snapshot-*"), key=lambda f: int(f.name.rpartition("-")[2]))
    return [decode_snapshot(f.read_bytes()) for f in files]


def _metas(table: Path, *lists: str) -> list[ManifestFileMeta]:
    return [m for name in lists for m in decode_manifest_list((table / "manifest" / name).read_bytes())]


def _entries(table: Path, snapshot: Snapshot) -> list[ManifestEntry]:
    metas = _metas(table, snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return [e for m in metas for e in decode_manifest((table / "manifest" / m.file_name).read_bytes())]


def _comes_back(data: bytes, decode: Callable[[bytes], object], encode: Callable[..., bytes]) -> bool:
    found = decode(data)
    return decode(encode(found)) == found


@each_table
def test_every_snapshot_and_manifest_comes_back_from_our_bytes(table: Path) -> None:
    for file in sorted((table / "snapshot").glob("snapshot-*")):
        assert _comes_back(file.read_bytes(), decode_snapshot, encode_snapshot), file
        assert json.loads(encode_snapshot(decode_snapshot(file.read_bytes()))) == json.loads(file.read_bytes())
    for file in sorted((table / "manifest").iterdir()):
        data = file.read_bytes()
        if file.name.startswith("manifest-list-"):
            assert _comes_back(data, decode_manifest_list, encode_manifest_list), file
            ours = encode_manifest_list(decode_manifest_list(data))
        elif file.name.startswith("index-manifest-"):
            assert _comes_back(data, decode_index_manifest, encode_index_manifest), file
            ours = encode_index_manifest(decode_index_manifest(data))
        else:
            assert _comes_back(data, decode_manifest, encode_manifest), file
            ours = encode_manifest(decode_manifest(data))
        theirs, mine = open_container(data), open_container(ours)
        assert mine.schema_text == theirs.schema_text
        assert [body for _, _, body in mine.blocks()] == [body for _, _, body in theirs.blocks()], file
        # Schema and codec are the same bytes too; behind them our headers have a checksum.
        start, end = len(MAGIC) + 1, data.index(b"\x12zstandard\0") + len(b"\x12zstandard")
        assert ours[start:end] == data[start:end] and ours[:start] == MAGIC + b"\x06"
        header = len(container_header(theirs.schema_text, "zstandard"))
        assert ours.count(ours[header : header + 16]) == data.count(data[end + 1 : end + 17])


@each_table
def test_live_files_are_those_that_paimon_lists(table: Path) -> None:
    lines = (GOLDEN / "expected" / f"shared.{table.name}.files.jsonl").read_text().splitlines()
    listed = Counter(
        (f["bucket"], f["level"], f["record_count"], f["min_sequence_number"], f["max_sequence_number"])
        for f in map(json.loads, lines)
    )
    entries = _entries(table, _snapshots(table)[-1])
    live = live_entries(entries)
    assert listed == Counter(
        (e.bucket, e.file.level, e.file.row_count, e.file.min_sequence_number, e.file.max_sequence_number) for e in live
    )
    assert merge_entries(entries) == live


@each_table
def test_we_describe_every_manifest_as_java_did(table: Path) -> None:
    schema = decode_schema((table / "schema" / "schema-0").read_bytes())
    types = [f.type for f in schema.select(schema.partition_keys)]
    for snapshot in _snapshots(table):
        lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list]
        for meta in _metas(table, *(name for name in lists if name is not None)):
            data = (table / "manifest" / meta.file_name).read_bytes()
            assert describe_manifest(meta.file_name, len(data), decode_manifest(data), types, 0) == meta


@each_table
def test_index_files_come_back_from_our_bytes(table: Path) -> None:
    for snapshot in _snapshots(table):
        if snapshot.index_manifest is None:
            continue
        for entry in decode_index_manifest((table / "manifest" / snapshot.index_manifest).read_bytes()):
            data = (table / "index" / entry.file_name).read_bytes()
            assert len(data) == entry.file_size
            if entry.index_type == HASH:
                hashes = decode_hash_index(data)
                assert len(hashes) == entry.row_count
                assert encode_hash_index(hashes) == data
            else:
                assert entry.index_type == DELETION_VECTORS
                ranges = entry.deletion_vector_ranges
                assert ranges is not None
                vectors = decode_deletion_vectors(data, ranges)
                assert len(vectors) == entry.row_count
                assert encode_deletion_vectors(vectors, False) == (data, ranges)
                for at in ranges:
                    start, length = read_span(at)
                    assert decode_deletion_vector(data[start : start + length], at) == vectors[at.data_file_name]


def test_the_golden_tables_hold_index_files_of_both_kinds() -> None:
    names = {t.name for t in TABLES if list((t / "index").glob("index-*"))}
    assert {"pk_dv", "pk_dynamic"} <= names
