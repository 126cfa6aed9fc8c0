"""HASH index and deletion-vector files, compared with the bytes Paimon Java wrote."""

import struct
import zlib
from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pytest
from pyroaring import BitMap, BitMap64

from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.state.format.avro.container import encode_records, iterate_records
from bucketline.state.format.entries import DeletionVectorRange, FileKind, IndexManifestEntry
from bucketline.state.format.index.deletion_vector import (
    MAGIC_V2,
    decode_deletion_vector,
    decode_deletion_vectors,
    encode_deletion_vectors,
    read_span,
)
from bucketline.state.format.index.hash_index import decode_hash_index, encode_hash_index
from bucketline.state.format.index.index_manifest import FORMAT, decode_index_manifest, encode_index_manifest

JAVA_V1 = bytes.fromhex("01 00000018 5e43f2d0 3a300000 01000000 0000 0100 10000000 0300 0700 1448545c")
JAVA_V2 = bytes.fromhex(
    "01 00000024 d1d33964 0100000000000000 00000000 3a300000 01000000 0000 0100 10000000 0300 0700 a6519a26"
)
IN_V1 = DeletionVectorRange("data-0.parquet", 1, 24, 2)
IN_V2 = DeletionVectorRange("data-0.parquet", 1, 44, 2)


@pytest.mark.parametrize(("java", "at", "bitmap64"), [(JAVA_V1, IN_V1, False), (JAVA_V2, IN_V2, True)])
def test_vectors_of_both_kinds_have_the_bytes_of_java(java: bytes, at: DeletionVectorRange, bitmap64: bool) -> None:
    assert decode_deletion_vectors(java, [at]) == {"data-0.parquet": BitMap([3, 7])}
    assert encode_deletion_vectors({"data-0.parquet": BitMap([3, 7])}, bitmap64) == (java, (at,))


@pytest.mark.parametrize("bitmap64", [False, True])
def test_one_vector_is_read_without_the_rest_of_its_file(bitmap64: bool) -> None:
    vectors = {"a": BitMap([1]), "b": BitMap(range(70_000)), "c": BitMap()}
    data, ranges = encode_deletion_vectors(vectors, bitmap64)
    for at in ranges:
        offset, length = read_span(at)
        assert decode_deletion_vector(data[offset : offset + length], at) == vectors[at.data_file_name]


def test_runs_are_packed_as_java_packs_them() -> None:
    data, _ = encode_deletion_vectors({"a": BitMap(range(70_000))}, False)
    assert len(data) < 100


def test_encoding_leaves_the_bitmap_as_it_was() -> None:
    vector = BitMap(range(10))
    before = vector.serialize()
    encode_deletion_vectors({"a": vector}, False)
    assert vector.serialize() == before


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (replace(IN_V1, length=25), "index manifest says 25"),
        (replace(IN_V1, cardinality=3), "index manifest says 3"),
        (replace(IN_V1, offset=5), "its length field|magic"),
        (replace(IN_V1, offset=0), "version byte"),
        (replace(IN_V1, offset=33), "too few"),
    ],
)
def test_a_range_that_does_not_fit_the_file_is_corrupt(at: DeletionVectorRange, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        decode_deletion_vectors(JAVA_V1, [at])


def test_a_range_without_cardinality_is_read() -> None:
    assert decode_deletion_vectors(JAVA_V1, [replace(IN_V1, cardinality=None)]) == {"data-0.parquet": BitMap([3, 7])}


def _v2(bitmap: BitMap64) -> tuple[bytes, DeletionVectorRange]:
    body = MAGIC_V2 + bitmap.serialize()
    blob = struct.pack(">i", len(body)) + body + zlib.crc32(body).to_bytes(4, "big")
    return blob, DeletionVectorRange("d", 1, len(blob), len(bitmap))


def test_positions_beyond_32_bit_are_unsupported_rather_than_lost() -> None:
    with pytest.raises(UnsupportedTableError, match="d holds row position 4294967296"):
        decode_deletion_vector(*_v2(BitMap64([1, 2**32])))


def test_a_64_bit_vector_that_holds_no_bitmap_is_empty() -> None:
    assert decode_deletion_vector(*_v2(BitMap64())) == BitMap()


def test_a_bitmap_out_of_order_is_corrupt_even_with_the_right_checksum() -> None:
    body = JAVA_V1[5:29].replace(bytes.fromhex("03000700"), bytes.fromhex("07000300"))
    blob = struct.pack(">i", len(body)) + body + zlib.crc32(body).to_bytes(4, "big")
    with pytest.raises(CorruptFileError, match="Roaring"):
        decode_deletion_vector(blob, IN_V1)


def test_hash_indexes_are_big_endian_and_signed() -> None:
    data = bytes.fromhex("ee18d2a5 4fe4bbf0 5759f99e")
    hashes = decode_hash_index(data)
    assert hashes.dtype == np.int32
    assert hashes.tolist() == [0xEE18D2A5 - 2**32, 0x4FE4BBF0, 0x5759F99E]
    assert encode_hash_index(hashes) == data


def test_a_hash_index_cut_inside_a_hash_is_corrupt() -> None:
    with pytest.raises(CorruptFileError, match="7 bytes"):
        decode_hash_index(bytes(7))


ENTRY = IndexManifestEntry(FileKind.ADD, bytes(12), 3, "DELETION_VECTORS", "index-1", 33, 1, (IN_V1,))


@pytest.mark.parametrize(
    ("field", "value"),
    [("_VERSION", 2), ("_KIND", 1), ("_FILE_SIZE", -1), ("_DELETIONS_VECTORS_RANGES", [None])],
)
def test_index_entries_that_nobody_writes_are_corrupt(field: str, value: object) -> None:
    from_us = encode_index_manifest([ENTRY])
    (record,) = iterate_records(from_us, FORMAT)
    with pytest.raises(CorruptFileError, match="index entry 0"):
        decode_index_manifest(encode_records([{**record, field: value}], FORMAT))


def test_an_index_manifest_whose_ranges_are_not_nullable_is_read() -> None:
    schema: Any = {
        "type": "record",
        "name": "IndexManifestEntry",
        "fields": [
            *[{"name": n, "type": "int"} for n in ("_VERSION", "_KIND", "_BUCKET")],
            {"name": "_PARTITION", "type": "bytes"},
            *[{"name": n, "type": "string"} for n in ("_INDEX_TYPE", "_FILE_NAME")],
            *[{"name": n, "type": "long"} for n in ("_FILE_SIZE", "_ROW_COUNT")],
            {
                "name": "_DELETIONS_VECTORS_RANGES",
                "type": [
                    "null",
                    {
                        "type": "array",
                        "items": {
                            "type": "record",
                            "name": "Range",
                            "fields": [
                                {"name": "f0", "type": "string"},
                                {"name": "f1", "type": "int"},
                                {"name": "f2", "type": "int"},
                            ],
                        },
                    },
                ],
            },
        ],
    }
    out = BytesIO()
    fastavro.writer(out, schema, list(iterate_records(encode_index_manifest([ENTRY]), FORMAT)))
    assert decode_index_manifest(out.getvalue()) == [
        replace(ENTRY, deletion_vector_ranges=(replace(IN_V1, cardinality=None),))
    ]
