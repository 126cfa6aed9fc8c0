"""DataFileMeta: the metadata of one data file in a manifest, and the identity that deletes refer to.

Source: Paimon 2.0 DataFileMeta, FileEntry.Identifier, SimpleStats.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

EMPTY_ROW = bytes(12)
"""The serialized BinaryRow of no fields: four bytes of arity, eight of header."""


class FileSource(IntEnum):
    APPEND = 0
    COMPACT = 1


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Minima and maxima as serialized BinaryRows (with arity prefix); one null count per field, None if unknown."""

    min_values: bytes = EMPTY_ROW
    max_values: bytes = EMPTY_ROW
    null_counts: tuple[int | None, ...] | None = ()


EMPTY_STATS = SimpleStats()


@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """One data file. Sizes are bytes; keys are serialized BinaryRows of the trimmed primary key.

    `creation_time_ms` is local wall-clock time read as if it were UTC, as Paimon's JVM writers store it.

    The members are those of a data file in Paimon's manifests.
    """

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    file_source: FileSource | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None

    def upgraded(self, level: int) -> "DataFileMeta":
        """Returns the same file on a higher level; nothing else changes, and no byte of it is rewritten."""
        assert level > self.level, f"{self.file_name}: upgrade from {self.level} to {level}"
        return replace(self, level=level)

    @property
    def may_hold_deletes(self) -> bool:
        return self.delete_row_count is None or self.delete_row_count > 0
