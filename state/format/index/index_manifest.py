"""Index manifests: the complete list of live index files of a snapshot.

Source: Paimon 2.0 IndexManifestEntrySerializer (version 1), IndexFileMeta, DeletionVectorMeta, GlobalIndexMeta.
"""

from collections.abc import Sequence
from typing import Any

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.avro.schema import NAMESPACE, AvroRecordFormat, nullable
from bucketline.state.format.entries import DeletionVectorRange, FileKind, IndexManifestEntry
from bucketline.state.format.metadata_records import AVRO, Encoding, read_records, write_records
from bucketline.state.format.paths import checked_name

VERSION = 1

_GLOBAL_INDEX_FIELDS = (
    "_ROW_RANGE_START",
    "_ROW_RANGE_END",
    "_INDEX_FIELD_ID",
    "_EXTRA_FIELD_IDS",
    "_INDEX_META",
    "_SOURCE_META",
)

FORMAT = AvroRecordFormat(
    {
        "type": "record",
        "name": "record",
        "namespace": NAMESPACE,
        "fields": [
            {"name": "_VERSION", "type": "int"},
            {"name": "_KIND", "type": "int"},
            {"name": "_PARTITION", "type": "bytes"},
            {"name": "_BUCKET", "type": "int"},
            {"name": "_INDEX_TYPE", "type": "string"},
            {"name": "_FILE_NAME", "type": "string"},
            {"name": "_FILE_SIZE", "type": "long"},
            {"name": "_ROW_COUNT", "type": "long"},
            nullable(
                "_DELETIONS_VECTORS_RANGES",
                {
                    "type": "array",
                    "items": [
                        "null",
                        {
                            "type": "record",
                            "name": "record__DELETIONS_VECTORS_RANGES",
                            "fields": [
                                {"name": "f0", "type": "string"},
                                {"name": "f1", "type": "int"},
                                {"name": "f2", "type": "int"},
                                nullable("_CARDINALITY", "long"),
                            ],
                        },
                    ],
                },
            ),
            nullable("_EXTERNAL_PATH", "string"),
            nullable(
                "_GLOBAL_INDEX",
                {
                    "type": "record",
                    "name": "record__GLOBAL_INDEX",
                    "fields": [
                        {"name": "_ROW_RANGE_START", "type": "long"},
                        {"name": "_ROW_RANGE_END", "type": "long"},
                        {"name": "_INDEX_FIELD_ID", "type": "int"},
                        nullable("_EXTRA_FIELD_IDS", {"type": "array", "items": "int"}),
                        nullable("_INDEX_META", "bytes"),
                        nullable("_SOURCE_META", "bytes"),
                    ],
                },
            ),
        ],
    }
)


def encode_index_manifest(entries: Sequence[IndexManifestEntry], encoding: Encoding = AVRO) -> bytes:
    """Returns the bytes of an index manifest with these entries. An index manifest lists all index files of a snapshot
    and no changes, so the kind of every entry must be ADD.
    """
    assert all(e.kind is FileKind.ADD for e in entries), (
        "an index manifest lists live files only, so every entry is an ADD"
    )
    return write_records([_to_record(e) for e in entries], FORMAT, encoding)


def decode_index_manifest(data: bytes) -> list[IndexManifestEntry]:
    """Returns the entries of an index manifest in file order.

    An entry's `global_index` is a dict with the Avro field names of the global index record as keys, and None for a
    missing field. Raises CorruptFileError if the bytes are no index manifest.
    """
    return [_from_record(i, r) for i, r in enumerate(read_records(data, FORMAT))]


def _to_record(entry: IndexManifestEntry) -> dict[str, object]:
    ranges = entry.deletion_vector_ranges
    return {
        "_VERSION": VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": entry.index_type,
        "_FILE_NAME": entry.file_name,
        "_FILE_SIZE": entry.file_size,
        "_ROW_COUNT": entry.row_count,
        "_DELETIONS_VECTORS_RANGES": None
        if ranges is None
        else [{"f0": r.data_file_name, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality} for r in ranges],
        "_EXTERNAL_PATH": entry.external_path,
        "_GLOBAL_INDEX": entry.global_index,
    }


def _from_record(ordinal: int, record: dict[str, Any]) -> IndexManifestEntry:
    if record["_VERSION"] != VERSION:
        raise CorruptFileError(f"index entry {ordinal} has version {record['_VERSION']}, not {VERSION}", entry=ordinal)
    if record["_KIND"] != FileKind.ADD:
        raise CorruptFileError(f"index entry {ordinal} has kind {record['_KIND']}, not 0 (ADD)", entry=ordinal)
    if record["_FILE_SIZE"] < 0 or record["_ROW_COUNT"] < 0 or not -(2**31) <= record["_BUCKET"] < 2**31:
        raise CorruptFileError(f"index entry {ordinal} has a size, count or bucket out of range", entry=ordinal)
    ranges = record.get("_DELETIONS_VECTORS_RANGES")
    global_index = record.get("_GLOBAL_INDEX")
    return IndexManifestEntry(
        kind=FileKind.ADD,
        partition=record["_PARTITION"],
        bucket=record["_BUCKET"],
        index_type=record["_INDEX_TYPE"],
        file_name=checked_name(record["_FILE_NAME"]),
        file_size=record["_FILE_SIZE"],
        row_count=record["_ROW_COUNT"],
        deletion_vector_ranges=None if ranges is None else tuple(_to_range(ordinal, r) for r in ranges),
        external_path=record.get("_EXTERNAL_PATH"),
        global_index=None if global_index is None else {f: global_index.get(f) for f in _GLOBAL_INDEX_FIELDS},
    )


def _to_range(ordinal: int, record: dict[str, Any] | None) -> DeletionVectorRange:
    if record is None:
        raise CorruptFileError(f"index entry {ordinal} has a null deletion vector", entry=ordinal)
    if record["f1"] < 0 or record["f2"] < 0:
        raise CorruptFileError(
            f"index entry {ordinal} has a negative offset or length of a deletion vector: {record['f1']}, "
            f"{record['f2']} for {record['f0']}",
            entry=ordinal,
        )
    return DeletionVectorRange(record["f0"], record["f1"], record["f2"], record.get("_CARDINALITY"))
