"""Manifests, which list the data files that a snapshot adds and deletes, and manifest lists, which list manifests.

A manifest list has the bounds of each manifest, and readers skip manifests by these bounds. So a bound that is not
known for sure is None.

Source: Paimon 2.0 ManifestEntrySerializer, DataFileMetaSerializer, ManifestFileMetaSerializer (version 2 each),
SimpleStats; fields that pypaimon adds are ignored, as Paimon's Java reader does.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import EMPTY_STATS, DataFileMeta, FileSource, SimpleStats
from bucketline.state.format.entries import FileKind, ManifestEntry, ManifestFileMeta
from bucketline.state.format.entry_starts import find_entry_starts
from bucketline.state.format.manifest_schema import ENTRY_FORMAT, LIST_FORMAT
from bucketline.state.format.metadata_records import AVRO, Encoding, avro_blocks, read_records, write_records
from bucketline.state.format.partition_stats import collect_partition_stats
from bucketline.state.format.paths import checked_name
from bucketline.state.types.logical import DataType

VERSION = 2

_INT = range(-(2**31), 2**31)
_FILE_SOURCES = {None: None, 0: FileSource.APPEND, 1: FileSource.COMPACT}
_KINDS = {0: FileKind.ADD, 1: FileKind.DELETE}


def encode_manifest(entries: Sequence[ManifestEntry], encoding: Encoding = AVRO) -> bytes:
    """Returns the bytes of a manifest with the entries in the given order. If a file has a DELETE and an ADD, the
    DELETE must come first.
    """
    return write_records([_entry_record(e) for e in entries], ENTRY_FORMAT, encoding)


def decode_manifest(data: bytes) -> list[ManifestEntry]:
    """Returns the entries of a manifest in file order. Raises CorruptFileError if the bytes are no manifest, or if an
    entry has a version that this release does not read.
    """
    shared = _Shared()
    return [_entry(i, record, shared) for i, record in enumerate(read_records(data, ENTRY_FORMAT))]


PartitionChoice = Callable[[Collection[bytes]], Collection[bytes]]
"""A function that returns those of the given partitions that are wanted."""


@dataclass(frozen=True, slots=True)
class ChosenEntries:
    """The entries of a manifest that belong to wanted partitions, in file order. `added` and `deleted` are the numbers
    of ADD and DELETE entries in the whole manifest.
    """

    entries: list[ManifestEntry]
    added: int
    deleted: int


def decode_chosen(data: bytes, types: Sequence[DataType], choose: PartitionChoice) -> ChosenEntries:
    """Returns those entries of a manifest that belong to wanted partitions. `choose` gets the partitions of the
    entries, and returns the wanted ones. `types` are the types of the table's partition columns.

    Entries of other partitions are not decoded where this is possible, so damage in these entries may go unnoticed.
    Otherwise raises the errors of `decode_manifest`.
    """
    blocks = avro_blocks(data, ENTRY_FORMAT)
    chosen = _Chosen(choose)
    if blocks is None:
        chosen.decode(read_records(data, ENTRY_FORMAT))
        return chosen.found()
    # All partitions are asked for at once, because a condition is tested faster for many partitions. Blocks with wanted
    # entries are unpacked a second time below, so that only one unpacked block is in memory at a time.
    found = [(block, find_entry_starts(block, types)) for block in blocks]
    wanted = frozenset(choose(frozenset[bytes]().union(*(starts.partitions for _, starts in found if starts))))
    for block, starts in found:
        if starts is None:
            chosen.decode(block.records())
            continue
        places = [place for place, partition in enumerate(starts.partitions) if partition in wanted]
        if places:
            chosen.take(places, block.records_at([starts.spans[place] for place in places]))
        chosen.skip(block.count, starts.deleted)
    return chosen.found()


class _Chosen:
    """Collects those entries of a manifest that belong to wanted partitions. The entries must be given in order."""

    def __init__(self, choose: PartitionChoice) -> None:
        self._choose = choose
        self._shared = _Shared()
        self._entries: list[ManifestEntry] = []
        self._count = self._deleted = 0

    def take(self, places: Sequence[int], records: Sequence[dict[str, Any]]) -> None:
        """Adds the entries of `records`, which belong to wanted partitions. `places` has the position of each of these
        entries, counted from the first entry that is not counted yet. Does not count the entries.
        """
        for place, record in zip(places, records, strict=True):
            self._entries.append(_entry(self._count + place, record, self._shared))

    def skip(self, count: int, deleted: int) -> None:
        """Counts the next `count` entries, of which `deleted` are DELETE entries. Does not add them."""
        self._count += count
        self._deleted += deleted

    def decode(self, records: Iterable[dict[str, Any]]) -> None:
        """Counts the next entries, given as `records`, and adds those of them that belong to wanted partitions."""
        records = list(records)
        kinds = [_kind(ordinal, record) for ordinal, record in enumerate(records, self._count)]
        wanted = frozenset(self._choose({r["_PARTITION"] for r in records}))
        places = [place for place, record in enumerate(records) if record["_PARTITION"] in wanted]
        self.take(places, [records[place] for place in places])
        self.skip(len(records), sum(kind is FileKind.DELETE for kind in kinds))

    def found(self) -> ChosenEntries:
        return ChosenEntries(self._entries, self._count - self._deleted, self._deleted)


def encode_manifest_list(metas: Sequence[ManifestFileMeta], encoding: Encoding = AVRO) -> bytes:
    """Returns the bytes of a manifest list. `metas` must have the oldest manifest first, and may be empty."""
    return write_records([_meta_record(m) for m in metas], LIST_FORMAT, encoding)


def decode_manifest_list(data: bytes) -> list[ManifestFileMeta]:
    """Returns what a manifest list says of each manifest, in the order of the file. Raises CorruptFileError if the
    bytes are no manifest list, or if an entry has a version that this release does not read.
    """
    return [_meta(i, r) for i, r in enumerate(read_records(data, LIST_FORMAT))]


def describe_manifest(
    name: str, size: int, entries: Sequence[ManifestEntry], partition_types: Sequence[DataType], schema_id: int
) -> ManifestFileMeta:
    """Returns what a manifest list says of a manifest with these entries. `size` is the exact size of the manifest in
    bytes.

    The bounds include both ADD and DELETE entries. The schema id is the largest schema id of the files, or `schema_id`
    if there are no files. The result has bounds for row ids, both ends included, only if every file has row ids.
    Source: Paimon 2.0 ManifestFile.ManifestEntryWriter.
    """
    deleted = sum(e.kind is FileKind.DELETE for e in entries)
    files = [e.file for e in entries]
    first_row_ids = [f.first_row_id for f in files if f.first_row_id is not None]
    has_row_ids = bool(files) and len(first_row_ids) == len(files)
    return ManifestFileMeta(
        file_name=name,
        file_size=size,
        num_added_files=len(entries) - deleted,
        num_deleted_files=deleted,
        partition_stats=collect_partition_stats(Counter(e.partition for e in entries), partition_types),
        schema_id=max((f.schema_id for f in files), default=schema_id),
        min_bucket=min((e.bucket for e in entries), default=None),
        max_bucket=max((e.bucket for e in entries), default=None),
        min_level=min((f.level for f in files), default=None),
        max_level=max((f.level for f in files), default=None),
        min_row_id=min(first_row_ids) if has_row_ids else None,
        max_row_id=max(f + file.row_count - 1 for f, file in zip(first_row_ids, files, strict=True))
        if has_row_ids
        else None,
    )


def _entry_record(entry: ManifestEntry) -> dict[str, object]:
    file = entry.file
    return {
        "_VERSION": VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            "_FILE_NAME": file.file_name,
            "_FILE_SIZE": file.file_size,
            "_ROW_COUNT": file.row_count,
            "_MIN_KEY": file.min_key,
            "_MAX_KEY": file.max_key,
            "_KEY_STATS": _stats_record(file.key_stats),
            "_VALUE_STATS": _stats_record(file.value_stats),
            "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
            "_SCHEMA_ID": file.schema_id,
            "_LEVEL": file.level,
            "_EXTRA_FILES": list(file.extra_files),
            "_CREATION_TIME": file.creation_time_ms,
            "_DELETE_ROW_COUNT": file.delete_row_count,
            "_EMBEDDED_FILE_INDEX": file.embedded_index,
            "_FILE_SOURCE": None if file.file_source is None else int(file.file_source),
            "_VALUE_STATS_COLS": None if file.value_stats_cols is None else list(file.value_stats_cols),
            "_EXTERNAL_PATH": file.external_path,
            "_FIRST_ROW_ID": file.first_row_id,
            "_WRITE_COLS": None if file.write_cols is None else list(file.write_cols),
        },
    }


def _meta_record(meta: ManifestFileMeta) -> dict[str, object]:
    return {
        "_VERSION": VERSION,
        "_FILE_NAME": meta.file_name,
        "_FILE_SIZE": meta.file_size,
        "_NUM_ADDED_FILES": meta.num_added_files,
        "_NUM_DELETED_FILES": meta.num_deleted_files,
        "_PARTITION_STATS": _stats_record(meta.partition_stats),
        "_SCHEMA_ID": meta.schema_id,
        "_MIN_BUCKET": meta.min_bucket,
        "_MAX_BUCKET": meta.max_bucket,
        "_MIN_LEVEL": meta.min_level,
        "_MAX_LEVEL": meta.max_level,
        "_MIN_ROW_ID": meta.min_row_id,
        "_MAX_ROW_ID": meta.max_row_id,
    }


def _stats_record(stats: SimpleStats) -> dict[str, object]:
    counts = stats.null_counts
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        "_NULL_COUNTS": None if counts is None else list(counts),
    }


class _Shared(dict[Hashable, Any]):
    """Keeps equal values of many entries of a manifest only once in memory. Such equal values are a third of the
    metadata of a large table.
    """

    def __missing__(self, value: Hashable) -> Any:
        self[value] = value
        return value


def _entry(ordinal: int, record: dict[str, Any], shared: _Shared) -> ManifestEntry:
    kind = _kind(ordinal, record)
    if record["_BUCKET"] not in _INT or record["_TOTAL_BUCKETS"] not in _INT:
        raise CorruptFileError(f"entry {ordinal} has a bucket or bucket count out of range", entry=ordinal)
    return ManifestEntry(
        kind=kind,
        partition=shared[record["_PARTITION"]],
        bucket=record["_BUCKET"],
        total_buckets=record["_TOTAL_BUCKETS"],
        file=_data_file(ordinal, record["_FILE"], shared),
    )


def _kind(ordinal: int, record: dict[str, Any]) -> FileKind:
    _check_version(ordinal, record)
    kind = _KINDS.get(record["_KIND"])
    if kind is None:
        raise CorruptFileError(
            f"entry {ordinal} has kind {record['_KIND']}, which is neither ADD nor DELETE", entry=ordinal
        )
    return kind


def _data_file(ordinal: int, record: dict[str, Any], shared: _Shared) -> DataFileMeta:
    get = record.get
    source = get("_FILE_SOURCE")
    stats_cols, write_cols = get("_VALUE_STATS_COLS"), get("_WRITE_COLS")
    min_key, max_key = record["_MIN_KEY"], record["_MAX_KEY"]
    if source not in _FILE_SOURCES:
        raise CorruptFileError(f"entry {ordinal} has the unknown file source {source}", entry=ordinal)
    if record["_FILE_SIZE"] < 0 or record["_ROW_COUNT"] < 0 or not 0 <= record["_LEVEL"] < 2**31:
        raise CorruptFileError(f"entry {ordinal} has a file size, row count or level out of range", entry=ordinal)
    return DataFileMeta(
        file_name=checked_name(record["_FILE_NAME"]),
        file_size=record["_FILE_SIZE"],
        row_count=record["_ROW_COUNT"],
        min_key=min_key,
        max_key=max_key,
        key_stats=_file_stats(record["_KEY_STATS"], shared, min_key, max_key),
        value_stats=_file_stats(record["_VALUE_STATS"], shared),
        min_sequence_number=record["_MIN_SEQUENCE_NUMBER"],
        max_sequence_number=record["_MAX_SEQUENCE_NUMBER"],
        schema_id=record["_SCHEMA_ID"],
        level=record["_LEVEL"],
        extra_files=tuple(map(checked_name, record["_EXTRA_FILES"])),
        creation_time_ms=get("_CREATION_TIME"),
        delete_row_count=get("_DELETE_ROW_COUNT"),
        embedded_index=get("_EMBEDDED_FILE_INDEX"),
        file_source=_FILE_SOURCES[source],
        value_stats_cols=None if stats_cols is None else shared[tuple(stats_cols)],
        external_path=get("_EXTERNAL_PATH"),
        first_row_id=get("_FIRST_ROW_ID"),
        write_cols=None if write_cols is None else shared[tuple(write_cols)],
    )


def _meta(ordinal: int, record: dict[str, Any]) -> ManifestFileMeta:
    _check_version(ordinal, record)
    if min(record["_FILE_SIZE"], record["_NUM_ADDED_FILES"], record["_NUM_DELETED_FILES"]) < 0:
        raise CorruptFileError(f"entry {ordinal} has a negative file size or count", entry=ordinal)
    get = record.get
    return ManifestFileMeta(
        file_name=checked_name(record["_FILE_NAME"]),
        file_size=record["_FILE_SIZE"],
        num_added_files=record["_NUM_ADDED_FILES"],
        num_deleted_files=record["_NUM_DELETED_FILES"],
        partition_stats=_to_stats(record["_PARTITION_STATS"]),
        schema_id=record["_SCHEMA_ID"],
        min_bucket=get("_MIN_BUCKET"),
        max_bucket=get("_MAX_BUCKET"),
        min_level=get("_MIN_LEVEL"),
        max_level=get("_MAX_LEVEL"),
        min_row_id=get("_MIN_ROW_ID"),
        max_row_id=get("_MAX_ROW_ID"),
    )


def _to_stats(record: dict[str, Any]) -> SimpleStats:
    low, high, counts = record["_MIN_VALUES"], record["_MAX_VALUES"], record.get("_NULL_COUNTS")
    if counts == [] and low == EMPTY_STATS.min_values and high == EMPTY_STATS.max_values:
        return EMPTY_STATS
    return SimpleStats(low, high, None if counts is None else tuple(counts))


def _file_stats(record: dict[str, Any], shared: _Shared, low: bytes = b"", high: bytes = b"") -> SimpleStats:
    """Returns the statistics of a file. If the bounds in `record` equal `low` and `high`, the result has the objects
    `low` and `high`, so that memory holds equal bounds only once.
    """
    stats = _to_stats(record)
    if stats is EMPTY_STATS:
        return stats
    return SimpleStats(
        low if stats.min_values == low else stats.min_values,
        high if stats.max_values == high else stats.max_values,
        shared[stats.null_counts],
    )


def _check_version(ordinal: int, record: dict[str, Any]) -> None:
    if record["_VERSION"] != VERSION:
        raise CorruptFileError(
            f"entry {ordinal} has version {record['_VERSION']}; only version {VERSION} is read", entry=ordinal
        )
