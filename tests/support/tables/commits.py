"""Builders of files, entries and snapshots for tests about commits: only what a test cares about is named."""

from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource
from bucketline.state.format.entries import CommitKind, FileKind, ManifestEntry, Snapshot


def key_of(number: int) -> bytes:
    """The serialized key of one INT column."""
    return bytes([0, 0, 0, 1]) + bytes(8) + number.to_bytes(8, "little")


def number_of(key: bytes) -> int:
    """The order of keys that `key_of` makes."""
    return int.from_bytes(key[12:], "little")


def data_file(name: str, *, level: int = 0, keys: tuple[int, int] = (0, 9), rows: int = 10) -> DataFileMeta:
    """A file of `rows` rows with the inclusive key range `keys`."""
    return DataFileMeta(
        file_name=name,
        file_size=1000,
        row_count=rows,
        min_key=key_of(keys[0]),
        max_key=key_of(keys[1]),
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=0,
        max_sequence_number=rows - 1,
        schema_id=0,
        level=level,
        creation_time_ms=1_700_000_000_000,
        delete_row_count=0,
        file_source=FileSource.COMPACT if level else FileSource.APPEND,
        value_stats_cols=(),
    )


def entry(
    kind: FileKind, file: DataFileMeta, *, partition: bytes = EMPTY_ROW, bucket: int = 0, total: int = 2
) -> ManifestEntry:
    return ManifestEntry(kind, partition, bucket, total, file)


def snapshot(
    snapshot_id: int,
    *,
    user: str = "user",
    identifier: int = 1,
    kind: CommitKind = CommitKind.APPEND,
    total_rows: int = 0,
    watermark: int | None = None,
) -> Snapshot:
    return Snapshot(
        id=snapshot_id,
        schema_id=0,
        base_manifest_list=f"base-{snapshot_id}",
        delta_manifest_list=f"delta-{snapshot_id}",
        commit_user=user,
        commit_identifier=identifier,
        commit_kind=kind,
        time_ms=1_700_000_000_000,
        total_record_count=total_rows,
        delta_record_count=0,
        watermark=watermark,
        uuid=f"uuid-{snapshot_id}",
    )
