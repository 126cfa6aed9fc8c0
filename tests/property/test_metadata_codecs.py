"""Metadata codecs: values come back from their bytes, and bytes that are wrong raise CorruptFileError only."""

from collections.abc import Callable
from io import BytesIO

import fastavro
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.avro.container import iterate_records
from bucketline.state.format.data_file import DataFileMeta, FileSource, SimpleStats
from bucketline.state.format.entries import (
    CommitKind,
    DeletionVectorRange,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
    Snapshot,
)
from bucketline.state.format.index.deletion_vector import decode_deletion_vectors, encode_deletion_vectors
from bucketline.state.format.index.hash_index import decode_hash_index, encode_hash_index
from bucketline.state.format.index.index_manifest import decode_index_manifest, encode_index_manifest
from bucketline.state.format.json_files.snapshot_json import decode_snapshot, encode_snapshot
from bucketline.state.format.manifest import (
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
)
from bucketline.state.format.manifest_schema import ENTRY_FORMAT

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
blobs = st.binary(max_size=24)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)
text_tuples = st.lists(texts, max_size=3).map(tuple)

stats = st.builds(SimpleStats, blobs, blobs, st.none() | st.lists(st.none() | longs, max_size=3).map(tuple))
data_files = st.builds(
    DataFileMeta,
    file_name=names,
    file_size=sizes,
    row_count=sizes,
    min_key=blobs,
    max_key=blobs,
    key_stats=stats,
    value_stats=stats,
    min_sequence_number=longs,
    max_sequence_number=longs,
    schema_id=longs,
    level=st.integers(0, 2**31 - 1),
    extra_files=st.lists(names, max_size=3).map(tuple),
    creation_time_ms=st.none() | longs,
    delete_row_count=st.none() | longs,
    embedded_index=st.none() | blobs,
    file_source=st.none() | st.sampled_from(FileSource),
    value_stats_cols=st.none() | text_tuples,
    external_path=st.none() | texts,
    first_row_id=st.none() | longs,
    write_cols=st.none() | text_tuples,
)
entries = st.builds(ManifestEntry, st.sampled_from(FileKind), blobs, ints, ints, data_files)
metas = st.builds(
    ManifestFileMeta,
    names,
    sizes,
    sizes,
    sizes,
    stats,
    longs,
    *[st.none() | ints] * 4,
    *[st.none() | longs] * 2,
)
ranges = st.builds(DeletionVectorRange, texts, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.none() | longs)
global_indexes = st.fixed_dictionaries(
    {
        "_ROW_RANGE_START": longs,
        "_ROW_RANGE_END": longs,
        "_INDEX_FIELD_ID": ints,
        "_EXTRA_FIELD_IDS": st.none() | st.lists(ints, max_size=2),
        "_INDEX_META": st.none() | blobs,
        "_SOURCE_META": st.none() | blobs,
    }
)
index_entries = st.builds(
    IndexManifestEntry,
    st.just(FileKind.ADD),
    blobs,
    ints,
    texts,
    names,
    sizes,
    sizes,
    st.none() | st.lists(ranges, max_size=2).map(tuple),
    st.none() | texts,
    st.none() | global_indexes,
)
snapshots = st.builds(
    Snapshot,
    longs,
    longs,
    names,
    names,
    texts,
    longs,
    st.sampled_from(CommitKind),
    longs,
    longs,
    longs,
    base_manifest_list_size=st.none() | sizes,
    delta_manifest_list_size=st.none() | sizes,
    changelog_manifest_list=st.none() | names,
    changelog_manifest_list_size=st.none() | sizes,
    changelog_record_count=st.none() | longs,
    index_manifest=st.none() | names,
    watermark=st.none() | longs,
    statistics=st.none() | names,
    properties=st.dictionaries(texts, texts, max_size=2),
    next_row_id=st.none() | longs,
    operation=st.none() | texts,
    uuid=st.none() | texts,
    version=st.integers(1, 3),
)
vectors = st.dictionaries(
    texts,
    st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 99), max_size=20).map(BitMap),
    max_size=3,
)


@given(st.lists(entries, max_size=4))
@settings(deadline=None)
def test_manifests_come_back(found: list[ManifestEntry]) -> None:
    assert decode_manifest(encode_manifest(found)) == found


@given(st.lists(metas, max_size=4))
@settings(deadline=None)
def test_manifest_lists_come_back(found: list[ManifestFileMeta]) -> None:
    assert decode_manifest_list(encode_manifest_list(found)) == found


@given(st.lists(index_entries, max_size=4))
@settings(deadline=None)
def test_index_manifests_come_back(found: list[IndexManifestEntry]) -> None:
    assert decode_index_manifest(encode_index_manifest(found)) == found


@given(snapshots)
def test_snapshots_come_back(found: Snapshot) -> None:
    assert decode_snapshot(encode_snapshot(found)) == found


@given(st.lists(ints))
def test_hash_indexes_come_back(found: list[int]) -> None:
    hashes = np.array(found, dtype=np.int32)
    assert decode_hash_index(encode_hash_index(hashes)).tolist() == found


@given(vectors, st.booleans())
@example({"f": BitMap(range(100_000))}, False)
@example({"f": BitMap(range(100_000))}, True)
def test_deletion_vectors_come_back(found: dict[str, BitMap], bitmap64: bool) -> None:
    data, where = encode_deletion_vectors(found, bitmap64)
    assert decode_deletion_vectors(data, where) == found
    assert [w.cardinality for w in where] == [len(v) for v in found.values()]


def _sample_entry(number: int) -> ManifestEntry:
    bounds = SimpleStats(bytes(20), bytes(20), (0, None))
    file = DataFileMeta(
        f"data-{number}.parquet", 100, 10, bytes(20), bytes(20), bounds, bounds, 0, 9, 0, 1, ("x",), 5, 0, b"i",
        FileSource.APPEND, ("a",), "s3://e", 7, ("a", "b"),
    )  # fmt: skip
    return ManifestEntry(FileKind.ADD, bytes(12), 0, 1, file)


def _unpacked_manifest() -> bytes:
    """A manifest whose blocks are not packed, so that damage reaches the records and not only the codec."""
    packed = encode_manifest([_sample_entry(i) for i in range(3)])
    out = BytesIO()
    fastavro.writer(
        out, ENTRY_FORMAT.schema, list(iterate_records(packed, ENTRY_FORMAT)), codec="null", sync_marker=bytes(16)
    )
    return out.getvalue()


_RANGE = DeletionVectorRange("data-0.parquet", 1, 24, 2)
_SNAPSHOT = Snapshot(1, 0, "base", "delta", "user", 1, CommitKind.APPEND, 1, 1, 1, 5, 5, properties={"k": "v"})
_SAMPLES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "manifest": (encode_manifest([_sample_entry(i) for i in range(3)]), decode_manifest),
    "unpacked manifest": (_unpacked_manifest(), decode_manifest),
    "manifest list": (
        encode_manifest_list([ManifestFileMeta("m", 1, 1, 0, SimpleStats(), 0, 0, 1, 0, 5)]),
        decode_manifest_list,
    ),
    "index manifest": (
        encode_index_manifest(
            [IndexManifestEntry(FileKind.ADD, bytes(12), 0, "DELETION_VECTORS", "index-0", 33, 1, (_RANGE,))]
        ),
        decode_index_manifest,
    ),
    "snapshot": (encode_snapshot(_SNAPSHOT), decode_snapshot),
    "hash index": (encode_hash_index(np.arange(5, dtype=np.int32)), decode_hash_index),
    "deletion vectors": (
        encode_deletion_vectors({"data-0.parquet": BitMap([3, 7])}, False)[0],
        lambda data: decode_deletion_vectors(data, [_RANGE]),
    ),
}
each_sample = pytest.mark.parametrize("name", _SAMPLES)


def _decodes_or_is_corrupt(data: bytes, decode: Callable[[bytes], object]) -> bool:
    try:
        decode(data)
    except CorruptFileError as e:
        assert e.message
        return False
    return True


@each_sample
@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_damaged_bytes_raise_nothing_but_corrupt_file_error(name: str, data: st.DataObject) -> None:
    whole, decode = _SAMPLES[name]
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "remove"])):
            case "flip":
                damaged[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del damaged[max(at, 1) :]
            case "insert":
                damaged[at:at] = data.draw(st.binary(min_size=1, max_size=12))
            case _:
                del damaged[at : at + data.draw(st.integers(1, min(8, max(1, len(damaged) - 1))))]
        if not damaged:
            break
    _decodes_or_is_corrupt(bytes(damaged), decode)


@each_sample
def test_no_flipped_bit_raises_anything_else(name: str) -> None:
    whole, decode = _SAMPLES[name]
    for at in range(len(whole)):
        for bit in (0, 3, 6, 7):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            _decodes_or_is_corrupt(bytes(damaged), decode)


@each_sample
def test_no_file_cut_short_passes_for_a_whole_one(name: str) -> None:
    whole, decode = _SAMPLES[name]
    good = [n for n in range(len(whole)) if _decodes_or_is_corrupt(whole[:n], decode)]
    match name:
        case "hash index":
            assert good == [0, 4, 8, 12, 16]
        case "snapshot" | "deletion vectors":
            assert good == []
        case _:
            # Cut between header and first block it is an empty container: only the recorded size tells.
            assert len(good) == 1 and decode(whole[: good[0]]) == []


@each_sample
@given(junk=st.binary(max_size=64))
@settings(deadline=None)
def test_junk_is_corrupt(name: str, junk: bytes) -> None:
    if name != "hash index":
        assert not _decodes_or_is_corrupt(junk, _SAMPLES[name][1])


def test_every_flipped_bit_of_a_deletion_vector_is_found() -> None:
    for bitmap64 in (False, True):
        whole, where = encode_deletion_vectors({"a": BitMap([3, 7]), "b": BitMap(range(50))}, bitmap64)
        for at in range(len(whole)):
            for bit in range(8):
                damaged = bytearray(whole)
                damaged[at] ^= 1 << bit
                with pytest.raises(CorruptFileError):
                    decode_deletion_vectors(bytes(damaged), where)


def test_the_samples_themselves_decode() -> None:
    for whole, decode in _SAMPLES.values():
        assert decode(whole) is not None
