"""CommitMessage: the changes that one writer made to one bucket and wants to commit, and the bytes in which tasks send
it to the driver.

The bytes are not part of Paimon's format. The bytes exist only during one batch, in an Arrow binary column:

    "BLCM"   magic
    u8       version of the layout
    u32 BE   CRC32 of the payload
    payload  an Avro array of message records (schema below), uncompressed

Source: Paimon 2.0 CommitMessageImpl, DataIncrement, CompactIncrement (for the content, not for the bytes).
"""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any

import fastavro

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta, FileSource, SimpleStats
from bucketline.state.format.entries import DeletionVectorRange, FileKind, IndexManifestEntry

MAGIC = b"BLCM"
VERSION = 1
_HEAD = struct.Struct(">4sBI")


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """The changes that one writer made to one bucket. `partition` is a BinaryRow, with its number of fields in 4 bytes
    before it.

    `total_buckets` is the number of buckets that the manifest entries record: -1 for dynamic and unaware tables, and -2
    for postpone tables.
    A file that moves to a higher level is in `compact_before`, and with its new level in `compact_after`.
    `deleted_files` are live files that the new files replace (copy-on-write). If there are any, the snapshot is an
    OVERWRITE.
    The `kind` of an index entry is ignored: the attribute that has the entry says whether the entry is added or
    deleted.

    The members are the same as in Paimon's commit message.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    new_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    compact_changelog: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexManifestEntry, ...] = ()
    deleted_index_files: tuple[IndexManifestEntry, ...] = ()
    compact_index_files: tuple[IndexManifestEntry, ...] = ()
    deleted_compact_index_files: tuple[IndexManifestEntry, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()

    @property
    def made_files(self) -> tuple[DataFileMeta, ...]:
        """Returns the files that the writer of this commit message has created. Before the commit, no snapshot and no
        other commit message refers to these files, so they can be removed if the commit fails.
        """
        old = {f.file_name for f in self.compact_before}
        later = (f for f in (*self.compact_after, *self.compact_changelog) if f.file_name not in old)
        return (*self.new_files, *self.changelog_files, *later)

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, name) for name in (*_FILE_LISTS, *_INDEX_LISTS))


_FILE_LISTS = (
    "new_files",
    "deleted_files",
    "changelog_files",
    "compact_before",
    "compact_after",
    "compact_changelog",
)
_INDEX_LISTS = (
    "new_index_files",
    "deleted_index_files",
    "compact_index_files",
    "deleted_compact_index_files",
)


def encode_messages(messages: Iterable[CommitMessage]) -> bytes:
    """Returns the bytes of any number of commit messages, in order. The same messages always give the same bytes."""
    out = BytesIO()
    fastavro.schemaless_writer(out, _MESSAGES, [_message_record(m) for m in messages])
    payload = out.getvalue()
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(payload)) + payload


def decode_messages(data: bytes) -> tuple[CommitMessage, ...]:
    """Returns the messages in bytes that `encode_messages` returned.

    Raises CorruptFileError if the bytes are damaged, or were made by another version of the library.
    """
    if len(data) < _HEAD.size:
        raise CorruptFileError(
            f"the commit messages of a task are cut off after {counted(len(data), 'byte')}; try the write again",
            size=len(data),
        )
    magic, version, checksum = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise CorruptFileError(f"the bytes from a task are no commit messages: they start with {magic!r}", found=magic)
    if version != VERSION:
        raise CorruptFileError(
            f"a task sent commit messages of version {version}, but this release reads {VERSION}; "
            "install the same release on the driver and on all executors",
            found=version,
            expected=VERSION,
        )
    payload = bytes(data[_HEAD.size :])
    if zlib.crc32(payload) != checksum:
        raise CorruptFileError(
            "the commit messages of a task were damaged on the way to the driver (the checksum does not match); "
            "try the write again"
        )
    records = fastavro.schemaless_reader(BytesIO(payload), _MESSAGES, None)
    return tuple(_message(r) for r in records)


def _message_record(message: CommitMessage) -> dict[str, object]:
    return {
        "partition": message.partition,
        "bucket": message.bucket,
        "total_buckets": message.total_buckets,
        **{name: [_file_record(f) for f in getattr(message, name)] for name in _FILE_LISTS},
        **{name: [_index_record(e) for e in getattr(message, name)] for name in _INDEX_LISTS},
    }


def _message(record: Mapping[str, Any]) -> CommitMessage:
    lists: dict[str, Any] = {name: tuple(_file(r) for r in record[name]) for name in _FILE_LISTS}
    lists |= {name: tuple(_index(r) for r in record[name]) for name in _INDEX_LISTS}
    return CommitMessage(record["partition"], record["bucket"], record["total_buckets"], **lists)


def _file_record(file: DataFileMeta) -> dict[str, object]:
    record: dict[str, object] = {name: _plain(getattr(file, name)) for name in _FILE_MEMBERS}
    record["key_stats"] = _stats_record(file.key_stats)
    record["value_stats"] = _stats_record(file.value_stats)
    record["file_source"] = None if file.file_source is None else int(file.file_source)
    return record


def _file(record: dict[str, Any]) -> DataFileMeta:
    source = record["file_source"]
    record["key_stats"] = _stats(record["key_stats"])
    record["value_stats"] = _stats(record["value_stats"])
    record["file_source"] = None if source is None else FileSource(source)
    record["extra_files"] = tuple(record["extra_files"])
    record["value_stats_cols"] = _names(record["value_stats_cols"])
    record["write_cols"] = _names(record["write_cols"])
    return DataFileMeta(**record)


def _plain(value: object) -> object:
    """Returns a tuple as a list, because fastavro takes a tuple for the type name and value of a union."""
    return list(value) if isinstance(value, tuple) else value


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _stats_record(stats: SimpleStats) -> dict[str, object]:
    return {name: _plain(getattr(stats, name)) for name in ("min_values", "max_values", "null_counts")}


def _stats(record: dict[str, Any]) -> SimpleStats:
    counts = record["null_counts"]
    return SimpleStats(record["min_values"], record["max_values"], None if counts is None else tuple(counts))


def _index_record(entry: IndexManifestEntry) -> dict[str, object]:
    record: dict[str, object] = {name: getattr(entry, name) for name in _INDEX_MEMBERS}
    record["kind"] = int(entry.kind)
    if entry.global_index is not None:
        record["global_index"] = {name: _plain(value) for name, value in entry.global_index.items()}
    ranges = entry.deletion_vector_ranges
    if ranges is not None:
        record["deletion_vector_ranges"] = [{name: getattr(r, name) for name in _RANGE_MEMBERS} for r in ranges]
    return record


def _index(record: dict[str, Any]) -> IndexManifestEntry:
    ranges = record["deletion_vector_ranges"]
    return IndexManifestEntry(
        **record
        | {
            "kind": FileKind(record["kind"]),
            "deletion_vector_ranges": None if ranges is None else tuple(DeletionVectorRange(**r) for r in ranges),
        }
    )


_FILE_MEMBERS = tuple(f.name for f in fields(DataFileMeta))
_INDEX_MEMBERS = tuple(f.name for f in fields(IndexManifestEntry))
_RANGE_MEMBERS = tuple(f.name for f in fields(DeletionVectorRange))


def _optional(avro_type: object) -> list[object]:
    return ["null", avro_type]


def _list_of(avro_type: object) -> dict[str, object]:
    return {"type": "array", "items": avro_type}


def _record(name: str, **members: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in members.items()]}


_STATS = _record("stats", min_values="bytes", max_values="bytes", null_counts=_optional(_list_of(_optional("long"))))
_FILE = _record(
    "file",
    file_name="string",
    file_size="long",
    row_count="long",
    min_key="bytes",
    max_key="bytes",
    key_stats=_STATS,
    value_stats="stats",
    min_sequence_number="long",
    max_sequence_number="long",
    schema_id="long",
    level="int",
    extra_files=_list_of("string"),
    creation_time_ms=_optional("long"),
    delete_row_count=_optional("long"),
    embedded_index=_optional("bytes"),
    file_source=_optional("int"),
    value_stats_cols=_optional(_list_of("string")),
    external_path=_optional("string"),
    first_row_id=_optional("long"),
    write_cols=_optional(_list_of("string")),
)
_RANGE = _record("range", data_file_name="string", offset="long", length="long", cardinality=_optional("long"))
_INDEX = _record(
    "index",
    kind="int",
    partition="bytes",
    bucket="int",
    index_type="string",
    file_name="string",
    file_size="long",
    row_count="long",
    deletion_vector_ranges=_optional(_list_of(_RANGE)),
    external_path=_optional("string"),
    global_index=_optional({"type": "map", "values": ["null", "long", "bytes", "string", _list_of("long")]}),
)
_FILES_BY_NAME = {name: _list_of(_FILE if i == 0 else "file") for i, name in enumerate(_FILE_LISTS)}
_INDEXES_BY_NAME = {name: _list_of(_INDEX if i == 0 else "index") for i, name in enumerate(_INDEX_LISTS)}
_MESSAGES = fastavro.parse_schema(
    _list_of(
        _record(
            "message",
            partition="bytes",
            bucket="int",
            total_buckets="int",
            **_FILES_BY_NAME,
            **_INDEXES_BY_NAME,
        )
    )
)
